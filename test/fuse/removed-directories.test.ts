/**
 * Goal: an open directory that lost its name has no links and no entries, and shows attributes that are set on it; one
 * that is not open is looked up again.
 * Method: the calls of the kernel, over a cluster in memory.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import type { FileSystem } from '../../fuse/volume.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

const ROOT = 1;
const USER = { uid: 7, gid: 8 };
const ALL = 100;

async function started(t: TestContext) {
  const backend = new MemoryBackend();
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined, {
    cache: new MetadataCache(systemWorld, 0),
  });
  t.after(() => fileSystem.stop());
  const { inode } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  await fileSystem.makeDirectory(ROOT, 'e', 0o755, USER);
  await fileSystem.lookup(ROOT, 'd');
  return { backend, fileSystem, inode };
}

async function assertGone(fileSystem: FileSystem, inode: number, handle: number): Promise<void> {
  assert.equal((await fileSystem.attributes(inode)).links, 0);
  assert.deepEqual((await fileSystem.readDirectory(handle, 0, ALL)).entries, []);
  const changed = await fileSystem.setAttributes(inode, {
    mode: 0o40700,
    modified: { kind: 'time', ns: 5n },
  });
  assert.deepEqual([changed.mode, changed.modifiedNs, changed.links], [0o700, '5', 0]);
  assert.equal((await fileSystem.attributes(inode)).mode, 0o700);
}

test('an open directory that is replaced by rename has no links and no entries, and can be changed', async (t) => {
  const { fileSystem, inode } = await started(t);
  const handle = await fileSystem.openDirectory(inode);
  await fileSystem.rename({ parent: ROOT, name: 'e' }, { parent: ROOT, name: 'd' }, 0, USER.uid);
  await assertGone(fileSystem, inode, handle);
});

test('an open directory that another mount removes has no links and no entries, and can be changed', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  const handle = await fileSystem.openDirectory(inode);
  await backend.removeDirectory(ROOT, 'd');
  await assertGone(fileSystem, inode, handle);
});

test('an open directory that this mount removes has no links and no entries, and can be changed', async (t) => {
  const { fileSystem, inode } = await started(t);
  const handle = await fileSystem.openDirectory(inode);
  await fileSystem.removeDirectory(ROOT, 'd');
  await assertGone(fileSystem, inode, handle);
});

test('a directory that another mount has renamed keeps its entries when its earlier name is removed', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  await backend.rename({ parent: ROOT, name: 'd' }, { parent: ROOT, name: 'z' }, 'no-replace');
  await backend.makeDirectory(ROOT, 'd', 0o755, USER);
  await backend.makeDirectory(inode, 'inside', 0o755, USER);
  await fileSystem.removeDirectory(ROOT, 'd');
  assert.equal((await fileSystem.attributes(inode)).links, 3);
  const handle = await fileSystem.openDirectory(inode);
  const { entries } = await fileSystem.readDirectory(handle, 0, ALL);
  assert.deepEqual(
    entries.map(({ name }) => name).filter((name) => !name.startsWith('.')),
    ['inside'],
  );
  await fileSystem.setAttributes(inode, { mode: 0o40700 });
  assert.equal((await backend.attributes(inode)).mode, 0o700);
});

test('a directory that another mount removes and that is not open is looked up again', async (t) => {
  const { backend, fileSystem, inode } = await started(t);
  await backend.removeDirectory(ROOT, 'd');
  await assert.rejects(fileSystem.attributes(inode), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.setAttributes(inode, { mode: 0o700 }), { errno: 'ESTALE' });
});
