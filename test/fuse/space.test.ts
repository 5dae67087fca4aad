import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { CallParts } from '../../fuse/calls/call-parts.ts';
import { SpaceCalls } from '../../fuse/calls/space-calls.ts';
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

/** Quotas of directories that an inode counts against, and the volume's. */
async function spaceWithin(inode: number | undefined, ...quotas: readonly object[]) {
  const none = { quotaBytes: 0, quotaInodes: 0, namedBytes: 0, namedInodes: 0 };
  const query = async ({ kind }: { readonly kind: string }) => {
    if (kind === 'volume')
      return { volume: { ...none, replicas: 3, quotaBytes: 8 * GIB, namedBytes: GIB, inodes: 5 } };
    if (kind === 'quotas-of' && quotas.length === 0) throw new ServiceError('not-found', 'No inode');
    if (kind === 'quotas-of') return { quotas: quotas.map((quota) => ({ ...none, ...quota })) };
    return { servers: [{ id: 's1', state: 'in', totalBytes: 30 * GIB, freeBytes: 20 * GIB }] };
  };
  const status = async () => ({ servers: [{ id: 's1', totalBytes: 30 * GIB, freeBytes: 20 * GIB }] });
  const client = { world: systemWorld, query, status } as unknown as ClusterClient;
  return clusterBackend(client, 'main').space(inode);
}

test('space in a directory is what is left of the quota that has the least', async () => {
  const outer = { quotaBytes: 4 * GIB, namedBytes: 3 * GIB, quotaInodes: 9, namedInodes: 4 };
  const inner = { quotaBytes: 2 * GIB, namedBytes: GIB / 2, quotaInodes: 100, namedInodes: 3 };
  const inVolume = await spaceWithin(undefined, inner, outer);
  assert.deepEqual(inVolume, { totalBytes: 8 * GIB, freeBytes: 7 * GIB, isQuota: true, inodes: 5 });
  const both = { totalBytes: 2 * GIB, freeBytes: GIB, isQuota: true, inodes: 4, freeInodes: 5 };
  assert.deepEqual(await spaceWithin(7, inner, outer), both);
  assert.deepEqual(await spaceWithin(8), inVolume, 'A file that is not created yet');
  const { freeBytes } = await spaceWithin(7, { ...inner, namedBytes: 3 * GIB });
  assert.equal(freeBytes, 0, 'A quota that was lowered may be exceeded');
});

test('df shows the quota of the directory that a path is in, and otherwise that of the volume', async () => {
  const asked: (number | undefined)[] = [];
  const quotas = new Map([
    [5, 4],
    [6, 4],
  ]);
  const parts = {
    ...{ world: systemWorld, limitMs: 60_000, log: () => undefined },
    backend: {
      space: async (inode?: number) => {
        asked.push(inode);
        return { totalBytes: inode ?? 1_000, freeBytes: 1, inodes: 1 };
      },
    },
    files: { freeSpace: { update: () => undefined } },
    inodes: {
      attributes: async (inode: number) => {
        if (inode === 7) throw new Error('It was removed');
        return { inode, ...(quotas.has(inode) ? { quota: quotas.get(inode) } : {}) };
      },
    },
  };
  const calls = new SpaceCalls(parts as unknown as CallParts);
  const sizes = [];
  for (const inode of [1, 5, 6, 2, 7]) sizes.push((await calls.space(inode)).totalBytes);
  assert.deepEqual(sizes, [1_000, 4, 4, 1_000, 1_000]);
  assert.deepEqual(asked, [undefined, 4], 'Each is asked for once in five seconds');
});
