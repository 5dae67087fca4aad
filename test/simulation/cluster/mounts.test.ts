/**
 * Goal: programs on mounts that fill, edit, append, lock and sync files see what each mode of the cache promises, find what they
 * synced after all servers have lost their power, and hear of all that is lost.
 * Method: a short form of `npm run simulate:cluster` with the workloads of mounts.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandOf } from './arguments.ts';
import { type RunOptions, runCluster } from './cluster-run.ts';
import { MOUNT_WORKLOADS } from './workloads/all.ts';

const SECONDS = 12;
const TOLERANT = MOUNT_WORKLOADS.filter(({ toleratesPowerOfAll }) => toleratesPowerOfAll === true);
const namesOf = (workloads: typeof MOUNT_WORKLOADS): string[] => workloads.map(({ name }) => name);
/** The seeds of the form that runs with every change. */
const RUNS = [
  { seed: 1, clients: 0, cache: 'leases', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 2, clients: 0, cache: 'ttl', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 8, clients: 0, cache: 'strict', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 4, clients: 1, cache: 'ttl', workloads: namesOf(TOLERANT) },
  { seed: 5, clients: 1, cache: 'leases', workloads: namesOf(TOLERANT) },
] as const;

test('mounts keep their promises to all programs', { timeout: 900_000 }, async () => {
  const coverage = new Map<string, number>();
  for (const run of RUNS) {
    const options: RunOptions = { ...run, servers: 3, mounts: 2, volumes: 1, forMs: SECONDS * 1_000 };
    const report = await runCluster(options);
    assert.deepEqual(report.violations, [], commandOf(options));
    for (const [what, count] of report.coverage) coverage.set(what, (coverage.get(what) ?? 0) + count);
  }
  const faults = ['remount', 'memory-pressure', 'power-of-all', 'lose-mount'];
  const demands = [...MOUNT_WORKLOADS.flatMap(({ demands }) => demands), ...faults];
  const missed = demands.filter((what) => !coverage.has(what));
  assert.deepEqual(missed, [], `Of ${JSON.stringify(Object.fromEntries([...coverage].sort()))}`);
});
