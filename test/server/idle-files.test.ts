import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { delay, FILE, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

/** A fifteenth of it is over between two heartbeats, and itself only after the test. */
const IDLE_MS = 6_000;
/** Quiet primaries send a heartbeat in the double of this time, which is longer than a lease and its guard. */
const HEARTBEAT_MS = 1_500;

async function started(t: { after(work: () => void): void }) {
  const cluster = new SmallCluster(
    ['a', 'b', 'c'],
    {},
    { ...STEADY, idleMs: IDLE_MS, heartbeatMs: HEARTBEAT_MS },
  );
  t.after(() => cluster.close());
  await cluster.ready();
  return { cluster, servers: cluster.servers as [SmallServer, SmallServer, SmallServer] };
}

test('a request that waits for the lease keeps its replica loaded', async (t) => {
  const {
    cluster,
    servers: [a, ...others],
  } = await started(t);
  for (const { id } of others) cluster.network.cut(a.id, id);
  await assert.rejects(
    a.files.becomePrimary(FILE),
    (error) => error instanceof ServiceError && error.code === 'no-majority',
  );
});

test('backups of a primary stay loaded between its heartbeats', async (t) => {
  const {
    servers: [a, b],
  } = await started(t);
  await a.files.becomePrimary(FILE);
  while (b.host.loaded(FILE) === null) await delay(5);
  const backup = b.host.loaded(FILE);
  while (backup?.isUnbound === false && !backup.closed) await delay(20);
  // Two sweeps.
  await delay(600);
  assert.deepEqual([b.host.loaded(FILE) === backup, b.lease.view(FILE).holder], [true, a.id]);
});
