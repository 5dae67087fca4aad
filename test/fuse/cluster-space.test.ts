/** Goal: `df` and `fallocate` promise no room that the servers would refuse to fill. Method: the client library over servers that answer as the test says. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ClusterClient } from '../../client/cluster-client.ts';
import { clusterBackend } from '../../fuse/cluster-backend.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { FakeCluster } from '../client/fake-cluster.ts';

const MIB = 2 ** 20;
/** What a server keeps for itself of a disk that is not small, and of a small one. */
const [RESERVE_BYTES, RESERVE_SHARE] = [64 * MIB, 1 / 8];

type Disk = Pick<ServerInfo, 'totalBytes' | 'freeBytes'>;

/**
 * @param heard what servers say of their disks now
 * @param listed what the catalog knows of these, and of others, in this order
 * @returns what there is for a volume of two copies
 */
async function spaceOf(t: TestContext, heard: readonly Disk[], listed: readonly Partial<ServerInfo>[]) {
  const cluster = await FakeCluster.start(heard.length);
  const client = new ClusterClient({ servers: cluster.urls });
  t.after(async () => {
    await client.close();
    await cluster.stop();
  });
  for (const [place, disk] of heard.entries()) cluster.server(place).room = disk;
  cluster.listed = listed.map((one, place) => ({
    ...{ id: `s${place + 1}`, url: cluster.urls[place] ?? 'http://127.0.0.1:1', zone: '', state: 'in' },
    ...{ storageId: '', bornAt: 1, registeredNs: '1', totalBytes: 0, freeBytes: 0, ...one },
  }));
  await client.command({ kind: 'volume-create', name: 'v', replicas: 2, objectBytes: 131_072, mode: 0o755 });
  return clusterBackend(client, 'v').space();
}

test('what servers keep for themselves is no room, on a small disk neither, and a disk that is full takes none from others', async (t) => {
  const large = { totalBytes: 10_000 * MIB, freeBytes: 1_064 * MIB };
  const small = { totalBytes: 80 * MIB, freeBytes: 30 * MIB };
  const full = { totalBytes: 1_000 * MIB, freeBytes: 10 * MIB };
  const { totalBytes, freeBytes } = await spaceOf(t, [large, small, full], [{}, {}, {}]);
  const smallBytes = small.freeBytes - small.totalBytes * RESERVE_SHARE;
  assert.equal(freeBytes, (large.freeBytes - RESERVE_BYTES + smallBytes) / 2);
  assert.equal(totalBytes, (large.totalBytes + small.totalBytes + full.totalBytes) / 2);
});

test('a server that is silent counts with what it said last, and one that is out does not', async (t) => {
  const disk = { totalBytes: 1_000 * MIB, freeBytes: 264 * MIB };
  const silent = { totalBytes: 1_000 * MIB, freeBytes: 464 * MIB };
  const listed = [{ ...disk, freeBytes: 0 }, silent, { ...silent, state: 'out' as const }];
  const { totalBytes, freeBytes } = await spaceOf(t, [disk], listed);
  assert.deepEqual([totalBytes, freeBytes], [1_000 * MIB, (200 * MIB + 400 * MIB) / 2]);
});
