import { parseArgs } from 'node:util';
import type { LeaseAlgorithm } from '../../lease/actions.ts';
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

export type Arguments =
  | {
      readonly kind: 'run';
      readonly sections: readonly SectionName[];
      readonly quick: boolean;
      readonly runs: number;
      readonly algorithm: LeaseAlgorithm;
      readonly json: string | null;
      readonly writeDocs: boolean;
    }
  | { readonly kind: 'help' }
  /** What is wrong with the command line. */
  | { readonly kind: 'fault'; readonly message: string };

const RUNS_MAX = 100;

/** @param words what stands behind the program's name */
export function argumentsOf(words: readonly string[]): Arguments {
  try {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        quick: { type: 'boolean', default: false },
        runs: { type: 'string' },
        algorithm: { type: 'string', default: ALGORITHMS[0] },
        json: { type: 'string' },
        'write-docs': { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) return { kind: 'help' };
    const unknown = positionals.find((name) => !isSectionName(name));
    if (unknown !== undefined) {
      return {
        kind: 'fault',
        message: `There is no section "${unknown}"; there are ${SECTION_NAMES.join(', ')}`,
      };
    }
    const runs = Number(values.runs ?? (values.quick ? 2 : 5));
    if (!Number.isInteger(runs) || runs < 1 || runs > RUNS_MAX) {
      return { kind: 'fault', message: `--runs wants a number from 1 to ${RUNS_MAX}, not "${values.runs}"` };
    }
    const algorithm = ALGORITHMS.find((name) => name === values.algorithm);
    if (algorithm === undefined) {
      return {
        kind: 'fault',
        message: `--algorithm is ${ALGORITHMS.join(' or ')}, not "${values.algorithm}"`,
      };
    }
    return {
      kind: 'run',
      // In the order of the list, each once, whatever the order in which they were named.
      sections: SECTION_NAMES.filter((name) => positionals.length === 0 || positionals.includes(name)),
      quick: values.quick,
      runs,
      algorithm,
      json: values.json ?? null,
      writeDocs: values['write-docs'],
    };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // Node goes on about other things that one could have meant.
    return { kind: 'fault', message: error.message.split('. ', 1)[0] ?? error.message };
  }
}

function isSectionName(name: string): name is SectionName {
  return (SECTION_NAMES as readonly string[]).includes(name);
}
