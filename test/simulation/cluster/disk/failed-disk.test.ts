/**
 * Goal: a server keeps what it can of its work though its disk fails, and no bytes are served that were not written.
 * Method: single faults of disks in simulated clusters.
 */
import '../guard.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../../../base/prng.ts';
import type { ClusterClient } from '../../../../client/cluster-client.ts';
import { SimulatedCluster } from '../simulated-cluster.ts';
import type { SimulatedServer } from '../simulated-server.ts';

const SHAPE = { servers: 3, clients: 0, mounts: 0, cache: 'leases', volumes: 1 } as const;
const BYTES = Buffer.from('written');

function using(seed: number, use: (cluster: SimulatedCluster) => Promise<void>): Promise<void> {
  return SimulatedCluster.use({ ...SHAPE, seed }, undefined, async (cluster) => {
    await cluster.start();
    await use(cluster);
    cluster.checkAll();
    assert.deepEqual(cluster.failures, []);
  });
}

async function inProgram(
  cluster: SimulatedCluster,
  run: (client: ClusterClient) => Promise<void>,
): Promise<void> {
  assert.equal(await cluster.program('program', run), null);
}

async function createFile(client: ClusterClient, name: string): Promise<number> {
  const place = { volume: 'vol1', path: `/${name}` };
  const { attributes } = await client.command({
    ...{ kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true },
  });
  return attributes.inode;
}

async function catalogPrimary(cluster: SimulatedCluster): Promise<SimulatedServer> {
  let id: string | null = null;
  await inProgram(cluster, async (client) => {
    id = (await client.status()).catalog.primary;
  });
  return cluster.servers.find((server) => server.id === id) as SimulatedServer;
}

test('a primary of the catalog whose disk fails for files orders commands further', async () => {
  await using(1, async (cluster) => {
    const primary = await catalogPrimary(cluster);
    await inProgram(cluster, async (client) => {
      const file = client.openFile(await createFile(client, 'first'));
      await file.write(0, BYTES);
      // Of all replicas, this one's sync fails, with which its store is over.
      primary.disk.failNext('sync', /objects/);
      await file.flush().catch(() => undefined);
      for (let index = 0; index < 5; index++) await createFile(client, `later-${index}`);
    });
    assert.ok(primary.disk.hasFailed);
    assert.ok(primary.runs);
  });
});

test('a bit that flips in a replica is never read, and the others have the bytes', async () => {
  await using(2, async (cluster) => {
    let inode = 0;
    await inProgram(cluster, async (client) => {
      inode = await createFile(client, 'file');
      const file = client.openFile(inode);
      await file.write(0, BYTES);
      await file.flush();
    });
    const [rotten] = cluster.servers as [SimulatedServer];
    for (let count = 0; count < 20; count++) rotten.disk.rotContainer(new Prng(count));
    // Nothing of it is in memory any more.
    rotten.kill();
    rotten.start();
    await cluster.time.run(cluster.time.nowMs + 5_000);
    for (const other of cluster.servers) if (other !== rotten) cluster.network.slow(other.id, 'reader', 200);
    await inProgram(cluster, async (client) => {
      const { bytes } = await client.openFile(inode).read(0, 100);
      assert.equal(Buffer.from(bytes).toString(), BYTES.toString());
    });
  });
});

test('a server that finds its database damaged begins anew, and gets all files', async () => {
  await using(3, async (cluster) => {
    let inode = 0;
    await inProgram(cluster, async (client) => {
      inode = await createFile(client, 'file');
      await client.openFile(inode).write(0, BYTES);
    });
    const [damaged] = cluster.servers as [SimulatedServer];
    damaged.kill();
    for (let count = 0; count < 10; count++) damaged.disk.rotDatabase(new Prng(count));
    damaged.rebuilds = true;
    damaged.start();
    await cluster.time.run(cluster.time.nowMs + 20_000);
    assert.ok(damaged.hasStarted);
    await inProgram(cluster, async (client) => {
      const { bytes } = await client.openFile(inode).read(0, 100);
      assert.equal(Buffer.from(bytes).toString(), BYTES.toString());
    });
  });
});
