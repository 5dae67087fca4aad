import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import { delay, FILE, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

const MEMBERS = [...'abc'] as ServerId[];
/** A fifteenth of it is over soon, and itself only after the test. */
const IDLE_MS = 30_000;

async function started() {
  const cluster = new SmallCluster(['a', 'b', 'c', 'd'], {}, { ...STEADY, idleMs: IDLE_MS });
  await cluster.ready();
  return { cluster, servers: cluster.servers as [SmallServer, SmallServer, SmallServer, SmallServer] };
}

test('a file that got its primary only for the change is unused, and all replicas are unloaded when it is released', async (t) => {
  const {
    cluster,
    servers: [a, ...others],
  } = await started();
  t.after(() => cluster.close());
  const { view, unused } = await a.files.memberChanges.change(FILE, MEMBERS);
  assert.deepEqual(view.members, MEMBERS);
  assert.ok(unused !== null && unused === a.host.loaded(FILE));
  await a.idle.release(unused);
  assert.equal(a.host.loaded(FILE), null);
  assert.ok(!a.lease.view(FILE).own);
  const begunMs = performance.now();
  // Their primary has ended in good order: they do not wait for the idle time.
  while (others.some(({ host }) => host.loaded(FILE) !== null)) {
    assert.ok(performance.now() - begunMs < IDLE_MS / 2, 'A replica is still loaded');
    await delay(50);
  }
});

test('a file that had a primary before the change is not released after it', async (t) => {
  const {
    cluster,
    servers: [a],
  } = await started();
  t.after(() => cluster.close());
  await a.files.becomePrimary(FILE);
  assert.equal((await a.files.memberChanges.change(FILE, MEMBERS)).unused, null);
});
