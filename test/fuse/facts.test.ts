/**
 * Goal: what the cluster knows of a file is shown to whoever looks for it, and does not get in the way of programs that copy all attributes.
 * Method: the mount's calls over a cluster in memory, asked by a thread that has the name of one program or another.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type VirtualListing, withVirtualAttributes } from '../../fuse/cluster/virtual-attributes.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const USER = { uid: 7, gid: 8 };
const OWN = 'user.own';
/** More than the system has. */
const ENDED = 2 ** 30;

async function started(t: TestContext, listing: VirtualListing) {
  const { title } = process;
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  const facts = async (inode: number, name: string) => (name === 'primary' ? `primary of ${inode}` : null);
  // As a mount has them.
  const state = births.state(systemWorld);
  const backend = withPendingNames(
    systemWorld,
    withVirtualAttributes(births.backend, facts, listing),
    births,
    state,
    () => undefined,
  );
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined, state);
  t.after(async () => {
    process.title = title;
    await fileSystem.stop();
    await backend.stop();
  });
  const { attributes } = await memory.createFile(ROOT, 'f', 0o644, USER, true);
  const { inode } = attributes;
  await memory.setXattr(inode, OWN, Buffer.from('x'), 'set');
  /** @returns whether facts were among what was listed */
  const isShown = async (thread: number): Promise<boolean> => {
    const names = await fileSystem.xattrs(inode, { ...USER, thread });
    assert.ok(names.includes(OWN), names.join());
    return names.includes('leasehold.primary');
  };
  /** As a program of that name asks. */
  const isShownTo = (program: string): Promise<boolean> => {
    process.title = program;
    return isShown(process.pid);
  };
  return { fileSystem, inode, isShown, isShownTo };
}

test('facts are in the list for the program that shows them, and for no other', async (t) => {
  const { isShown, isShownTo } = await started(t, 'auto');
  assert.equal(await isShownTo('getfattr'), true);
  for (const program of ['rsync', 'cp', 'getfattrs', 'node']) assert.equal(await isShownTo(program), false);
  for (const thread of [0, ENDED])
    assert.equal(await isShown(thread), false, 'Nobody knows which program that is');
});

test('facts are in the list for all, or for nobody, where that was asked for', async (t) => {
  const listed = await started(t, 'listed');
  const hidden = await started(t, 'hidden');
  for (const program of ['getfattr', 'rsync']) {
    assert.equal(await listed.isShownTo(program), true);
    assert.equal(await hidden.isShownTo(program), false);
  }
  assert.equal(await listed.isShown(0), true);
  const shown = await hidden.fileSystem.xattr(hidden.inode, 'leasehold.primary');
  assert.equal(String(shown), `primary of ${hidden.inode}`, 'By its name each can be asked for');
});

test('each kind of inode has facts of its own in the list', async (t) => {
  const { fileSystem, inode } = await started(t, 'listed');
  const list = async (of: number) =>
    (await fileSystem.xattrs(of, USER)).filter((name) => name !== OWN).map((name) => name.split('.')[1]);
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  const { inode: link } = await fileSystem.symlink(ROOT, 'l', 'f', USER);
  const ofFiles = ['replicas', 'policy', 'primary', 'epoch', 'version', 'sealed'];
  assert.deepEqual(await list(inode), ['volume', 'inode', ...ofFiles]);
  assert.deepEqual(await list(directory), ['volume', 'inode', 'policy', 'copies']);
  assert.deepEqual(await list(link), ['volume', 'inode']);
});

test('facts are neither set nor removed, and those that an inode has not are absent', async (t) => {
  const { fileSystem, inode } = await started(t, 'auto');
  const unsupported = { errno: 'EOPNOTSUPP' };
  const fact = 'leasehold.primary';
  await assert.rejects(fileSystem.setXattr(inode, fact, Buffer.from('s1'), 0), unsupported);
  await assert.rejects(fileSystem.removeXattr(inode, fact), unsupported);
  assert.equal(String(await fileSystem.xattr(inode, fact)), `primary of ${inode}`);
  await assert.rejects(fileSystem.xattr(inode, 'leasehold.copies'), { errno: 'ENODATA' });
});
