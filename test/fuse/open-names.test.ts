import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import type { World } from '../../base/world.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/** Goal: an open by a name opens the file that has the name now, whatever the mount has cached. */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };
const THREAD = 100;
const BY_THREAD = { ...ROOT_USER, thread: THREAD };

/** @param names of files that the mount has created, and whose names it has cached */
function started(t: TestContext, ...names: string[]) {
  return startedIn(systemWorld, t, ...names);
}

async function startedIn(world: World, t: TestContext, ...names: string[]) {
  const backend = new MemoryBackend();
  await backend.start();
  const fileSystem = fileSystemOf(world, backend, ROOT, LIMIT_MS, () => undefined);
  t.after(() => fileSystem.stop());
  const inodes: number[] = [];
  for (const name of names) {
    const { inode } = await fileSystem.makeNode(ROOT, name, constants.S_IFREG | 0o644, 0, ROOT_USER);
    inodes.push(inode);
  }
  return { backend, fileSystem, inodes };
}

test('an open uses the file to which another mount has renamed, and not the cached one', async (t) => {
  const { backend, fileSystem, inodes } = await started(t, 'f', 'g');
  const [f, g] = inodes;
  await backend.rename({ parent: ROOT, name: 'f' }, { parent: ROOT, name: 'away' }, 'replace');
  await backend.rename({ parent: ROOT, name: 'g' }, { parent: ROOT, name: 'f' }, 'replace');
  assert.equal((await fileSystem.lookup(ROOT, 'f')).inode, f, 'It is cached');
  assert.equal((await fileSystem.lookupToOpen(ROOT, 'f')).inode, g);
  assert.equal((await fileSystem.lookup(ROOT, 'f')).inode, g);
});

test('if a name was removed by another mount, an open makes the kernel look it up again, which finds nothing', async (t) => {
  const { backend, fileSystem } = await started(t, 'f');
  await backend.unlink(ROOT, 'f');
  await fileSystem.lookup(ROOT, 'f');
  await assert.rejects(fileSystem.lookupToOpen(ROOT, 'f'), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.lookup(ROOT, 'f'), { code: 'not-found' });
});

test('one request answers a look-up and the open after it', async (t) => {
  const { backend, fileSystem } = await started(t);
  await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  const { inode } = await fileSystem.lookup(ROOT, 'f');
  const asked = { ...backend.calls };
  assert.equal((await fileSystem.lookupToOpen(ROOT, 'f')).inode, inode);
  const { handle } = await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  assert.deepEqual([backend.calls.lookup, backend.calls.attributes], [asked.lookup, asked.attributes]);
  await fileSystem.release(handle);
});

test('a cached name of a file with several links is not opened as that file', async (t) => {
  const { backend, fileSystem, inodes } = await started(t, 'f');
  const [f = 0] = inodes;
  await backend.link(f, ROOT, 'other');
  const directory = await fileSystem.openDirectory(ROOT);
  await fileSystem.readDirectory(directory, 0, 10);
  await backend.unlink(ROOT, 'f');
  const { inode } = await fileSystem.lookup(ROOT, 'f', THREAD);
  assert.equal(inode, f, 'It is cached');
  assert.equal(fileSystem.ttlPolicy.nameValidMs(ROOT, 'f', inode), 0);
  await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, BY_THREAD), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.lookup(ROOT, 'f', THREAD), { code: 'not-found' });
  const { handle } = await fileSystem.create(ROOT, 'f', 0o644, constants.O_WRONLY, BY_THREAD);
  assert.notEqual(fileSystem.inodeOf(handle), f);
  await fileSystem.release(handle);
});

test('a look-up answers one open: the next open queries the cluster', async (t) => {
  // The open follows the look-up at once, however busy the machine is.
  let nowMs = systemWorld.nowMs();
  const world = { ...systemWorld, nowMs: () => (nowMs += 0.001) };
  const { backend, fileSystem } = await startedIn(world, t);
  await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  const { inode } = await fileSystem.lookup(ROOT, 'f', THREAD);
  for (const questions of [0, 1]) {
    const asked = backend.calls.attributes ?? 0;
    const { handle } = await fileSystem.open(inode, constants.O_RDONLY, BY_THREAD);
    assert.equal((backend.calls.attributes ?? 0) - asked, questions);
    await fileSystem.release(handle);
  }
});

/** @returns a mount whose kernel caches the name `f`, which another mount has renamed to `away` since */
async function believed(t: TestContext) {
  const { backend, fileSystem, inodes } = await started(t, 'f');
  const directory = await fileSystem.openDirectory(ROOT);
  await fileSystem.readDirectory(directory, 0, 10);
  const [inode = 0] = inodes;
  assert.ok(fileSystem.ttlPolicy.nameValidMs(ROOT, 'f', inode) > 0);
  await backend.rename({ parent: ROOT, name: 'f' }, { parent: ROOT, name: 'away' }, 'replace');
  return { backend, fileSystem, inode };
}

test('a look-up of a name that the kernel could still cache queries the cluster', async (t) => {
  const { fileSystem } = await believed(t);
  await assert.rejects(fileSystem.lookup(ROOT, 'f', THREAD), { code: 'not-found' });
});

test('a link is made to the file that has the name now', async (t) => {
  const { backend, fileSystem, inode } = await believed(t);
  await assert.rejects(fileSystem.link(inode, ROOT, 'second', THREAD), { errno: 'ESTALE' });
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  assert.equal((await fileSystem.lookup(ROOT, 'f', THREAD)).inode, attributes.inode);
  await assert.rejects(fileSystem.lookup(ROOT, 'second', THREAD), { code: 'not-found' });
  assert.equal((await fileSystem.link(attributes.inode, ROOT, 'second', THREAD)).inode, attributes.inode);
});

test('after a second replacement of a name an open uses the inode without checking the name', async (t) => {
  const { backend, fileSystem, inode } = await believed(t);
  await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, BY_THREAD), { errno: 'ESTALE' });
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  await fileSystem.lookup(ROOT, 'f', THREAD);
  await backend.unlink(ROOT, 'f');
  const { handle } = await fileSystem.open(attributes.inode, constants.O_RDONLY, BY_THREAD);
  assert.equal(fileSystem.inodeOf(handle), attributes.inode);
  await fileSystem.release(handle);
});

test('each write appends or not as the kernel says, not as the open did', async (t) => {
  const { fileSystem, inodes } = await started(t, 'f');
  const [f = 0] = inodes;
  const { handle } = await fileSystem.open(f, constants.O_RDWR, ROOT_USER);
  const write = (text: string, appends?: boolean) =>
    fileSystem.write(handle, 0, Buffer.from(text), ROOT_USER, appends);
  for (const [text, appends] of [['abc'], ['de', true], ['X', false]] as const) await write(text, appends);
  assert.equal(Buffer.from(await fileSystem.read(handle, 0, 9)).toString(), 'Xbcde');
  await fileSystem.release(handle);
});
