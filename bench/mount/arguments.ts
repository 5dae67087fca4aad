import { type CommandLine, commandLineOf, countOption, UsageError } from '../command-line.ts';
import { POLICY_NAMES, ROW_NAMES, type RowName, SUBJECT_NAMES, type SubjectName } from './names.ts';

export const USAGE = `npm run bench:mount -- [--rows NAMES] [--subjects NAMES] [--mounts N] [--quick] [--part N]
  [--runs N] [--json FILE] [--write-docs]

Measures mounts: three server processes on this machine and a mount of each transport, the local disk, and what others
would use instead, where it is installed (bindfs; GlusterFS with three bricks, which needs root). Subjects take turns in each
row, so that only the ratios mean anything, and these only on a machine that does nothing else.

rows, all if none is named: ${ROW_NAMES.join(' ')}
subjects, all if none is named: ${SUBJECT_NAMES.join(' ')}
only if named: ${POLICY_NAMES.join(' ')}: mounts over the kernel transport with cache=ttl:1s and cache=leases, on one cluster

  --rows NAMES      only these, separated by commas
  --subjects NAMES  only these, separated by commas
  --mounts N        of each of these volumes (1 or 2): the second lists the directory before each measurement, and
                    takes every second job
  --quick           everything small: shows that it works, not how fast it is
  --part N          one N-th of everything is done (1): for comparisons on a slow machine
  --runs N          how often each measurement is repeated (3; with --quick 1)
  --json FILE       also writes all single values to FILE
  --write-docs      also writes the table into docs/performance.md
  --help            says this
`;

export interface Wanted {
  readonly rows: readonly RowName[];
  readonly subjects: readonly SubjectName[];
  readonly mounts: number;
  readonly quick: boolean;
  readonly part: number;
  readonly runs: number;
  readonly json: string | null;
  readonly writeDocs: boolean;
}

const RUNS = 3;
const RUNS_QUICK = 1;
const RUNS_MAX = 100;
const MOUNTS_MAX = 2;
const PART_MAX = 100;

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  const options = {
    texts: ['rows', 'subjects', 'mounts', 'part', 'runs', 'json'],
    flags: ['quick', 'write-docs'],
  };
  return commandLineOf(words, options, ({ texts, flags }) => {
    const quick = flags.has('quick');
    return {
      rows: namesOf('row', texts.rows, ROW_NAMES),
      subjects: namesOf('subject', texts.subjects, SUBJECT_NAMES, POLICY_NAMES),
      mounts: countOption('mounts', texts.mounts ?? '1', MOUNTS_MAX),
      quick,
      part: countOption('part', texts.part ?? '1', PART_MAX),
      runs: countOption('runs', texts.runs ?? `${quick ? RUNS_QUICK : RUNS}`, RUNS_MAX),
      json: texts.json ?? null,
      writeDocs: flags.has('write-docs'),
    };
  });
}

/** In the order of the list, in whatever order they were given. */
function namesOf<Name extends string>(
  what: string,
  text: string | undefined,
  usual: readonly Name[],
  others: readonly Name[] = [],
): readonly Name[] {
  if (text === undefined) return usual;
  const known = [...usual, ...others];
  const named = text.split(',');
  const unknown = named.find((name) => !known.some((one) => one === name));
  if (unknown !== undefined) {
    throw new UsageError(`There is no ${what} "${unknown}"; there are ${known.join(', ')}`);
  }
  return known.filter((name) => named.includes(name));
}
