/**
 * Goal: calls have the side effects that they have on Linux, and refuse what Linux refuses. `test/posix` checks the
 * same rules on mounts; here the calls run without a kernel, over a cluster in memory.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { releasableMemory } from '../../base/releasable-memory.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

const ROOT = 1;
const LIMIT_MS = 5_000;
const USER = { uid: 7, gid: 8 };
const OTHER = { uid: 9, gid: 8 };
const SUPERUSER = { uid: 0, gid: 0 };
const FALLOC_FL_KEEP_SIZE = 1;
/** In the past: each call that changes a time sets a later one. */
const OLD_NS = 1n;

/** A mount with one file that has contents. @param mode of that file */
async function started(t: TestContext, mode = 0o644) {
  const backend = new MemoryBackend();
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined);
  t.after(() => fileSystem.stop());
  const { attributes } = await backend.createFile(ROOT, 'f', mode, USER, true);
  backend.writeFromElsewhere('f', 'hello');
  const { inode } = attributes;
  const open = async (flags: number) => (await fileSystem.open(inode, flags, USER)).handle;
  return { backend, fileSystem, inode, open };
}

test('an open with O_TRUNC empties the file, also an open for reading', async (t) => {
  for (const flags of [constants.O_RDONLY, constants.O_WRONLY]) {
    const { backend, fileSystem, inode, open } = await started(t);
    const handle = await open(flags | constants.O_TRUNC);
    assert.equal((await fileSystem.attributes(inode)).sizeBytes, 0);
    assert.equal(backend.textAt(ROOT, 'f'), '');
    const written = fileSystem.write(handle, 0, Buffer.from('x'), USER);
    if (flags === constants.O_RDONLY) await assert.rejects(written, { errno: 'EBADF' });
    else assert.equal(await written, 1);
    await fileSystem.release(handle);
  }
});

test('a file of O_TMPFILE gets a name by the first link, and further names by the next ones', async (t) => {
  const { backend, fileSystem } = await started(t);
  const { mode, gid } = await backend.setAttributes(ROOT, { mode: 0o2777, gid: 12 });
  assert.equal(mode & 0o2000, 0o2000);
  const { attributes, handle } = await fileSystem.createUnnamed(ROOT, 0o100666, constants.O_RDWR, {
    ...USER,
    umask: 0o022,
  });
  const { inode } = attributes;
  assert.deepEqual([attributes.links, attributes.mode & 0o777, attributes.gid], [0, 0o644, gid]);
  assert.equal(await fileSystem.write(handle, 0, Buffer.from('hello'), USER), 5);
  assert.equal((await fileSystem.link(inode, ROOT, 'first')).links, 1);
  assert.equal((await fileSystem.link(inode, ROOT, 'second')).links, 2);
  await fileSystem.flush(handle);
  await fileSystem.release(handle);
  assert.equal(backend.textAt(ROOT, 'first'), 'hello');
  assert.deepEqual([backend.calls.nameFile, backend.calls.link], [1, 1]);
});

test('an open of a name that is now a pipe or a socket of another mount fails with ENXIO', async (t) => {
  const { backend, fileSystem } = await started(t);
  for (const type of ['fifo', 'socket'] as const) {
    const { inode } = await backend.makeNode(ROOT, type, type, 0, 0o644, USER);
    await fileSystem.lookup(ROOT, type);
    await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, USER), { errno: 'ENXIO' }, type);
  }
});

test('chmod, chown or utimes without a change sets ctime, and clears set-id bits if the caller is the owner or root', async (t) => {
  for (const [caller, mode] of [
    [USER, 0o755],
    [SUPERUSER, 0o755],
    // The kernel clears the bits before each write by such a call; the write itself clears them anyway.
    [OTHER, 0o6755],
  ] as const) {
    const { fileSystem, inode } = await started(t, 0o6755);
    const { changedNs, modifiedNs } = await fileSystem.attributes(inode);
    const touched = await fileSystem.touchStatus(inode, caller);
    assert.equal(touched.mode, mode);
    assert.notEqual(touched.changedNs, changedNs);
    assert.equal(touched.modifiedNs, modifiedNs);
  }
  const { fileSystem } = await started(t);
  const { inode } = await fileSystem.makeDirectory(ROOT, 'd', 0o2755, USER);
  assert.equal(
    (await fileSystem.touchStatus(inode, USER)).mode,
    0o2755,
    'The set-group-id bit of a directory stays',
  );
});

test('fallocate of existing bytes, or beyond the end with KEEP_SIZE, changes the times only', async (t) => {
  const { backend, fileSystem, inode, open } = await started(t);
  const handle = await open(constants.O_RDWR);
  for (const [mode, length] of [
    [0, 5],
    [FALLOC_FL_KEEP_SIZE, 5],
    [FALLOC_FL_KEEP_SIZE, 5_000],
  ] as const) {
    await fileSystem.setAttributes(inode, { modified: { kind: 'time', ns: OLD_NS } });
    assert.equal((await fileSystem.attributes(inode)).modifiedNs, String(OLD_NS));
    await fileSystem.allocate(handle, mode, 0, length, USER);
    const { modifiedNs, sizeBytes } = await fileSystem.attributes(inode);
    assert.notEqual(modifiedNs, String(OLD_NS), `${length} bytes by mode ${mode}`);
    assert.equal(sizeBytes, 5);
  }
  assert.equal(backend.textAt(ROOT, 'f'), 'hello');
  await fileSystem.release(handle);
});

test('a write with O_SYNC returns its length, although its memory is released before it returns', async (t) => {
  for (const flag of [constants.O_SYNC, constants.O_DSYNC]) {
    const { backend, fileSystem, open } = await started(t);
    const handle = await open(constants.O_WRONLY | flag);
    const bytes = releasableMemory(100_000).fill('x');
    assert.equal(await fileSystem.write(handle, 0, bytes, USER), 100_000);
    assert.equal(bytes.length, 0, 'The memory is released for the next request of the kernel');
    assert.equal(backend.textAt(ROOT, 'f'), 'x'.repeat(100_000));
    await fileSystem.release(handle);
  }
});

test('only root sees the names of trusted attributes', async (t) => {
  const { fileSystem, inode } = await started(t);
  for (const name of ['user.own', 'trusted.own']) await fileSystem.setXattr(inode, name, Buffer.from('x'), 0);
  assert.deepEqual(await fileSystem.xattrs(inode, SUPERUSER), ['user.own', 'trusted.own']);
  assert.deepEqual(await fileSystem.xattrs(inode, USER), ['user.own']);
});

test('a write past the kernel’s page cache removes security.capability, and no other attribute', async (t) => {
  const { fileSystem, inode, open } = await started(t);
  const handle = await open(constants.O_WRONLY | constants.O_APPEND);
  const set = (name: string) => fileSystem.setXattr(inode, name, Buffer.from('x'), 0);
  await set('user.own');
  for (let round = 0; round < 2; round++) {
    await set('security.capability');
    await fileSystem.write(handle, 0, Buffer.from('more'), SUPERUSER, true);
    assert.deepEqual(await fileSystem.xattrs(inode, SUPERUSER), ['user.own']);
  }
  await fileSystem.release(handle);
});

test('a namespace without a name is no valid attribute', async (t) => {
  const { fileSystem, inode } = await started(t);
  for (const name of ['user.', 'trusted.']) {
    const einval = { errno: 'EINVAL' };
    await assert.rejects(fileSystem.setXattr(inode, name, Buffer.from('x'), 0), einval);
    await assert.rejects(fileSystem.xattr(inode, name), einval);
    await assert.rejects(fileSystem.removeXattr(inode, name), einval);
  }
  assert.deepEqual(await fileSystem.xattrs(inode, SUPERUSER), []);
});
