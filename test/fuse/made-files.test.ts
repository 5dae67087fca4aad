import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/**
 * Each path is looked up from the root: cached attributes of a directory must stay valid while files are created in
 * it.
 */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };
const FLAGS = constants.O_WRONLY | constants.O_CREAT;

class CountingBackend extends MemoryBackend {
  readonly lookups: string[] = [];

  override lookup(parent: number, name: string): ReturnType<MemoryBackend['lookup']> {
    this.lookups.push(name);
    return super.lookup(parent, name);
  }
}

/** A mount that caches for a minute, and the inode of a directory `d` in it. */
async function started(t: TestContext) {
  const backend = new CountingBackend();
  await backend.start();
  const { inode } = await backend.makeDirectory(ROOT, 'd', 0o755, ROOT_USER);
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined, {
    cache: new MetadataCache(systemWorld, 60_000),
  });
  t.after(() => fileSystem.stop());
  return { backend, fileSystem, inode };
}

test('a directory is looked up once for many files that are created in it, and has their times', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  for (const name of ['a', 'b', 'c']) {
    const directory = await fileSystem.lookup(ROOT, 'd');
    assert.equal(directory.inode, inode);
    const { handle, attributes } = await fileSystem.create(inode, name, 0o644, FLAGS, ROOT_USER);
    await fileSystem.release(handle);
    const { modifiedNs, changedNs } = await fileSystem.lookup(ROOT, 'd');
    assert.deepEqual([modifiedNs, changedNs], [attributes.changedNs, attributes.changedNs]);
  }
  assert.deepEqual(backend.lookups, ['d']);
});

test('a directory is looked up again after a creation that failed, or found the name', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  await backend.createFile(inode, 'f', 0o644, ROOT_USER, true);
  await fileSystem.lookup(ROOT, 'd');
  const { handle } = await fileSystem.create(inode, 'f', 0o644, FLAGS, ROOT_USER);
  await fileSystem.release(handle);
  await fileSystem.lookup(ROOT, 'd');
  await assert.rejects(fileSystem.create(inode, 'f', 0o644, FLAGS | constants.O_EXCL, ROOT_USER));
  await fileSystem.lookup(ROOT, 'd');
  assert.deepEqual(backend.lookups, ['d', 'd', 'd']);
});

test('a file that is created for reading is not writable by its handle, and is settled at its close', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  const flags = constants.O_RDONLY | constants.O_CREAT;
  const { handle, attributes } = await fileSystem.create(inode, 'f', 0o644, flags, ROOT_USER);
  assert.equal(fileSystem.isOpenForWriting(attributes.inode), false);
  await assert.rejects(fileSystem.write(handle, 0, Buffer.from('x'), ROOT_USER), /not open for writing/);
  assert.equal((await backend.attributes(attributes.inode)).live, true);
  await fileSystem.release(handle);
  await fileSystem.stop();
  assert.equal((await backend.attributes(attributes.inode)).live, false);
});
