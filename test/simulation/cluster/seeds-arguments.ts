/** What simulations of clusters do alike with their command lines. */
import { durationParse } from '../../../base/duration.ts';
import { type CommandLine, commandLineOf, countOption, UsageError } from '../../../bench/command-line.ts';

const COUNT_MAX = 1_000_000_000;

/** Seeds to run, and how. */
export interface Seeds {
  readonly first: number;
  /** Infinite where no seed was named. */
  readonly count: number;
  /** Virtual time of the workload of each. */
  readonly forMs: number;
  readonly trace: boolean;
  /** No faults happen. */
  readonly calm: boolean;
}

/** A number that an option gives, within bounds. */
export interface CountOption {
  readonly name: string;
  readonly usual: number;
  readonly max: number;
}

/**
 * @param words what stands behind the program's name
 * @param counts further options that take a number
 * @param texts further options that take a text
 * @param read makes sense of those, or throws a `UsageError`
 */
export function seedsCommandLineOf<Own extends object>(
  words: readonly string[],
  counts: readonly CountOption[],
  texts: readonly string[],
  read: (numbers: ReadonlyMap<string, number>, texts: Readonly<Record<string, string>>) => Own,
): CommandLine<Seeds & Own> {
  const known = {
    texts: ['seed', 'count', 'for', ...counts.map(({ name }) => name), ...texts],
    flags: FLAGS,
  };
  return commandLineOf(words, known, ({ texts: given, flags }) => {
    const { seed, count = '1', for: span = '60s' } = given;
    const forMs = durationParse(span);
    if (forMs === null) throw new UsageError(`--for wants a time as 90s or 5m, not "${span}"`);
    const numbers = counts.map(
      ({ name, usual, max }) => [name, countOption(name, given[name] ?? `${usual}`, max)] as const,
    );
    return {
      first: seed === undefined ? 1 : countOption('seed', seed, COUNT_MAX),
      count: seed === undefined ? Number.POSITIVE_INFINITY : countOption('count', count, COUNT_MAX),
      forMs,
      trace: flags.has('trace'),
      calm: flags.has('calm'),
      ...read(new Map(numbers), given),
    };
  });
}

const FLAGS = ['trace', 'calm'];

/** The usage of the options that all of them have. */
export const SEEDS_USAGE = `  --seed N       the first seed; without it all from 1 on, until the program is stopped
  --count N      so many seeds (1)
  --for TIME     virtual time of the workload of each, as 90s or 5m (60s)
  --trace        prints every request, operation, fault and line of a log with its virtual time
  --calm         without faults
  --help         says this
`;

/** What a run took, for its line. */
export function costText(
  simulatedMs: number,
  operations: number,
  events: number,
  { user, system }: NodeJS.CpuUsage,
): string {
  const cpuS = (user + system) / 1e6;
  const per = (amount: number, digits = 0): string => (amount / cpuS).toFixed(digits);
  return (
    `a CPU second has ${per(simulatedMs / 1_000, 1)} simulated seconds, ${per(operations)} operations, ` +
    `${per(events)} events`
  );
}
