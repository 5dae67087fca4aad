import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion } from '../../fuse/backend.ts';
import { ErrnoError } from '../../fuse/errno.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/** Goal: errors of writes that have returned before: which calls of which descriptors return them. */

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

test('the close of a copied descriptor does not take the error from the writer', async (t) => {
  const { backend, fileSystem, open } = await opened(t);
  const handle = await open();
  backend.disturb({ writesFail: 'no-space' });
  await fileSystem.write(handle, 0, BYTES, USER);
  // A child process closes its copies before it runs another program.
  await assert.rejects(fileSystem.flush(handle), noSpace);
  await assert.rejects(fileSystem.write(handle, 4, BYTES, USER), noSpace);
  await assert.rejects(fileSystem.flush(handle), noSpace);
  backend.disturb({ writesFail: null });
  await assert.rejects(fileSystem.persist(handle), noSpace);
  await fileSystem.persist(handle);
  await fileSystem.write(handle, 0, BYTES, USER);
  await fileSystem.flush(handle);
});

test('a descriptor that is opened later returns no earlier error, and one that was open does', async (t) => {
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

test('an open passes the version of the file to the cluster’s file', async (t) => {
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

test('with flush_behind the next fsync of the root returns an error that no close returned, once', async (t) => {
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

test('an error that fsync of the root returns is not returned again because of a close meanwhile', async (t) => {
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

test('an error that fsync of the root returns is not returned again because of a later close', async (t) => {
  const { backend, fileSystem, open } = await opened(t, new MemoryBackend(), true);
  const handle = await open();
  backend.disturb({ writesFail: 'internal' });
  await fileSystem.write(handle, 0, BYTES, USER);
  await assert.rejects(fileSystem.persistDirectory(ROOT), { code: 'internal' });
  await fileSystem.release(handle);
  await fileSystem.persistDirectory(ROOT);
});

test('an error that no program has seen is returned by fsync of a descriptor that is opened later, once', async (t) => {
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

test('fsync of the root returns an error of a file to each descriptor of the root that was open, once', async (t) => {
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

test('fsync of a file that the cluster has lost fails with EIO', async (t) => {
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
