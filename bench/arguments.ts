import { type CommandLine, commandLineOf, countOption } from './command-line.ts';

export const USAGE = `npm run bench -- [--mib 256] [--files 300] [--kills 3] [--runs 3]
Measures three real server processes on this machine. Every figure stands beside the local disk
in the same run; on a shared machine only the ratios mean anything. Prints medians and the runs' spread.
`;

export interface Wanted {
  /** Size of each large file that is written and read, in MiB. */
  readonly mib: number;
  /** The number of small files in each run. */
  readonly files: number;
  /** How often a primary is killed. */
  readonly kills: number;
  /** How often each measurement is repeated. */
  readonly runs: number;
}

const COUNT_MAX = 1_000_000;

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return commandLineOf(words, { texts: ['mib', 'files', 'kills', 'runs'] }, ({ texts }) => ({
    mib: countOption('mib', texts.mib ?? '256', COUNT_MAX),
    files: countOption('files', texts.files ?? '300', COUNT_MAX),
    kills: countOption('kills', texts.kills ?? '3', COUNT_MAX),
    runs: countOption('runs', texts.runs ?? '3', COUNT_MAX),
  }));
}
