/**
 * Goal: one mount serves a tree of volumes: each call reaches the volume of its inode or handle, and one volume's
 * trouble is no other's.
 * Method: the calls of the kernel, over three volumes in memory: `b` is attached in `a`, and `a` in the mounted one.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { catalogOfInode, inodesOf } from '../../base/ids.ts';
import type { FileSystemCalls, LockRequest } from '../../fuse/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { A, B, calledMount, MemoryAttachments, OWNER, ROOT } from './nested-mount.ts';

const ROOT_A = inodesOf(A).first;
const ROOT_B = inodesOf(B).first;
const ALL = 100;
const READ_WRITE = constants.O_RDWR;

/** The tree `projects/a/deep/b`. @param ageMaxMs how long names are cached, and what the list said */
async function started(t: TestContext, ageMaxMs = 0) {
  const main = new MemoryBackend(ROOT);
  const list = new MemoryAttachments();
  list.ageMaxMs = ageMaxMs;
  const [a, b] = [list.backend(A), list.backend(B)];
  const { inode: projects } = await main.makeDirectory(ROOT, 'projects', 0o755, OWNER);
  const { inode: deep } = await a.makeDirectory(ROOT_A, 'deep', 0o755, OWNER);
  const atA = list.attach(A, main, projects, 'a');
  const atB = list.attach(B, a, deep, 'b');
  let aheadMs = 0;
  const world = { ...systemWorld, nowMs: () => systemWorld.nowMs() + aheadMs };
  const mount = await calledMount(main, list, ageMaxMs, world);
  let isMounted = true;
  const unmount = async (): Promise<void> => {
    if (!isMounted) return;
    isMounted = false;
    await mount.mounted.unmount();
    await mount.mounted.ended;
  };
  t.after(unmount);
  const pass = (ms: number): void => {
    aheadMs += ms;
  };
  return { ...mount, unmount, pass, list, main, a, b, projects, deep, atA, atB };
}

async function walk(calls: FileSystemCalls, path: string): Promise<number> {
  let inode = calls.root;
  for (const name of path.split('/')) ({ inode } = await calls.lookup(inode, name));
  return inode;
}

/** Creates a file with contents. @returns its inode and handle */
async function created(calls: FileSystemCalls, parent: number, name: string, text: string) {
  const { attributes, handle } = await calls.create(parent, name, 0o644, READ_WRITE, OWNER);
  await calls.write(handle, 0, Buffer.from(text), OWNER);
  return { inode: attributes.inode, handle };
}

async function textOf(calls: FileSystemCalls, handle: number): Promise<string> {
  return Buffer.from(await calls.read(handle, 0, ALL)).toString();
}

const lock: LockRequest = { kind: 'posix', type: 'exclusive', start: 0n, end: 9n, owner: 1n, pid: 1 };

test('while a file is open for writing, calls about it stay there, also if its directory has become a volume', async (t) => {
  const { calls, main, a, list } = await started(t);
  await walk(calls, 'projects/a');
  const { inode, handle } = await created(calls, ROOT, 'f', 'text');
  await calls.persist(handle);
  list.catalogOf = (number) => (number === inode ? A : catalogOfInode(number));
  await calls.write(handle, 4, Buffer.from(' that is cut off'), OWNER);
  const times = { accessedNs: '1', modifiedNs: '1', changedNs: '1', contents: new Uint8Array(0) };
  await a.makeNumbered({ parent: ROOT_A, name: 'f', inode, mode: 0o644, ...OWNER, ...times }, false);
  const found = await calls.lookup(ROOT_A, 'f');
  assert.equal(found.sizeBytes, 'text that is cut off'.length, 'The cluster does not have all bytes yet');
  assert.equal((await calls.truncate(inode, 4, OWNER)).sizeBytes, 4);
  assert.equal(await textOf(calls, handle), 'text');
  await calls.flush(handle);
  assert.equal((await main.attributes(inode)).sizeBytes, 4);
  await calls.release(handle);
  assert.equal((await calls.attributes(inode)).sizeBytes, 0, 'The other volume in memory has no contents');
});

test('a path crosses junctions, and each call reaches the volume of its inode or handle', async (t) => {
  const { calls, main, a, b, list } = await started(t);
  assert.deepEqual(list.opened, []);
  assert.equal(await walk(calls, 'projects/a'), ROOT_A);
  assert.deepEqual(list.opened, ['a']);
  assert.equal(await walk(calls, 'projects/a/deep/b'), ROOT_B);
  const files = [ROOT, ROOT_A, ROOT_B].map((root) => created(calls, root, 'f', `of ${root}`));
  const [inMain, inA, inB] = await Promise.all(files);
  assert.ok(inMain && inA && inB);
  assert.equal(new Set([inMain.handle, inA.handle, inB.handle]).size, 3);
  for (const [root, { handle, inode }] of [
    [ROOT, inMain],
    [ROOT_A, inA],
    [ROOT_B, inB],
  ] as const) {
    assert.equal(calls.inodeOf(handle), inode);
    assert.equal(await textOf(calls, handle), `of ${root}`);
    await calls.lock(handle, lock, false, new AbortController().signal);
    assert.equal(await calls.seek(handle, 0, 'data'), 0);
    await calls.flush(handle);
    await calls.setXattr(inode, 'user.of', Buffer.from(String(root)), 0);
    assert.equal(Buffer.from(await calls.xattr(inode, 'user.of')).toString(), String(root));
  }
  for (const [backend, root] of [
    [main, ROOT],
    [a, ROOT_A],
    [b, ROOT_B],
  ] as const)
    assert.equal(backend.textAt(root, 'f'), `of ${root}`);
  for (const { handle } of [inMain, inA, inB]) await calls.release(handle);
  await assert.rejects(calls.read(inB.handle, 0, 1), { errno: 'EBADF' });
  await calls.unlink(ROOT_B, 'f');
  assert.equal(b.inodeAt(ROOT_B, 'f'), undefined);
  assert.ok(a.inodeAt(ROOT_A, 'f') !== undefined && main.inodeAt(ROOT, 'f') !== undefined);
});

test('a volume begins once, however many programs cross its junction at a time', async (t) => {
  const { calls, list, projects } = await started(t);
  const found = await Promise.all(Array.from({ length: 20 }, () => calls.lookup(projects, 'a')));
  assert.deepEqual(list.opened, ['a']);
  assert.deepEqual([...new Set(found.map(({ inode }) => inode))], [ROOT_A]);
});

test('renames, links and copies between volumes are refused with EXDEV', async (t) => {
  const { calls, main, a, projects } = await started(t);
  await walk(calls, 'projects/a/deep/b');
  const { inode, handle } = await created(calls, projects, 'f', 'text');
  const other = await created(calls, ROOT_A, 'g', '');
  const refused = { errno: 'EXDEV' };
  await assert.rejects(
    calls.rename({ parent: projects, name: 'f' }, { parent: ROOT_A, name: 'f' }, 0),
    refused,
  );
  await assert.rejects(
    calls.rename({ parent: ROOT_A, name: 'g' }, { parent: ROOT_B, name: 'g' }, 0),
    refused,
  );
  await assert.rejects(calls.link(inode, ROOT_A, 'f'), refused);
  await assert.rejects(calls.copyRange(handle, 0, other.handle, 0, 4, OWNER), refused);
  assert.equal(main.inodeAt(projects, 'f'), inode);
  assert.equal(a.inodeAt(ROOT_A, 'f'), undefined);
  const third = await created(calls, ROOT_A, 'h', 'within');
  assert.equal(await calls.copyRange(third.handle, 0, other.handle, 0, 6, OWNER), 6);
  assert.equal(await textOf(calls, other.handle), 'within');
});

test('a junction is renamed within its volume, and not removed', async (t) => {
  const { calls, projects, atA, main } = await started(t);
  await walk(calls, 'projects/a');
  await calls.makeDirectory(ROOT, 'd', 0o755, OWNER);
  const attached = { code: 'attached' };
  await assert.rejects(calls.removeDirectory(projects, 'a'), attached);
  await assert.rejects(
    calls.rename({ parent: ROOT, name: 'd' }, { parent: projects, name: 'a' }, 0),
    attached,
  );
  assert.equal(main.inodeAt(projects, 'a'), atA);
  await calls.rename({ parent: projects, name: 'a' }, { parent: ROOT, name: 'moved' }, 0);
  assert.equal(main.inodeAt(ROOT, 'moved'), atA);
  assert.equal(await walk(calls, 'moved/deep/b'), ROOT_B);
});

test('a junction of an interrupted attach is an empty directory in which nothing is created', async (t) => {
  const { calls, list, atA, main } = await started(t);
  list.detach(atA);
  const inert = await walk(calls, 'projects/a');
  assert.equal(inert, atA);
  const directory = await calls.openDirectory(inert);
  const { entries } = await calls.readDirectory(directory, 0, ALL);
  assert.deepEqual(
    entries.map(({ name }) => name),
    ['.', '..'],
  );
  await calls.releaseDirectory(directory);
  const { inode } = await created(calls, ROOT, 'f', '');
  const refused = { errno: 'EXDEV' };
  await assert.rejects(calls.create(inert, 'f', 0o644, READ_WRITE, OWNER), refused);
  await assert.rejects(calls.createUnnamed(inert, 0o644, READ_WRITE, OWNER), refused);
  await assert.rejects(calls.makeDirectory(inert, 'd', 0o755, OWNER), refused);
  await assert.rejects(calls.makeNode(inert, 'n', constants.S_IFIFO, 0, OWNER), refused);
  await assert.rejects(calls.symlink(inert, 's', 'target', OWNER), refused);
  await assert.rejects(calls.link(inode, inert, 'l'), refused);
  await assert.rejects(calls.rename({ parent: ROOT, name: 'f' }, { parent: inert, name: 'f' }, 0), refused);
  assert.deepEqual((await main.list(inert, '', ALL)).entries, []);
  list.complete(A, atA);
  assert.equal(await walk(calls, 'projects/a'), ROOT_A);
});

test('what the list says of a junction is used for the time of the cache mode, and no longer', async (t) => {
  const { calls, list, atA, projects, pass } = await started(t, 600_000);
  assert.equal(await walk(calls, 'projects/a'), ROOT_A);
  list.detach(atA);
  pass(300_000);
  assert.equal((await calls.lookup(projects, 'a')).inode, ROOT_A);
  pass(300_000);
  assert.equal((await calls.lookup(projects, 'a')).inode, atA);
});

test('an attached volume serves while the list cannot be queried, and no other is entered', async (t) => {
  const { calls, list, a } = await started(t);
  await walk(calls, 'projects/a');
  list.isAway = true;
  assert.equal(await walk(calls, 'projects/a'), ROOT_A);
  await assert.rejects(walk(calls, 'projects/a/deep/b'), /away by intent/);
  assert.equal((await created(calls, ROOT_A, 'f', 'text')).inode, a.inodeAt(ROOT_A, 'f'));
});

test('a volume that does not answer delays its own calls only', async (t) => {
  const { calls, a, projects } = await started(t);
  a.disturb({ stalled: true });
  let isEntered = false;
  const entered = calls.lookup(projects, 'a').then(({ inode }) => {
    isEntered = true;
    return inode;
  });
  const { handle } = await created(calls, projects, 'f', 'text');
  await calls.persist(handle);
  await calls.makeDirectory(projects, 'd', 0o755, OWNER);
  await calls.rename({ parent: projects, name: 'd' }, { parent: projects, name: 'e' }, 0);
  const directory = await calls.openDirectory(projects);
  const { entries } = await calls.readDirectory(directory, 0, ALL);
  assert.deepEqual(entries.map(({ name }) => name).slice(2), ['a', 'e', 'f']);
  assert.equal(isEntered, false);
  a.disturb({ stalled: false });
  assert.equal(await entered, ROOT_A);
});

test('the free space is that of the volume', async (t) => {
  const { calls, main, a } = await started(t);
  await a.makeDirectory(ROOT_A, 'd', 0o755, OWNER);
  await walk(calls, 'projects/a');
  const [inMain, inA] = [await calls.space(ROOT), await calls.space(ROOT_A)];
  assert.deepEqual([inMain, inA], [await main.space(), await a.space()]);
  assert.notDeepEqual(inMain, inA);
});

test('a listing names the roots of entered volumes, and has no attributes of junctions', async (t) => {
  const { calls, projects, atA } = await started(t, 60_000);
  const inodes = async (): Promise<(number | null)[]> => {
    const handle = await calls.openDirectory(projects);
    const { entries } = await calls.readDirectory(handle, 0, ALL);
    await calls.releaseDirectory(handle);
    return entries.filter(({ name }) => name === 'a').map(({ inode }) => inode);
  };
  assert.deepEqual(await inodes(), [atA]);
  assert.equal(calls.listed(projects, 'a'), undefined);
  await walk(calls, 'projects/a');
  assert.deepEqual(await inodes(), [ROOT_A]);
  assert.equal(calls.listed(projects, 'a'), undefined);
  assert.equal(calls.listed(ROOT, 'projects')?.inode, projects);
});

test('the parent of an attached root is the directory of its junction', async (t) => {
  const { calls, main, projects, atA } = await started(t);
  await walk(calls, 'projects/a');
  const asked: unknown[] = [];
  Object.assign(main, {
    byNumber: async (inode: number, which: string) => {
      asked.push([inode, which]);
      return main.attributes(projects);
    },
  });
  assert.equal((await calls.lookup(ROOT_A, '..')).inode, projects);
  assert.deepEqual(asked, [[atA, 'parent']]);
});

test('a file handle of an inode enters the volume that has it, if that is attached in this tree', async (t) => {
  const { calls, list, main, a, b, deep, atA, atB } = await started(t);
  const asked: unknown[] = [];
  const numbered = (backend: MemoryBackend, of: (inode: number, which: 'self' | 'parent') => number) => {
    const byNumber = async (inode: number, which: 'self' | 'parent') => {
      asked.push([inode, which]);
      return backend.attributes(of(inode, which));
    };
    Object.assign(backend, { byNumber });
  };
  numbered(main, (inode) => inode);
  numbered(a, (_inode, which) => (which === 'parent' ? deep : ROOT_A));
  numbered(b, (inode) => inode);
  list.detach(atA);
  await assert.rejects(calls.lookup(ROOT_B, '.'), { errno: 'ESTALE' });
  assert.deepEqual(list.opened, []);
  list.complete(A, atA);
  assert.equal((await calls.lookup(ROOT_B, '.')).inode, ROOT_B);
  assert.deepEqual(list.opened, ['b']);
  assert.equal((await calls.lookup(ROOT_B, '..')).inode, deep);
  assert.deepEqual(list.opened, ['b', 'a']);
  assert.deepEqual(asked, [
    [ROOT_B, 'self'],
    [atA, 'self'],
    [ROOT_B, 'self'],
    [atA, 'self'],
    [atB, 'parent'],
  ]);
  const listed = await calls.openDirectory(deep);
  const { entries } = await calls.readDirectory(listed, 0, ALL);
  assert.equal(
    entries.find(({ name }) => name === 'b')?.inode,
    ROOT_B,
    'the kernel looks for its name by this',
  );
  await calls.releaseDirectory(listed);
  // The junction is of another volume of the same catalog.
  const other = await started(t);
  await assert.rejects(other.calls.lookup(ROOT_A, '.'), { errno: 'ESTALE' });
  assert.deepEqual(other.list.opened, []);
});

test('the kernel caches names and attributes by the volume that has them', async (t) => {
  const { calls, options, projects, list } = await started(t, 60_000);
  const { cache } = options;
  const found = await calls.lookup(projects, 'a');
  assert.equal(found.inode, ROOT_A);
  assert.equal(cache.validMs(found), 0, 'nothing of this volume is cached');
  assert.ok(cache.validMs(await calls.lookup(ROOT, 'projects')) > 0);
  assert.ok((cache.nameValidMs?.(projects, 'a', ROOT_A) ?? 0) > 0, 'the name is of the volume above');
  assert.equal(cache.nameValidMs?.(ROOT_A, 'deep', (await calls.lookup(ROOT_A, 'deep')).inode), 0);
  assert.deepEqual(list.opened, ['a']);
});

test('fsync of the root stores the changes of all volumes, and returns each failure once', async (t) => {
  const { calls, a, b } = await started(t);
  const early = await calls.openDirectory(ROOT);
  await walk(calls, 'projects/a/deep/b');
  const late = await calls.openDirectory(ROOT);
  const inA = await created(calls, ROOT_A, 'f', 'text');
  const inB = await created(calls, ROOT_B, 'f', 'text');
  await calls.persistDirectory(ROOT, late);
  assert.deepEqual([a.textAt(ROOT_A, 'f'), b.textAt(ROOT_B, 'f')], ['text', 'text']);
  b.disturb({ writesFail: 'no-space' });
  await calls.write(inB.handle, 4, Buffer.from('lost'), OWNER);
  const noSpace = { code: 'no-space' };
  await assert.rejects(calls.persistDirectory(ROOT, late), noSpace);
  await calls.persistDirectory(ROOT, late);
  await calls.persistDirectory(ROOT_A);
  await calls.persist(inA.handle);
  await assert.rejects(calls.persistDirectory(ROOT, early), noSpace);
  await calls.persistDirectory(ROOT, early);
  for (const handle of [early, late]) await calls.releaseDirectory(handle);
  for (const { handle } of [inA, inB]) await calls.release(handle);
});

test('an unmount stores what is pending in all volumes', async (t) => {
  const { calls, unmount, main, a, b } = await started(t);
  await walk(calls, 'projects/a/deep/b');
  for (const root of [ROOT, ROOT_A, ROOT_B]) await created(calls, root, 'f', 'text');
  await unmount();
  assert.deepEqual(
    [main.textAt(ROOT, 'f'), a.textAt(ROOT_A, 'f'), b.textAt(ROOT_B, 'f')],
    ['text', 'text', 'text'],
  );
  for (const backend of [main, a, b]) assert.ok((backend.calls.settle ?? 0) > 0, 'the file is settled');
});

test('after the unmount no volume begins', async (t) => {
  const { calls, unmount, list, projects } = await started(t);
  await unmount();
  await assert.rejects(calls.lookup(projects, 'a'), { errno: 'ENODEV' });
  assert.deepEqual(list.opened, []);
});

test('a mount becomes read-only in all volumes, and not while a file of any is open for writing', async (t) => {
  const { calls, mounted, a, b } = await started(t);
  const { attributes } = await b.createFile(ROOT_B, 'f', 0o644, OWNER, true);
  await walk(calls, 'projects/a');
  const { handle } = await created(calls, ROOT_A, 'f', 'text');
  await assert.rejects(mounted.remount('ro'), { errno: 'EBUSY' });
  await calls.flush(handle);
  await calls.release(handle);
  await mounted.remount('ro');
  assert.equal(a.textAt(ROOT_A, 'f'), 'text');
  assert.equal(await walk(calls, 'projects/a/deep/b'), ROOT_B);
  for (const root of [ROOT_A, ROOT_B])
    await assert.rejects(calls.makeDirectory(root, 'd', 0o755, OWNER), { errno: 'EROFS' });
  const readIn = async (): Promise<number> => {
    const { handle: reader } = await calls.open(attributes.inode, constants.O_RDONLY, OWNER);
    await calls.read(reader, 0, ALL);
    await calls.release(reader);
    await calls.persistDirectory(ROOT);
    return b.noted.length;
  };
  assert.equal(await readIn(), 0);
  await mounted.remount('rw');
  assert.equal(await readIn(), 1);
  assert.equal((await calls.makeDirectory(ROOT_B, 'd', 0o755, OWNER)).kind, 'directory');
});

test('after a detach, what is open in the volume stays usable', async (t) => {
  const { calls, list, main, a, projects, atA, deep } = await started(t);
  await walk(calls, 'projects/a/deep');
  const { handle } = await created(calls, deep, 'f', 'before');
  list.detach(atA);
  main.removeJunction(projects, 'a');
  await assert.rejects(calls.lookup(projects, 'a'), { code: 'not-found' });
  await calls.write(handle, 0, Buffer.from('after!'), OWNER);
  await calls.persist(handle);
  assert.equal(a.textAt(deep, 'f'), 'after!');
  assert.equal((await calls.lookup(deep, 'f')).inode, calls.inodeOf(handle));
  assert.equal((await calls.makeDirectory(deep, 'd', 0o755, OWNER)).kind, 'directory');
  await calls.release(handle);
  const elsewhere = list.attach(A, main, ROOT, 'again');
  assert.equal(await walk(calls, 'again/deep'), deep);
  assert.deepEqual(list.opened, ['a']);
  assert.notEqual(elsewhere, atA);
});

test('the mounted volume is not entered again below a volume that was attached in it', async (t) => {
  const list = new MemoryAttachments();
  const [a, b] = [list.backend(A), list.backend(B)];
  const { inode: top } = await a.makeDirectory(ROOT_A, 'top', 0o755, OWNER);
  // The mount of a directory of `a`.
  a.start = async () => top;
  const atB = list.attach(B, a, top, 'b');
  const { calls, mounted } = await calledMount(a, list);
  t.after(async () => {
    await mounted.unmount();
    await mounted.ended;
  });
  assert.equal(await walk(calls, 'b'), ROOT_B);
  list.detach(atB);
  const atA = list.attach(A, b, ROOT_B, 'a');
  assert.equal((await calls.lookup(ROOT_B, 'a')).inode, atA);
  await assert.rejects(calls.makeDirectory(atA, 'new', 0o755, OWNER), { errno: 'EXDEV' });
  assert.deepEqual(list.opened, ['b']);
  await calls.makeDirectory(top, 'new', 0o755, OWNER);
  assert.equal(a.inodeAt(top, 'new'), (await calls.lookup(top, 'new')).inode);
});
