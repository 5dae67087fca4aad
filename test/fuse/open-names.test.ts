import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { FileSystem } from '../../fuse/file-system.ts';
import { MemoryBackend } from './memory-backend.ts';

/** A transport that opens by names opens what has the name now, whatever is remembered of it. */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };

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
