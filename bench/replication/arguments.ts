import { parseArgs } from 'node:util';
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

export type Arguments =
  | {
      readonly kind: 'run';
      readonly sections: readonly SectionName[];
      readonly quick: boolean;
      readonly runs: number;
      readonly json: string | null;
      readonly profile: string | null;
      readonly writeDocs: boolean;
    }
  | { readonly kind: 'help' }
  /** What is wrong with the command line. */
  | { readonly kind: 'fault'; readonly message: string };

const RUNS = 5;
const RUNS_QUICK = 1;
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
        json: { type: 'string' },
        profile: { type: 'string' },
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
    const runs = Number(values.runs ?? (values.quick ? RUNS_QUICK : RUNS));
    if (!Number.isInteger(runs) || runs < 1 || runs > RUNS_MAX) {
      return { kind: 'fault', message: `--runs wants a number from 1 to ${RUNS_MAX}, not "${values.runs}"` };
    }
    return {
      kind: 'run',
      // In the order of the list, each once, whatever the order in which they were named.
      sections: SECTION_NAMES.filter((name) => positionals.length === 0 || positionals.includes(name)),
      quick: values.quick,
      runs,
      json: values.json ?? null,
      profile: values.profile ?? null,
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
