import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { FileSystem } from '../../fuse/file-system.ts';
import { MemoryBackend } from './memory-backend.ts';

/** A transport that opens by names opens what has the name now, whatever is remembered of it. */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };
const THREAD = 100;
const BY_THREAD = { ...ROOT_USER, thread: THREAD };

/** @param names of files that were made on the mount, which remembers that */
async function started(t: TestContext, ...names: string[]) {
  const backend = new MemoryBackend();
  await backend.start();
  const fileSystem = new FileSystem(backend, ROOT, LIMIT_MS, () => undefined);
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
  assert.equal(fileSystem.nameBelievedMs(ROOT, 'f', inode), 0);
  await assert.rejects(fileSystem.open(inode, constants.O_RDONLY, BY_THREAD), { errno: 'ESTALE' });
  await assert.rejects(fileSystem.lookup(ROOT, 'f', THREAD), { code: 'not-found' });
  const { handle } = await fileSystem.create(ROOT, 'f', 0o644, constants.O_WRONLY, BY_THREAD);
  assert.notEqual(fileSystem.inodeOf(handle), f);
  await fileSystem.release(handle);
});
