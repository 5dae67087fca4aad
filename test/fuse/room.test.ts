import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { Space } from '../../fuse/backend.ts';
import { FreeSpace } from '../../fuse/contents/free-space.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

/** Goal: when space may be short, the write itself returns ENOSPC, as most programs check nothing else. */

const ROOT = 1;
const USER = { uid: 0, gid: 0 };
const FLAGS = constants.O_RDWR | constants.O_CREAT;
const BYTES = Buffer.from('bytes');
const MIB = 1024 * 1024;

const code = (wanted: string) => (error: unknown) => error instanceof ServiceError && error.code === wanted;
const refusal = new ServiceError('no-space', 'Refused by intent');
const spaceOf = (freeBytes: number, more: Partial<Space> = {}): Space => ({
  ...{ totalBytes: 1024 * MIB, freeBytes, inodes: 0 },
  ...more,
});

async function started(t: TestContext, freeBytes = 1024 * MIB) {
  const memory = new MemoryBackend();
  memory.space = async () => spaceOf(freeBytes);
  const births = new MemoryBirths(memory);
  const state = births.state(systemWorld, 1_000);
  const backend = withPendingNames(systemWorld, births.backend, births, state, () => undefined);
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined, state);
  t.after(async () => {
    await fileSystem.stop();
    await backend.stop();
  });
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  const create = (name: string) => fileSystem.create(directory, name, 0o640, FLAGS, USER);
  const write = (handle: number) => fileSystem.write(handle, 0, BYTES, USER);
  const close = (handle: number) => fileSystem.flush(handle).finally(() => fileSystem.release(handle));
  // The first file is created at the cluster, so that the directory gets delegated.
  const { handle } = await create('first');
  await close(handle);
  // Reserved numbers arrive.
  await turn();
  return { memory, births, fileSystem, directory, create, write, close };
}

test('after a close was refused with ENOSPC, the next write is refused', async (t) => {
  const { memory, births, create, write, close } = await started(t);
  births.fate = 'unborn';
  memory.disturb({ writesFail: 'no-space' });
  const gathered = await create('gathered');
  assert.equal(await write(gathered.handle), BYTES.length);
  await assert.rejects(close(gathered.handle), code('no-space'));
  const told = await create('told');
  await assert.rejects(write(told.handle), code('no-space'));
  memory.disturb({ writesFail: null });
  const later = await create('later');
  const { write: before = 0 } = memory.calls;
  await write(later.handle);
  assert.equal(memory.calls.write, before + 1, 'The bytes are at the cluster when the write returns');
  await close(later.handle);
});

test('while files are refused, a create returns the error, and its name is free', async (t) => {
  const { births, fileSystem, directory, create, write, close } = await started(t);
  births.fate = 'refused';
  const gathered = await create('gathered');
  await write(gathered.handle);
  await assert.rejects(close(gathered.handle), code('quota-exceeded'));
  await assert.rejects(create('told'), code('quota-exceeded'));
  await assert.rejects(fileSystem.lookup(directory, 'told'), code('not-found'));
  births.fate = 'born';
  await close((await create('told')).handle);
});

test('free space that the cluster reports as 0 counts, too', async (t) => {
  const { births, fileSystem, create, close } = await started(t, 0);
  await fileSystem.space(ROOT);
  const requests = births.requests.length;
  const { handle } = await create('f');
  assert.equal(births.requests.length, requests + 1, 'The file is at the cluster when the create returns');
  await close(handle);
});

test('space is no longer short when the cluster reports enough, and no write was refused for a while', () => {
  const room = new FreeSpace(systemWorld, async () => spaceOf(0), 0);
  room.update(spaceOf(MIB));
  assert.equal(room.isShort, false, 'Little is enough for a mount without a refusal');
  room.failed(new ServiceError('sealed', 'Not an error of space'));
  assert.equal(room.isShort, false);
  room.failed(refusal);
  assert.equal(room.isShort, true);
  room.update(spaceOf(MIB));
  assert.equal(room.isShort, true, 'Too little for the bytes that the mount may buffer');
  room.update(spaceOf(0, { totalBytes: 0 }));
  assert.equal(room.isShort, true, 'The free space is not known');
  room.update(spaceOf(100 * MIB));
  assert.equal(room.isShort, false);
  room.update(spaceOf(0, { totalBytes: 0 }));
  assert.equal(room.isShort, false, 'The free space is not known');
  room.update(spaceOf(100 * MIB, { freeInodes: 0 }));
  assert.equal(room.isShort, true);
  room.update(spaceOf(2 * MIB, { totalBytes: 10 * MIB }));
  assert.equal(room.isShort, false, 'Much of a small volume is free');
  const held = new FreeSpace(systemWorld, async () => spaceOf(0));
  held.failed(refusal);
  held.update(spaceOf(100 * MIB));
  assert.equal(held.isShort, true, 'Other servers may have the free space than those of the next file');
});

test('while space is short a write queries it, and not each write does', async () => {
  let asked = 0;
  const room = new FreeSpace(
    systemWorld,
    async () => {
      asked++;
      return spaceOf(100 * MIB);
    },
    0,
  );
  assert.equal(room.isShort, false);
  assert.equal(asked, 0);
  room.failed(refusal);
  assert.equal(room.isShort, true);
  await turn();
  assert.equal(room.isShort, false);
  room.failed(refusal);
  assert.equal(room.isShort, true);
  assert.equal(asked, 1);
});

test('while the query of space fails, the last known state stays', async () => {
  let asked = 0;
  const room = new FreeSpace(
    systemWorld,
    async () => {
      asked++;
      throw new ServiceError('no-majority', 'Nobody answers');
    },
    0,
  );
  room.failed(refusal);
  assert.equal(room.isShort, true);
  await turn();
  assert.equal(room.isShort, true);
  assert.equal(asked, 1);
});
