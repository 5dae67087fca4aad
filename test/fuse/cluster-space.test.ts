/**
 * Goal: `df` and `fallocate` report no space that the servers would refuse to fill.
 * Method: the client library over servers whose answers the test sets.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { replicatedCapacity } from '../../fuse/cluster/replicated-capacity.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { FakeCluster } from '../client/fake-cluster.ts';

const MIB = 2 ** 20;
/** What a server reserves: bytes of a large disk, a share of a small one. */
const [RESERVE_BYTES, RESERVE_SHARE] = [64 * MIB, 1 / 8];

type Disk = Pick<ServerInfo, 'totalBytes' | 'freeBytes'>;

/**
 * @param heard the disks that the servers report now
 * @param listed what the catalog has recorded of these and further servers, in this order
 * @returns the space of a volume with two copies
 */
async function spaceOf(t: TestContext, heard: readonly Disk[], listed: readonly Partial<ServerInfo>[]) {
  const cluster = await FakeCluster.start(heard.length);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
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

test('free space excludes what servers reserve, and a full disk reduces no other', async (t) => {
  const large = { totalBytes: 10_000 * MIB, freeBytes: 1_064 * MIB };
  const small = { totalBytes: 80 * MIB, freeBytes: 30 * MIB };
  const full = { totalBytes: 1_000 * MIB, freeBytes: 10 * MIB };
  const { totalBytes, freeBytes } = await spaceOf(t, [large, large, small, full], [{}, {}, {}, {}]);
  const smallBytes = small.freeBytes - small.totalBytes * RESERVE_SHARE;
  assert.equal(freeBytes, (2 * (large.freeBytes - RESERVE_BYTES) + smallBytes) / 2);
  assert.equal(totalBytes, (2 * large.totalBytes + small.totalBytes + full.totalBytes) / 2);
});

test('a silent server counts with its last report, and one in state out does not count', async (t) => {
  const disk = { totalBytes: 1_000 * MIB, freeBytes: 264 * MIB };
  const silent = { totalBytes: 1_000 * MIB, freeBytes: 464 * MIB };
  const listed = [{ ...disk, freeBytes: 0 }, silent, { ...silent, state: 'out' as const }];
  const { totalBytes, freeBytes } = await spaceOf(t, [disk], listed);
  assert.deepEqual([totalBytes, freeBytes], [1_000 * MIB, 200 * MIB]);
});

/**
 * Disks, as bytes and number of servers on each; and the bytes that fit if there are three copies and a write waits
 * for two.
 */
const ROOM: readonly (readonly [
  disks: readonly (readonly [bytes: number, servers: number])[],
  bytes: number,
])[] = [
  [[], 0],
  [[[90, 1]], 90],
  [[[90, 2]], 45],
  [[[90, 3]], 30],
  [
    [
      [90, 1],
      [60, 1],
    ],
    60,
  ],
  [
    [
      [90, 1],
      [90, 1],
      [90, 1],
    ],
    90,
  ],
  // A replica without free space lags.
  [
    [
      [100, 1],
      [100, 1],
      [10, 1],
    ],
    100,
  ],
  [
    [
      [100, 1],
      [80, 1],
      [0, 1],
    ],
    80,
  ],
  [
    [
      [100, 1],
      [0, 1],
      [0, 1],
    ],
    0,
  ],
  [
    [
      [100, 1],
      [100, 1],
      [100, 1],
      [100, 1],
      [100, 1],
    ],
    166,
  ],
  // The largest disk has one copy of everything; its other bytes are of no use.
  [
    [
      [900, 1],
      [50, 1],
      [50, 1],
      [50, 1],
    ],
    75,
  ],
  [
    [
      [900, 1],
      [900, 1],
      [50, 1],
      [50, 1],
    ],
    900,
  ],
  [
    [
      [120, 2],
      [50, 1],
      [50, 1],
    ],
    73,
  ],
];

test('the capacity is what all copies can store, or as many as a write waits for', () => {
  for (const [disks, bytes] of ROOM) {
    const given = disks.map(([size, servers]) => ({ bytes: size, servers }));
    assert.equal(replicatedCapacity(given, 3, 2), bytes, JSON.stringify(disks));
    // The order of disks does not matter.
    assert.equal(replicatedCapacity(given.toReversed(), 3, 2), bytes, JSON.stringify(disks));
  }
  const disks = [100, 100, 10].map((bytes) => ({ bytes, servers: 1 }));
  assert.equal(
    replicatedCapacity(disks, 3, 3),
    10,
    'If a write waits for all copies, the smallest disk decides',
  );
  assert.equal(replicatedCapacity(disks, 2, 2), 105);
  assert.equal(replicatedCapacity(disks, 1, 1), 210);
});
