import { type CommandLine, commandLineOf, countOption } from '../command-line.ts';

export const USAGE = `npm run bench:s3 -- [--objects 2000] [--runs 3]
Stores and reads objects of 64 KiB by S3 and by REST, in turns, at three real server processes on this machine. Prints
requests per second, the servers' processor time for one, and the ratios.
`;

export interface Wanted {
  /** Objects of each run and interface. */
  readonly objects: number;
  readonly runs: number;
}

const COUNT_MAX = 1_000_000;

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return commandLineOf(words, { texts: ['objects', 'runs'] }, ({ texts }) => ({
    objects: countOption('objects', texts.objects ?? '2000', COUNT_MAX),
    runs: countOption('runs', texts.runs ?? '3', COUNT_MAX),
  }));
}
