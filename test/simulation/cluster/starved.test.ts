import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runCluster } from './cluster-run.ts';

/** A fifth of the lease of simulated clusters. */
const STARVED_MS = 400;

/** Goal: as that of `test/cluster/starved.ts`, which needs a minute and a machine of its own. */
test('starved servers and clients keep the catalog’s primary, and no call fails', async () => {
  const options = {
    ...{ seed: 1, servers: 3, clients: 2, forMs: 30_000, faults: [], starvedMs: STARVED_MS },
    workloads: ['files', 'names'],
  };
  const { successions, unknown, operations, violations } = await runCluster(options);
  assert.deepEqual({ successions, unknown, violations }, { successions: 0, unknown: 0, violations: [] });
  assert.ok(operations > 100, `${operations} operations were done`);
});
