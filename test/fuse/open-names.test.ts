import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import type { World } from '../../base/world.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/** A transport that opens by names opens what has the name now, whatever is remembered of it. */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };
const THREAD = 100;
const BY_THREAD = { ...ROOT_USER, thread: THREAD };

/** @param names of files that were made on the mount, which remembers that */
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

test('what another mount has given the name to is opened, and not what is remembered', async (t) => {
  const { backend, fileSystem, inodes } = await started(t, 'f', 'g');
  const [f, g] = inodes;
  await backend.rename({ parent: ROOT, name: 'f' }, { parent: ROOT, name: 'away' }, 'replace');
  await backend.rename({ parent: ROOT, name: 'g' }, { parent: ROOT, name: 'f' }, 'replace');
  assert.equal((await fileSystem.lookup(ROOT, 'f')).inode, f, 'It is remembered');
  assert.equal((await fileSystem.lookupToOpen(ROOT, 'f')).inode, g);
  assert.equal((await fileSystem.lookup(ROOT, 'f')).inode, g);
});

test('where nothing has the name any more, the kernel looks it up once more, and hears so', async (t) => {
  const { backend, fileSystem } = await started(t, 'f');
  await backend.unlink(ROOT, 'f');
  await fileSystem.lookup(ROOT, 'f');
  await assert.rejects(fileSystem.lookupToOpen(ROOT, 'f'), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.lookup(ROOT, 'f'), { code: 'not-found' });
});

test('one question serves the look-up and the open that follows it', async (t) => {
  const { backend, fileSystem } = await started(t);
  await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  const { inode } = await fileSystem.lookup(ROOT, 'f');
  const asked = { ...backend.calls };
  assert.equal((await fileSystem.lookupToOpen(ROOT, 'f')).inode, inode);
  const { handle } = await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  assert.deepEqual([backend.calls.lookup, backend.calls.attributes], [asked.lookup, asked.attributes]);
  await fileSystem.release(handle);
});

test('a name of several that is told from memory is not opened as the file that had it', async (t) => {
  const { backend, fileSystem, inodes } = await started(t, 'f');
  const [f = 0] = inodes;
  await backend.link(f, ROOT, 'other');
  const directory = await fileSystem.openDirectory(ROOT);
  await fileSystem.readDirectory(directory, 0, 10);
  await backend.unlink(ROOT, 'f');
  const { inode } = await fileSystem.lookup(ROOT, 'f', THREAD);
  assert.equal(inode, f, 'It is remembered');
  assert.equal(fileSystem.ttlPolicy.nameValidMs(ROOT, 'f', inode), 0);
  await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, BY_THREAD), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.lookup(ROOT, 'f', THREAD), { code: 'not-found' });
  const { handle } = await fileSystem.create(ROOT, 'f', 0o644, constants.O_WRONLY, BY_THREAD);
  assert.notEqual(fileSystem.inodeOf(handle), f);
  await fileSystem.release(handle);
});

test('one look-up serves one open: the next one may come without any', async (t) => {
  // The open comes right after the look-up, however busy the machine is.
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

/** @returns a mount of which the kernel believes that `f` is the inode, which another mount has renamed to `away` since */
async function believed(t: TestContext) {
  const { backend, fileSystem, inodes } = await started(t, 'f');
  const directory = await fileSystem.openDirectory(ROOT);
  await fileSystem.readDirectory(directory, 0, 10);
  const [inode = 0] = inodes;
  assert.ok(fileSystem.ttlPolicy.nameValidMs(ROOT, 'f', inode) > 0);
  await backend.rename({ parent: ROOT, name: 'f' }, { parent: ROOT, name: 'away' }, 'replace');
  return { backend, fileSystem, inode };
}

test('what the kernel looks up although it believes it the cluster is asked for', async (t) => {
  const { fileSystem } = await believed(t);
  await assert.rejects(fileSystem.lookup(ROOT, 'f', THREAD), { code: 'not-found' });
});

test('a second name is given to what has the first one now', async (t) => {
  const { backend, fileSystem, inode } = await believed(t);
  await assert.rejects(fileSystem.link(inode, ROOT, 'second', THREAD), { errno: 'ESTALE' });
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  assert.equal((await fileSystem.lookup(ROOT, 'f', THREAD)).inode, attributes.inode);
  await assert.rejects(fileSystem.lookup(ROOT, 'second', THREAD), { code: 'not-found' });
  assert.equal((await fileSystem.link(attributes.inode, ROOT, 'second', THREAD)).inode, attributes.inode);
});

test('whoever comes back to a file that was replaced once more in between opens it without a name', async (t) => {
  const { backend, fileSystem, inode } = await believed(t);
  await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, BY_THREAD), { errno: 'ESTALE' });
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  await fileSystem.lookup(ROOT, 'f', THREAD);
  await backend.unlink(ROOT, 'f');
  const { handle } = await fileSystem.open(attributes.inode, constants.O_RDONLY, BY_THREAD);
  assert.equal(fileSystem.inodeOf(handle), attributes.inode);
  await fileSystem.release(handle);
});

test('a descriptor appends as it is at each write, where that is told', async (t) => {
  const { fileSystem, inodes } = await started(t, 'f');
  const [f = 0] = inodes;
  const { handle } = await fileSystem.open(f, constants.O_RDWR, ROOT_USER);
  const write = (text: string, appends?: boolean) =>
    fileSystem.write(handle, 0, Buffer.from(text), ROOT_USER, appends);
  for (const [text, appends] of [['abc'], ['de', true], ['X', false]] as const) await write(text, appends);
  assert.equal(Buffer.from(await fileSystem.read(handle, 0, 9)).toString(), 'Xbcde');
  await fileSystem.release(handle);
});
