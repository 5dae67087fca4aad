/**
 * Goal: a mount finds by inode number what is in its volume, and nothing else. Method: a client whose answers the test
 * sets.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Inode 7 is the file `/d/f` of the volume `v`. */
const client = {
  world: systemWorld,
  query: async ({ kind }: { readonly kind: string }) =>
    kind === 'paths'
      ? { paths: [{ inode: 7, volume: 'v', path: '/d/f' }] }
      : { attributes: { inode: 7, volume: 'v' } },
  resolve: async (volume: string, path: string) => ({ volume, path }),
} as unknown as ClusterClient;

test('a mount of a whole volume finds an inode of it by number; a mount of a part or a snapshot refuses', async () => {
  const [whole, other] = ['v', 'w'].map((name) => clusterBackend(client, name));
  assert.equal((await whole?.byNumber(7, 'self'))?.inode, 7);
  assert.deepEqual(await whole?.byNumber(7, 'parent'), { volume: 'v', path: '/d' });
  for (const which of ['self', 'parent'] as const)
    await assert.rejects(async () => other?.byNumber(7, which), { code: 'not-found' });
  for (const [volume, path] of [
    ['v', '/d'],
    ['v@monday', '/'],
  ] as const) {
    const part = clusterBackend(client, volume, path);
    assert.equal(part.findsNumbers, false);
    await assert.rejects(part.byNumber(7, 'self'), { code: 'not-found' });
  }
});
