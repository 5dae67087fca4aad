import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Goal: df reports how much can be stored, where each byte needs space for each of its replicas. */

const GIB = 2 ** 30;
/** What a server reserves of a disk of this size. */
const RESERVE = 64 * 2 ** 20;

interface Server {
  readonly id: string;
  readonly freeBytes: number;
  readonly disk?: string;
  readonly isSilent?: boolean;
}

/** @param rounds the servers' answers to each query */
function spaces(...rounds: (readonly Server[])[]) {
  let round = -1;
  const now = () => rounds[round] ?? [];
  const query = async ({ kind }: { readonly kind: string }) => {
    if (kind === 'volume') {
      round++;
      return {
        volume: { replicas: 3, quotaBytes: 0, quotaInodes: 0, namedBytes: 0, namedInodes: 0, inodes: 0 },
      };
    }
    // What the servers reported last, which may be older.
    return {
      servers: now().map(({ id, freeBytes }) => ({ id, state: 'in', totalBytes: 30 * GIB, freeBytes })),
    };
  };
  const status = async () => ({
    servers: now().map(({ id, freeBytes, disk, isSilent = false }) => {
      if (isSilent) return { id, totalBytes: 0, freeBytes: 0 };
      return { id, totalBytes: 30 * GIB, freeBytes, ...(disk === undefined ? {} : { disk }) };
    }),
  });
  const backend = clusterBackend({ world: systemWorld, query, status } as unknown as ClusterClient, 'main');
  return async () => {
    const { totalBytes, freeBytes } = await backend.space();
    return [totalBytes, freeBytes];
  };
}

test('on servers with separate disks each replica has the space of one disk', async () => {
  const servers = ['s1', 's2', 's3'].map((id) => ({ id, freeBytes: 15 * GIB }));
  const alone = await spaces(servers)();
  assert.deepEqual(alone, [30 * GIB, 15 * GIB - RESERVE]);
  const said = await spaces(servers.map((server) => ({ ...server, disk: `disk of ${server.id}` })))();
  assert.deepEqual(said, alone);
});

test('the space of a shared disk counts once, also while one of its servers is silent', async () => {
  const one = { id: 's1', freeBytes: 15 * GIB, disk: 'a' };
  const other = { id: 's2', freeBytes: 12 * GIB, disk: 'a' };
  const own = { id: 's3', freeBytes: 9 * GIB, disk: 'b' };
  const space = spaces([one, other, own], [one, { ...other, isSilent: true }, own]);
  // Each byte is stored twice on the shared disk.
  const both = [15 * GIB, (12 * GIB - RESERVE) / 2];
  assert.deepEqual(await space(), both);
  assert.deepEqual(await space(), both);
});
