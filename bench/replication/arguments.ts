import { type CommandLine, type Sectioned, sectionedCommandLineOf } from '../command-line.ts';
import { SECTION_NAMES, type SectionName } from './names.ts';

export const USAGE = `npm run bench:replication -- [sections] [--quick] [--runs N] [--json FILE] [--profile DIR] [--write-docs]

Measures replicated files: real server processes on loopback, and clients outside of them. What is compared is measured
in turn in the same run; on a shared machine only the ratios mean anything.

sections, all if none is named: ${SECTION_NAMES.join(' ')}

  --quick        everything small: shows that it works, not how fast it is
  --runs N       how often each measurement is repeated (5; with --quick 1)
  --json FILE    also writes all single values to FILE
  --profile DIR  servers that end in order leave a CPU profile there; what is measured is then slower
  --write-docs   also writes the tables of the sections that ran into docs/performance.md
  --help         says this
`;

export interface Wanted extends Sectioned<SectionName> {
  readonly profile: string | null;
}

const RUNS = { runs: 5, runsQuick: 1 };

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return sectionedCommandLineOf(words, SECTION_NAMES, RUNS, ['profile'], ({ profile = null }) => ({
    profile,
  }));
}
