import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { RealCluster } from './real-cluster.ts';

/**
 * Goal: a server whose process is stopped keeps its connections open, and delays no request for longer than a failover.
 * Method: real servers; one attempt may take longer than the whole operation, so that a client which only waits for its
 * answer never gets one.
 */
const OPERATION_MS = 60_000;
const PATIENT = { attemptMs: 2 * OPERATION_MS } as const;
const LEASE_MS = 2_000;

const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms` });
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({
  world: systemWorld,
  servers: cluster.urls,
  operationTimeoutMs: OPERATION_MS,
});
after(() => client.close());

async function createFile(path: string): Promise<number> {
  const place = { volume: 'main', path };
  const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  return (await client.command(command, PATIENT)).attributes.inode;
}

for (const many of [false, true]) {
  const calls = many ? 'a hundred reads and writes' : 'a read and a write';
  test(`${calls} of a file whose primary is stopped`, async (t) => {
    const path = many ? '/many' : '/one';
    const file = client.openFile(await createFile(path));
    const count = many ? 50 : 1;
    await file.write(0, Buffer.alloc(count, 'a'), PATIENT);
    await file.read(0, count, PATIENT);
    const stopped = await cluster.primaryOf(`main${path}`);
    assert.equal(file.primary, stopped, 'The client asks the primary first');
    cluster.signal(stopped, 'SIGSTOP');
    const beganMs = performance.now();
    const took = async (call: Promise<unknown>): Promise<number> => {
      await call;
      return performance.now() - beganMs;
    };
    const calledMs = await Promise.all(
      Array.from({ length: count }, (_, at) => [
        took(file.read(at, 1, PATIENT)),
        took(file.write(at, Buffer.from('b'), PATIENT)),
      ]).flat(),
    );
    t.diagnostic(`longest call after SIGSTOP: ${Math.round(Math.max(...calledMs))} ms, lease ${LEASE_MS} ms`);
    assert.notEqual(file.primary, stopped, 'Another server has taken over');
    cluster.signal(stopped, 'SIGCONT');
    await cluster.current(`main${path}`);
    const { bytes, sizeBytes } = await file.read(0, count, PATIENT);
    assert.equal(Buffer.from(bytes).toString(), 'b'.repeat(count));
    assert.equal(sizeBytes, count);
  });
}

test('a file is created while the primary of the catalog is stopped, and only once', async (t) => {
  await createFile('/before');
  const { primary: stopped } = (await cluster.status('s1')).catalog;
  assert.ok(stopped !== null);
  cluster.signal(stopped, 'SIGSTOP');
  const beganMs = performance.now();
  // With `exclusive`: a second execution would fail.
  const created = await createFile('/during');
  t.diagnostic(`created after ${Math.round(performance.now() - beganMs)} ms, lease ${LEASE_MS} ms`);
  cluster.signal(stopped, 'SIGCONT');
  await cluster.ready();
  assert.equal((await client.resolve('main', '/during')).inode, created);
});
