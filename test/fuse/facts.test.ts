/**
 * Goal: virtual attributes are listed for programs that show them, and not for programs that copy all attributes.
 * Method: the mount's calls over a cluster in memory; the calling thread has the name of one program or another.
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
/** A thread id beyond the system's largest. */
const ENDED = 2 ** 30;

async function started(t: TestContext, listing: VirtualListing) {
  const { title } = process;
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  const facts = async (inode: number, name: string) => (name === 'primary' ? `primary of ${inode}` : null);
  // In the order in which a mount wraps them.
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
  /** @returns whether virtual attributes were listed */
  const isShown = async (thread: number): Promise<boolean> => {
    const names = await fileSystem.xattrs(inode, { ...USER, thread });
    assert.ok(names.includes(OWN), names.join());
    return names.includes('leasehold.primary');
  };
  /** Asks as a program of that name. */
  const isShownTo = (program: string): Promise<boolean> => {
    process.title = program;
    return isShown(process.pid);
  };
  return { fileSystem, inode, isShown, isShownTo };
}

test('virtual attributes are listed for getfattr, and for no other program', async (t) => {
  const { isShown, isShownTo } = await started(t, 'auto');
  assert.equal(await isShownTo('getfattr'), true);
  for (const program of ['rsync', 'cp', 'getfattrs', 'node']) assert.equal(await isShownTo(program), false);
  for (const thread of [0, ENDED]) assert.equal(await isShown(thread), false, 'The program is not known');
});

test('virtual attributes are listed for all programs or for none if an option says so', async (t) => {
  const listed = await started(t, 'listed');
  const hidden = await started(t, 'hidden');
  for (const program of ['getfattr', 'rsync']) {
    assert.equal(await listed.isShownTo(program), true);
    assert.equal(await hidden.isShownTo(program), false);
  }
  assert.equal(await listed.isShown(0), true);
  const shown = await hidden.fileSystem.xattr(hidden.inode, 'leasehold.primary');
  assert.equal(String(shown), `primary of ${hidden.inode}`, 'Each can be read by its name');
});

test('each kind of inode has virtual attributes of its own', async (t) => {
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

test('virtual attributes cannot be set or removed, and those that a kind of inode does not have are absent', async (t) => {
  const { fileSystem, inode } = await started(t, 'auto');
  const unsupported = { errno: 'EOPNOTSUPP' };
  const fact = 'leasehold.primary';
  await assert.rejects(fileSystem.setXattr(inode, fact, Buffer.from('s1'), 0), unsupported);
  await assert.rejects(fileSystem.removeXattr(inode, fact), unsupported);
  assert.equal(String(await fileSystem.xattr(inode, fact)), `primary of ${inode}`);
  await assert.rejects(fileSystem.xattr(inode, 'leasehold.copies'), { errno: 'ENODATA' });
});
