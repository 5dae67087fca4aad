/**
 * Goal: servers that join, leave and lose their disks, named leases, snapshots, clones, quotas and volumes keep their
 * rules on every seed, and the seeds together have what these workloads demand.
 * Method: a short form of `npm run simulate:cluster` with the workloads of whole servers and volumes.
 */
import { test } from 'node:test';
import type { RunOptions } from './cluster-run.ts';
import { playForm } from './form.ts';
import { OF_WHOLES } from './workloads/all.ts';
import { clones } from './workloads/clones.ts';

const NONE = {
  ...({ clients: 2, mounts: 0, cache: 'leases', volumes: 1 } as const),
  faults: ['kill', 'pause', 'power', 'part', 'slow-link', 'foul'],
};
// A drained server releases its vote on named leases after three times their length: that takes longest.
const MEMBERS = {
  ...{ ...NONE, servers: 4, forMs: 60_000 },
  workloads: ['files', 'membership', 'named-leases'],
};
const VOLUME_WORKLOADS = ['snapshots', 'quotas', 'volume-lives'];
const VOLUMES = { ...NONE, servers: 3, forMs: 12_000, workloads: VOLUME_WORKLOADS };
const CLONES = { ...NONE, servers: 3, forMs: 20_000, workloads: ['clones'] };
const LEASES = { ...NONE, servers: 3, forMs: 15_000, workloads: ['named-leases'] };

const RUNS: readonly RunOptions[] = [
  { seed: 5, ...MEMBERS },
  { seed: 8, ...MEMBERS },
  { seed: 3, ...VOLUMES },
  { seed: 4, ...VOLUMES },
  { seed: 4, ...LEASES },
  { seed: 5, ...CLONES },
];

test('whole servers and volumes keep their rules on every seed', { timeout: 900_000 }, async (t) => {
  const demands = ['converged', ...[...OF_WHOLES, clones].flatMap(({ demands }) => demands)];
  await playForm(t, RUNS, demands);
});
