/**
 * Goal: if the primary of a file in use ends in order, the next server becomes primary before a request needs it; and a
 * chosen successor that never gets the lease does no harm.
 * Method: servers in one process; the primary releases everything, as at its end.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const BYTES = Buffer.from('contents');

async function begun(t: { after(work: () => void): void }): Promise<{
  cluster: SmallCluster;
  primary: SmallServer;
  others: readonly SmallServer[];
}> {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [primary, ...others] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  await primary.files.write(FILE, requestOf(1), 0, BYTES);
  return { cluster, primary, others };
}

function roleOf(server: SmallServer): string | undefined {
  return server.host.loaded(FILE)?.role;
}

test('the chosen server becomes primary of a file in use without a request', async (t) => {
  const { cluster, primary, others } = await begun(t);
  await primary.idle.releaseAll(5_000);
  assert.equal(cluster.named.length, 1);
  const next = others.find((server) => roleOf(server) === 'active');
  assert.ok(next !== undefined, 'It was primary before the end of the earlier one continued');
  assert.deepEqual(cluster.named, [{ at: primary.id, file: FILE, successor: next.id }]);
  const { bytes } = await next.files.read(FILE, 0, BYTES.length);
  assert.deepEqual(Buffer.from(bytes), BYTES);
  assert.deepEqual(cluster.fatal, []);
});

test('all servers sync what would delay a promise while the file still has its primary', async (t) => {
  const { cluster, primary } = await begun(t);
  await primary.idle.releaseAll(5_000);
  const prepared = cluster.prepared.toSorted((one, other) => (one.at < other.at ? -1 : 1));
  assert.deepEqual(
    prepared,
    cluster.servers.map(({ id }) => ({ at: id, isLed: true })),
  );
});

test('a request at the successor before the lease is released waits, and is served', async (t) => {
  const { primary, others } = await begun(t);
  // The one that will be chosen, too: another might be faster.
  const successor = others[FILE % others.length] as SmallServer;
  const succeeded = successor.files.replicas.succeed(FILE, primary.id);
  const written = successor.files.write(FILE, requestOf(2), 0, Buffer.from('later'));
  await primary.idle.releaseAll(5_000);
  await succeeded;
  assert.equal((await written).primary, successor.id);
});

test('a primary that does not end after all stays primary, and the successor says so', async (t) => {
  const { primary, others } = await begun(t);
  const successor = others[0] as SmallServer;
  await assert.rejects(successor.files.replicas.succeed(FILE, primary.id), { code: 'not-primary' });
  await assert.rejects(successor.files.write(FILE, requestOf(2), 0, BYTES), { code: 'not-primary' });
  assert.equal(roleOf(primary), 'active');
  assert.equal((await primary.files.write(FILE, requestOf(2), 0, BYTES)).primary, primary.id);
});

test('an unused file is released without a successor', async (t) => {
  const { cluster, primary } = await begun(t);
  const driver = primary.host.loaded(FILE);
  assert.ok(driver !== null);
  driver.usedAtMs -= 60_000;
  await primary.idle.releaseAll(5_000);
  assert.deepEqual(cluster.named, []);
  assert.deepEqual(cluster.prepared, []);
});
