/**
 * Goal: servers that join, leave and lose their disks, named leases, snapshots, quotas and volumes keep their promises on every
 * seed, and the seeds together meet what these workloads demand.
 * Method: a short form of `npm run simulate:cluster` with the workloads of servers and volumes as wholes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandOf } from './arguments.ts';
import { type RunOptions, runCluster } from './cluster-run.ts';
import { missedIn } from './demands.ts';
import { OF_WHOLES } from './workloads/all.ts';

const NONE = {
  ...({ clients: 2, mounts: 0, cache: 'leases', volumes: 1 } as const),
  faults: ['kill', 'pause', 'power', 'part', 'slow-link', 'foul'],
};
// A server that is drained gives up its vote on named leases after three times their length: that takes the longest.
const MEMBERS = {
  ...{ ...NONE, servers: 4, forMs: 60_000 },
  workloads: ['files', 'membership', 'named-leases', 'convergence'],
};
const VOLUME_WORKLOADS = ['snapshots', 'quotas', 'volume-lives', 'convergence'];
const VOLUMES = { ...NONE, servers: 3, forMs: 12_000, workloads: VOLUME_WORKLOADS };
const LEASES = { ...NONE, servers: 3, forMs: 15_000, workloads: ['named-leases', 'convergence'] };

const RUNS: readonly RunOptions[] = [
  { seed: 1, ...MEMBERS },
  { seed: 2, ...MEMBERS },
  { seed: 3, ...VOLUMES },
  { seed: 4, ...VOLUMES },
  { seed: 5, ...LEASES },
];

test('servers and volumes as wholes keep their promises on every seed', { timeout: 900_000 }, async () => {
  const coverage = new Map<string, number>();
  for (const options of RUNS) {
    const report = await runCluster(options);
    assert.deepEqual(report.violations, [], commandOf(options));
    for (const [what, count] of report.coverage) coverage.set(what, (coverage.get(what) ?? 0) + count);
  }
  const demands = OF_WHOLES.flatMap((workload) => workload.demands);
  assert.deepEqual(missedIn(coverage, demands), [], JSON.stringify(Object.fromEntries([...coverage].sort())));
});
