/**
 * Simplifies a failing run of the lease layer: removes faults, servers, cells and time as long as one of the next
 * seeds breaks the same rule. The result is a command line.
 */
import { leaseOptionsOf } from './arguments.ts';
import { type LeaseRunOptions, leaseRun } from './lease-run.ts';
import { violationKind } from './violation.ts';

/** The number of seeds that are tried with each choice. */
const SEEDS = 100;

/** Values of each option, simplest first; the first one that fails is used. */
const CHOICES: Readonly<Record<string, readonly string[]>> = {
  servers: ['1', '2', '3', '4', '5'],
  cells: ['1'],
  for: ['500ms', '1s', '2s', '4s', '8s'],
  duplication: ['0'],
  'delay-rare': ['0'],
  loss: ['0'],
  'cut-every': ['never'],
  'pause-every': ['never'],
  'crash-every': ['never'],
  delay: ['1ms..1ms'],
};

export interface Simple {
  readonly seed: number;
  /** The values of options, as on the command line. */
  readonly texts: Readonly<Record<string, string>>;
  readonly options: LeaseRunOptions;
  readonly violation: string;
}

/** @param texts the options on the command line @param violation that the run is known to end with */
export function simpler(seed: number, texts: Simple['texts'], violation: string): Simple {
  const kind = violationKind(violation);
  let best: Simple = { seed, texts, options: leaseOptionsOf(texts), violation };
  for (const [option, choices] of Object.entries(CHOICES)) {
    for (const text of choices) {
      const found = firstLike(best.seed, { ...best.texts, [option]: text }, kind);
      if (found === null) continue;
      best = found;
      break;
    }
  }
  return best;
}

function firstLike(first: number, texts: Simple['texts'], kind: string): Simple | null {
  const options = leaseOptionsOf(texts);
  for (let seed = first; seed < first + SEEDS; seed++) {
    const { violation } = leaseRun(seed, options);
    if (violation !== null && violationKind(violation) === kind) return { seed, texts, options, violation };
  }
  return null;
}
