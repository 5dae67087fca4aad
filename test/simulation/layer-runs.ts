/** One run of a layer, summed up the same way for all; what `npm run simulate` and its workers share. */
import { claimRun } from './claim-run.ts';
import type { LeaseRunOptions } from './lease-run.ts';
import { leaseRun } from './lease-run.ts';
import type { PlantedLayer } from './planted.ts';
import type { ReplicaCoverage } from './replica-coverage.ts';
import { replicaRun } from './replica-run.ts';

/** What runs were, added up. */
export interface Tally {
  runs: number;
  /** True time that has passed in the simulated worlds. */
  simulatedMs: number;
  messages: number;
  crashes: number;
  pauses: number;
  cuts: number;
  /** Attempts that ended with a lease in hand, acquired or renewed. */
  rounds: number;
  /** A cell went from one life of a server to another. */
  takeovers: number;
  /** Times that a cell got other members. */
  viewChanges: number;
  /** Runs whose clocks were out of bounds, and how often a server noticed that: of a peer, or of itself. */
  brokenClocks: number;
  peersConvicted: number;
  clockFaults: number;
}

export const TALLY_NAMES: readonly (keyof Tally)[] = [
  'runs',
  'simulatedMs',
  'messages',
  'crashes',
  'pauses',
  'cuts',
  'rounds',
  'takeovers',
  'viewChanges',
  'brokenClocks',
  'peersConvicted',
  'clockFaults',
];

export function tallyEmpty(): Tally {
  return Object.fromEntries(TALLY_NAMES.map((name) => [name, 0])) as Record<keyof Tally, number>;
}

export function tallyAddTo(sum: Tally, added: Tally): void {
  for (const name of TALLY_NAMES) sum[name] += added[name];
}

/** Runs one seed and adds what it was to `sum`, `marks` and `coverage`. @returns the violation it met, or null */
export function layerRun(
  layer: PlantedLayer,
  seed: number,
  options: LeaseRunOptions,
  sum: Tally,
  marks: Set<string>,
  coverage: ReplicaCoverage,
): string | null {
  sum.runs++;
  if (layer === 'replica') {
    const report = replicaRun(seed);
    const { violation, counts, simulatedMs, marks: traced } = report;
    for (const mark of traced.keys()) marks.add(mark);
    coverage.add(report);
    sum.simulatedMs += simulatedMs;
    sum.messages += counts.messages ?? 0;
    sum.crashes += counts.crashes ?? 0;
    sum.pauses += counts.pauses ?? 0;
    sum.cuts += counts.cuts ?? 0;
    sum.takeovers += counts.epochs ?? 0;
    sum.viewChanges += counts.viewChanges ?? 0;
    sum.brokenClocks += counts.clocksBroken ?? 0;
    return violation;
  }
  if (layer === 'claim') {
    const { violation, world, counts } = claimRun(seed);
    sum.simulatedMs += world.elapsedMs;
    sum.messages += world.counts.messages;
    sum.crashes += world.counts.crashes;
    sum.pauses += world.counts.pauses;
    sum.cuts += world.counts.cuts;
    sum.rounds += counts.granted + counts.refreshed;
    sum.takeovers += counts.granted;
    return violation;
  }
  const { violation, world, shape } = leaseRun(seed, options);
  for (const mark of world.marks) marks.add(mark);
  const { counts } = world.world;
  sum.simulatedMs += world.world.elapsedMs;
  sum.messages += counts.messages;
  sum.crashes += counts.crashes;
  sum.pauses += counts.pauses;
  sum.cuts += counts.cuts;
  sum.rounds += world.observers.counts.held;
  sum.takeovers += world.observers.counts.takeovers;
  for (const cell of world.cells) sum.viewChanges += (world.views.cell(cell).latest.view - 1) >> 1;
  if (shape.clocksBroken) sum.brokenClocks++;
  sum.peersConvicted += world.markCounts.get('clock-out-of-bounds') ?? 0;
  sum.clockFaults += world.markCounts.get('clock-fault') ?? 0;
  return violation;
}
