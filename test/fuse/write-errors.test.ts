import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion } from '../../fuse/backend.ts';
import { ErrnoError } from '../../fuse/errno.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/** Writes that were answered and then did not arrive: who is told of it, and when. */

const ROOT = 1;
const LIMIT_MS = 5_000;
const USER = { uid: 0, gid: 0 };
const BYTES = Buffer.from('lost');

const noSpace = (error: unknown): boolean => error instanceof ServiceError && error.code === 'no-space';

async function opened(t: TestContext, backend = new MemoryBackend(), flushBehind = false) {
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined, { flushBehind });
  t.after(() => fileSystem.stop());
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, USER, true);
  const open = async () => (await fileSystem.open(attributes.inode, constants.O_RDWR, USER)).handle;
  return { backend, fileSystem, open };
}

test('a copy of a descriptor that is closed takes no error away from whoever wrote', async (t) => {
  const { backend, fileSystem, open } = await opened(t);
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  // A child that is about to run another program closes all that it does not hand on.
  await assert.rejects(fileSystem.flush(handle), noSpace);
  await assert.rejects(fileSystem.write(handle, 4, BYTES, USER), noSpace);
  await assert.rejects(fileSystem.flush(handle), noSpace);
  backend.disturb({ writesFail: null });
  await assert.rejects(fileSystem.persist(handle), noSpace);
  await fileSystem.persist(handle);
  await fileSystem.write(handle, 0, BYTES, USER);
  await fileSystem.flush(handle);
});

test('what is opened afterwards knows nothing of it, and what was open does', async (t) => {
  const { backend, fileSystem, open } = await opened(t);
  const [writer, other] = [await open(), await open()];
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(writer, 0, BYTES, USER);
  await assert.rejects(fileSystem.persist(writer), noSpace);
  backend.disturb({ writesFail: null });
  const later = await open();
  await fileSystem.flush(later);
  await fileSystem.flush(writer);
  await assert.rejects(fileSystem.flush(other), noSpace);
});

test('the cluster is told how new a file was when it was opened', async (t) => {
  const told: ContentVersion[] = [];
  class Watched extends MemoryBackend {
    override openFile(inode: number, _replicas?: readonly string[], contents?: ContentVersion) {
      if (contents !== undefined) told.push(contents);
      return super.openFile(inode);
    }
  }
  const { backend, open } = await opened(t, new Watched());
  backend.writeFromElsewhere('f', 'something');
  await open();
  assert.deepEqual(told, [(await backend.lookup(ROOT, 'f')).contents]);
  assert.ok((told[0]?.seq ?? 0) > 0);
});

test('what a close that waits for nothing did not tell is told by the next fsync of the root, once', async (t) => {
  const { backend, fileSystem, open } = await opened(t, new MemoryBackend(), true);
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  await fileSystem.flush(handle);
  await fileSystem.release(handle);
  backend.disturb({ writesFail: null });
  await assert.rejects(fileSystem.persistDirectory(ROOT), noSpace);
  await fileSystem.persistDirectory(ROOT);
});

test('what a sync of all has told, whoever closes afterwards does not leave to the next one', async (t) => {
  const { backend, fileSystem, open } = await opened(t, new MemoryBackend(), true);
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  const [persisted] = await Promise.allSettled([
    fileSystem.persistDirectory(ROOT),
    fileSystem.release(handle),
  ]);
  assert.equal(persisted.status, 'rejected');
  await fileSystem.persistDirectory(ROOT);
});

test('what a sync of all has told is not left to the next one by whoever closes later', async (t) => {
  const { backend, fileSystem, open } = await opened(t, new MemoryBackend(), true);
  const handle = await open();
  backend.disturb({ writesFail: 'internal' });
  await fileSystem.write(handle, 0, BYTES, USER);
  await assert.rejects(fileSystem.persistDirectory(ROOT), { code: 'internal' });
  await fileSystem.release(handle);
  await fileSystem.persistDirectory(ROOT);
});

test('an error of which no program has learned is returned by fsync of a descriptor that is opened later, once', async (t) => {
  const { backend, fileSystem, open } = await opened(t, new MemoryBackend(), true);
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  await fileSystem.flush(handle);
  await fileSystem.release(handle);
  backend.disturb({ writesFail: null });
  const later = await open();
  await fileSystem.write(later, 0, BYTES, USER);
  await assert.rejects(fileSystem.persist(later), noSpace);
  await fileSystem.persist(later);
  await fileSystem.persist(await open());
});

test('a sync of all returns an error of a file to each descriptor of the root that was open, once', async (t) => {
  const { backend, fileSystem, open } = await opened(t);
  const [first, second] = [await fileSystem.openDirectory(ROOT), await fileSystem.openDirectory(ROOT)];
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  await assert.rejects(fileSystem.persist(handle), noSpace);
  backend.disturb({ writesFail: null });
  for (const root of [first, second]) {
    await assert.rejects(fileSystem.persistDirectory(ROOT, root), noSpace);
    await fileSystem.persistDirectory(ROOT, root);
  }
  await fileSystem.persistDirectory(ROOT, await fileSystem.openDirectory(ROOT));
});

test('a sync of a file that the cluster has lost fails as one of a disk', async (t) => {
  class Losing extends MemoryBackend {
    override openFile(inode: number) {
      const file = super.openFile(inode);
      const flush = () => Promise.reject(new ServiceError('not-found', `There is no inode ${inode}`));
      return { ...file, flush };
    }
  }
  const { fileSystem, open } = await opened(t, new Losing());
  const isEio = (error: unknown): boolean => error instanceof ErrnoError && error.errno === 'EIO';
  await assert.rejects(fileSystem.persist(await open()), isEio);
});
