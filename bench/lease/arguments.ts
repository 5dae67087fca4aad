import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { type CommandLine, type Sectioned, sectionedCommandLineOf, UsageError } from '../command-line.ts';
import { SECTION_NAMES, type SectionName } from './names.ts';

const ALGORITHMS = ['flease', 'paxoslease'] as const satisfies readonly LeaseAlgorithm[];

export const USAGE = `npm run bench:lease -- [sections] [--quick] [--runs N] [--algorithm NAME] [--json FILE] [--write-docs]

Measures the lease layer alone: real processes, the real transport, nothing else. The figures of the Flease paper
stand beside ours. On a shared machine only ratios within one run mean anything.

sections, all if none is named: ${SECTION_NAMES.join(' ')}

  --quick           everything small: shows that it works, not how fast it is
  --runs N          how often each measurement is repeated (5; with --quick 2)
  --algorithm NAME  of leases: ${ALGORITHMS.join(' or ')} (${ALGORITHMS[0]})
  --json FILE       also writes all single values to FILE
  --write-docs      also writes figures and values of the sections that ran to docs/figures/
  --help            says this
`;

export interface Wanted extends Sectioned<SectionName> {
  readonly algorithm: LeaseAlgorithm;
}

const RUNS = { runs: 5, runsQuick: 2 };

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return sectionedCommandLineOf(words, SECTION_NAMES, RUNS, ['algorithm'], ({ algorithm: given }) => {
    const algorithm = ALGORITHMS.find((name) => name === (given ?? ALGORITHMS[0]));
    if (algorithm !== undefined) return { algorithm };
    throw new UsageError(`--algorithm is ${ALGORITHMS.join(' or ')}, not "${given}"`);
  });
}
