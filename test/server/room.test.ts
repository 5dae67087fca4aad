import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FreeSpace } from '../../server/file/free-space.ts';
import type { FileStore, StoreSpace } from '../../server/storage/store.ts';

const GIB = 2 ** 30;

/** The free space of a disk whose fill and clock the test sets. */
function roomOf(space: { totalBytes: number; freeBytes: number }): {
  room: FreeSpace;
  clock: { nowMs: number };
} {
  const clock = { nowMs: 0 };
  const store = { space: async (): Promise<StoreSpace> => ({ ...space }) } as unknown as FileStore;
  return { room: new FreeSpace(store, () => clock.nowMs), clock };
}

test('a nearly full disk refuses writes, and accepts them again once there is free space', async () => {
  const space = { totalBytes: 100 * GIB, freeBytes: 50 * GIB };
  const { room, clock } = roomOf(space);
  await room.assertFree(100);
  space.freeBytes = 1_000_000;
  clock.nowMs += 1_000;
  await assert.rejects(room.assertFree(100), { code: 'no-space' });
  space.freeBytes = 50 * GIB;
  await room.assertFree(100);
});

test('a write of much of the free space measures the disk at once, others soon', async () => {
  const space = { totalBytes: 100 * GIB, freeBytes: GIB };
  const { room, clock } = roomOf(space);
  await room.assertFree(100);
  space.freeBytes = 0;
  for (let count = 0; count < 14; count++) await room.assertFree(1_000_000);
  await assert.rejects(room.assertFree(4_000_000), { code: 'no-space' });
  space.freeBytes = 50 * GIB;
  await room.assertFree(100);
  space.freeBytes = 0;
  clock.nowMs += 1_000;
  await assert.rejects(room.assertFree(1), { code: 'no-space' });
});

test('a small disk keeps a share of itself free, and no more than it has', async () => {
  const { room } = roomOf({ totalBytes: 64 * 2 ** 20, freeBytes: 20 * 2 ** 20 });
  await room.assertFree(4 * 2 ** 20);
  await assert.rejects(room.assertFree(16 * 2 ** 20), { code: 'no-space' });
});
