/**
 * One run of a layer, with the same result type for all: used by `npm run simulate`, its workers and the tests of the
 * layers.
 */
import { claimRun } from './claim-run.ts';
import type { LeaseRunOptions } from './lease-run.ts';
import { leaseRun } from './lease-run.ts';
import { replicaRun } from './replica-run.ts';

/** Leases of servers, leases of clients, and groups of replicas. */
export type Layer = 'lease' | 'claim' | 'replica';

/** Counts by name: faults, what observers count, and marks that the cores have traced. */
export type Counts = Readonly<Record<string, number>>;

export interface LayerRun {
  readonly violation: string | null;
  /** The trace, if it is verbose. */
  readonly lines: readonly string[];
  readonly counts: Counts;
}

export function countsAdd(sum: Counts, added: Counts): Counts {
  const names = Object.entries(added).map(([name, count]) => [name, (sum[name] ?? 0) + count]);
  return { ...sum, ...Object.fromEntries(names) };
}

export const LAYER_RUNS: Readonly<
  Record<Layer, (seed: number, options: LeaseRunOptions, verbose?: boolean) => LayerRun>
> = {
  lease(seed, options, verbose = false) {
    const { violation, world: lease, shape } = leaseRun(seed, { ...options, verbose });
    const { cells, views, markCounts, world } = lease;
    const { held: rounds, takeovers } = lease.observers.counts;
    const viewChanges = cells.reduce((sum, cell) => sum + ((views.cell(cell).latest.view - 1) >> 1), 0);
    const counts = { rounds, takeovers, viewChanges, clocksBroken: shape.clocksBroken ? 1 : 0 };
    const all = { ...Object.fromEntries(markCounts), ...world.counts, ...counts };
    return { violation, lines: world.lines, counts: { ...all, simulatedMs: world.elapsedMs } };
  },
  claim(seed, _options, verbose) {
    const { violation, world, counts } = claimRun(seed, verbose);
    const { granted, refreshed } = counts;
    const own = { rounds: granted + refreshed, takeovers: granted, simulatedMs: world.elapsedMs };
    return { violation, lines: world.lines, counts: { ...counts, ...world.counts, ...own } };
  },
  replica: (seed, _options, verbose) => replicaRun(seed, verbose),
};
