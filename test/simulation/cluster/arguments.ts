/** The command line of `npm run simulate:cluster`. */
import { durationParse } from '../../../base/duration.ts';
import { type CommandLine, commandLineOf, countOption, UsageError } from '../../../bench/command-line.ts';
import type { RunOptions } from './cluster-run.ts';
import { NAMED_FAULTS } from './faults.ts';
import { type Shape, shapeOf } from './shapes.ts';
import { CACHES, type Cache } from './simulated-machine.ts';
import { NAMED_WORKLOADS } from './workloads/all.ts';

const COUNT_MAX = 1_000_000_000;

/** The seeds to run, and their options. */
export interface Wanted {
  readonly first: number;
  /** Infinite if no seed was given. */
  readonly count: number;
  readonly trace: boolean;
  readonly shrinks: boolean;
  readonly options: (seed: number) => RunOptions;
}

const RANGES = { servers: [3, 7], clients: [0, 4], mounts: [0, 4], volumes: [1, 3] } as const;
type Counted = keyof typeof RANGES;

export const USAGE = `npm run simulate:cluster -- [options]

Runs composed servers, clients of the library and mounts below a model of the Linux kernel in one process, on virtual time,
from one seed, while they meet faults, and judges what programs saw and what is stored (docs/TESTING.md).
Exit code 1: a seed violates a rule; 2: a mistake on the command line.

  --seed N         the first seed (1)
  --count N        so many seeds (1); without both, all seeds until the program is stopped
  --for TIME       virtual time of the work of each, as 90s or 5m (60s)
  --servers N      3 to 7
  --clients N      0 to 4 clients of the library
  --mounts N       0 to 4 machines with a mount
  --volumes N      1 to 3
  --own-catalogs   each volume has a catalog of its own
  --cache NAME     of mounts: ${CACHES.join(', ')}
  --workload A,B   ${wrapped(NAMED_WORKLOADS.map(({ name }) => name))}
                   What is not given of these six is drawn from the seed.
  --faults A,B     ${wrapped(NAMED_FAULTS.map(({ name }) => name))} (all but the last three)
  --gap TIME       between two faults, at the most (drawn from the seed)
  --calm           without faults
  --member-reads   backups of the catalog answer queries whenever they may
  --shrink         makes a failing run short, and prints it as a story
  --end-early      ends a run at its first violation
  --without LIST   leaves out faults by their number, and threads of programs: 3,7,c1/2,m2/1
  --trace          prints every request, operation, fault and line of a log with its virtual time
  --help           prints this
`;

function wrapped(names: readonly string[]): string {
  return names.join(', ').replaceAll(/(.{70,90}?,) /g, '$1\n                   ');
}

/** @returns the options of the words after the program's name */
export function wantedOf(words: readonly string[]): CommandLine<Wanted> {
  const texts = [
    'seed',
    'count',
    'for',
    'gap',
    'cache',
    'workload',
    'faults',
    'without',
    ...Object.keys(RANGES),
  ];
  return commandLineOf(
    words,
    { texts, flags: ['trace', 'calm', 'shrink', 'end-early', 'member-reads', 'own-catalogs'] },
    ({ texts: given, flags }) => {
      const { seed, count, for: span = '60s', gap, cache, workload, faults, without } = given;
      const forMs = timeOf('for', span);
      const shape: Partial<Shape> = {
        ...Object.fromEntries(
          (Object.keys(RANGES) as Counted[]).flatMap((name) => {
            const text = given[name];
            return text === undefined ? [] : [[name, numberIn(name, text)]];
          }),
        ),
        ...(cache === undefined ? {} : { cache: named('cache', CACHES, cache) as Cache }),
      };
      const chosen = {
        ...(workload === undefined ? {} : { workloads: namesIn('workload', NAMED_WORKLOADS, workload) }),
        ...(faults === undefined ? {} : { faults: namesIn('faults', NAMED_FAULTS, faults) }),
        ...(gap === undefined ? {} : { gapMs: timeOf('gap', gap) }),
        ...(flags.has('calm') ? { faults: [] } : {}),
        ...(without === undefined ? {} : leftOut(without)),
        ...(flags.has('own-catalogs') ? { ownCatalogs: true } : {}),
        ...(flags.has('member-reads') ? { forcesMemberReads: true } : {}),
        endsAtViolation: flags.has('end-early'),
      };
      return {
        first: seed === undefined ? 1 : countOption('seed', seed, COUNT_MAX),
        count:
          seed === undefined && count === undefined
            ? Number.POSITIVE_INFINITY
            : countOption('count', count ?? '1', COUNT_MAX),
        trace: flags.has('trace'),
        shrinks: flags.has('shrink'),
        options: (one) => ({ seed: one, forMs, ...shapeOf(one), ...shape, ...chosen }),
      };
    },
  );
}

function timeOf(option: string, text: string): number {
  const timeMs = durationParse(text);
  if (timeMs === null) throw new UsageError(`--${option} takes a time such as 90s or 5m, not "${text}"`);
  return timeMs;
}

function numberIn(name: Counted, text: string): number {
  const [min, max] = RANGES[name];
  const value = Number(text);
  if (text !== '' && Number.isInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`--${name} takes a number from ${min} to ${max}, not "${text}"`);
}

function named(option: string, names: readonly string[], text: string): string {
  if (names.includes(text)) return text;
  throw new UsageError(`--${option} takes ${names.join(', ')}, not "${text}"`);
}

function namesIn(option: string, table: readonly { readonly name: string }[], text: string): string[] {
  const names = table.map(({ name }) => name);
  return text.split(',').map((one) => named(option, names, one));
}

/** The parts that `--without` leaves out. */
function leftOut(text: string): Pick<RunOptions, 'withoutFaults' | 'withoutThreads'> {
  const words = text.split(',');
  const wrong = words.find((word) => !/^(\d+|[cm]\d+\/\d+)$/.test(word));
  if (wrong !== undefined)
    throw new UsageError(`--without takes numbers and threads such as c1/2, not "${wrong}"`);
  return {
    withoutFaults: new Set(words.filter((word) => /^\d/.test(word)).map(Number)),
    withoutThreads: new Set(words.filter((word) => /^[cm]/.test(word))),
  };
}

/** @returns the command line that repeats the run */
export function commandOf(options: RunOptions): string {
  const { seed, servers, clients, mounts, cache, volumes, workloads, faults, forMs, gapMs } = options;
  const words = [`--seed ${seed}`, `--servers ${servers}`, `--clients ${clients}`];
  if (mounts !== undefined) words.push(`--mounts ${mounts}`);
  if (volumes !== undefined) words.push(`--volumes ${volumes}`);
  if (cache !== undefined) words.push(`--cache ${cache}`);
  words.push(`--for ${forMs}ms`);
  if (gapMs !== undefined) words.push(`--gap ${gapMs}ms`);
  if (workloads !== undefined) words.push(`--workload ${workloads.join()}`);
  if (faults !== undefined) words.push(faults.length === 0 ? '--calm' : `--faults ${faults.join()}`);
  if (options.ownCatalogs === true) words.push('--own-catalogs');
  if (options.forcesMemberReads === true) words.push('--member-reads');
  const without = [...(options.withoutFaults ?? []), ...(options.withoutThreads ?? [])];
  if (without.length > 0) words.push(`--without ${without.join()}`);
  return `npm run simulate:cluster -- ${words.join(' ')}`;
}

/** @returns the cost of a run, for its line */
export function costText(simulatedMs: number, operations: number, events: number, cpuS: number): string {
  const per = (amount: number, digits = 0): string => (amount / cpuS).toFixed(digits);
  return (
    `${cpuS.toFixed(1)} CPU s; a CPU second has ${per(simulatedMs / 1_000, 1)} simulated seconds, ${per(operations)} operations, ` +
    `${per(events)} events`
  );
}
