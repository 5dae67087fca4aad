/**
 * Goal: an unlinked file is gone for programs of this mount at once, and for all clients before its name is used
 * again. Whatever happens to the request, nothing else is removed.
 * Method: the mount's calls over a cluster in memory that records its requests.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import type { UnlinkedName } from '../../fuse/backend.ts';
import { usualDeadline } from '../../fuse/deadline.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { PendingOps } from '../../fuse/pending/pending-ops.ts';
import { Unlinks } from '../../fuse/pending/unlinks.ts';
import type { FileSystem } from '../../fuse/volume.ts';
import { FORGETS_MAX } from '../../wire/request-limits.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const LIMIT_MS = 5_000;
const USER = { uid: 7, gid: 8 };
const NEW = constants.O_RDWR | constants.O_CREAT;

/**
 * A mount, and a delegated directory with files `f0` to `f<count - 1>`, in which two further files were unlinked at
 * the cluster.
 */
async function started(
  t: TestContext,
  {
    count = 3,
    streakMs = 3_600_000,
    waitMsMax = 60_000,
    deadlineOf = usualDeadline,
    world = systemWorld,
  } = {},
) {
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  const lines: string[] = [];
  const state = births.state(world);
  const log = (_: unknown, message: string): unknown => lines.push(message);
  const options = { streakMs, waitMsMax, deadlineOf };
  const backend = withPendingNames(world, births.backend, births, state, log, options);
  const fileSystem = fileSystemOf(world, backend, ROOT, LIMIT_MS, () => undefined, state);
  let release = (): void => undefined;
  t.after(async () => {
    release();
    await fileSystem.stop();
    await backend.stop();
  });
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  const make = async (name: string) => {
    const { handle, attributes } = await fileSystem.create(directory, name, 0o640, NEW, USER);
    await fileSystem.write(handle, 0, Buffer.from(name), USER);
    await fileSystem.flush(handle);
    await fileSystem.release(handle);
    return attributes.inode;
  };
  const inodes: number[] = [];
  for (let number = 0; number < count; number++) inodes.push(await make(`f${number}`));
  for (const name of ['first', 'second']) await make(name);
  for (const name of ['first', 'second']) await fileSystem.unlink(directory, name, USER.uid);
  /** Holds requests of unlinks until the caller calls the returned function. */
  const hold = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    births.held = promise;
    release = resolve;
    return resolve;
  };
  const unlink = (name: string) => fileSystem.unlink(directory, name, USER.uid);
  const isThere = (name: string) => memory.inodeAt(directory, name) !== undefined;
  const persist = () => fileSystem.persistDirectory(directory);
  return {
    memory,
    births,
    backend,
    fileSystem,
    directory,
    inodes,
    make,
    hold,
    unlink,
    isThere,
    persist,
    lines,
  };
}

async function names(fileSystem: FileSystem, directory: number): Promise<string[]> {
  const handle = await fileSystem.openDirectory(directory);
  const { entries } = await fileSystem.readDirectory(handle, 2, 1_000);
  await fileSystem.releaseDirectory(handle);
  return entries.map(({ name }) => name);
}

/** @returns whether `work` has ended once all work that does not wait has ended */
async function hasEnded(work: Promise<unknown>): Promise<boolean> {
  let ended = false;
  const note = (): void => {
    ended = true;
  };
  void work.then(note, note);
  for (let turns = 0; turns < 20; turns++) await turn();
  return ended;
}

test('an asynchronous unlink returns before its request is sent, and unlinks during a request share the next one', async (t) => {
  const { births, memory, fileSystem, directory, hold, unlink, isThere, persist } = await started(t, {
    count: 8,
  });
  const unlinks = memory.calls.unlink ?? 0;
  const before = (await fileSystem.attributes(directory)).changedNs;
  const release = hold();
  for (let number = 0; number < 8; number++) await unlink(`f${number}`);
  assert.ok(isThere('f0') && isThere('f7'));
  assert.ok(BigInt((await fileSystem.attributes(directory)).changedNs) > BigInt(before));
  await assert.rejects(fileSystem.lookup(directory, 'f5'), { code: 'not-found' });
  // The mount has added nanoseconds for each unlink: the cluster's clock must have passed them.
  await delay(2);
  release();
  await persist();
  assert.deepEqual(births.removals, [['f0'], ['f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7']]);
  assert.equal(isThere('f0') || isThere('f7'), false);
  assert.equal((memory.calls.unlink ?? 0) - unlinks, 8);
  const { changedNs } = await memory.attributes(directory);
  assert.equal(
    (await fileSystem.attributes(directory)).changedNs,
    changedNs,
    'The times are those of the cluster',
  );
});

test('without a streak an unlink waits for the cluster', async (t) => {
  const { births, unlink, isThere } = await started(t, { streakMs: 0 });
  for (const name of ['f0', 'f1', 'f2']) {
    await unlink(name);
    assert.equal(isThere(name), false);
  }
  assert.deepEqual(births.removals, []);
});

test('unlinks of open files, of files with several links, of non-files, and in sticky directories are synchronous', async (t) => {
  const { births, memory, fileSystem, directory, inodes, unlink, isThere } = await started(t, { count: 4 });
  const { handle } = await fileSystem.open(inodes[0] ?? 0, constants.O_RDWR, USER);
  await unlink('f0');
  assert.equal(isThere('f0'), false);
  assert.equal(Buffer.from(await fileSystem.read(handle, 0, 9)).toString(), 'f0');
  await fileSystem.release(handle);
  await fileSystem.link(inodes[1] ?? 0, ROOT, 'second');
  await unlink('f1');
  assert.equal((await memory.lookup(ROOT, 'second')).links, 1);
  await fileSystem.symlink(directory, 'l', 'f2', USER);
  await unlink('l');
  await fileSystem.setAttributes(directory, { mode: 0o1777 });
  await unlink('f2');
  assert.equal(isThere('f2'), false);
  assert.deepEqual(births.removals, []);
});

test('a single unlink, which other clients may watch for, is synchronous, and so are the first of a streak', async (t) => {
  const { births, fileSystem, directory, make, unlink, isThere } = await started(t, { count: 4 });
  await make('other');
  for (const name of ['f0', 'f1']) {
    await unlink(name);
    assert.equal(isThere(name), false);
  }
  await fileSystem.rename({ parent: directory, name: 'f2' }, { parent: directory, name: 'f4' }, 0);
  await unlink('other');
  assert.equal(isThere('other'), false);
  assert.deepEqual(births.removals, []);
});

test('locks and unlocks wait until earlier unlinks are at the cluster', async (t) => {
  const { fileSystem, hold, unlink } = await started(t);
  const { handle } = await fileSystem.create(ROOT, 'database', 0o600, NEW, USER);
  const { signal } = new AbortController();
  const lock = (type: 'exclusive' | 'unlock') =>
    fileSystem.lock(handle, { kind: 'posix', type, start: 0n, end: 9n, owner: 1n, pid: 1 }, false, signal);
  await lock('exclusive');
  const release = hold();
  await unlink('f0');
  const given = lock('unlock');
  assert.equal(await hasEnded(given), false);
  release();
  await given;
  await fileSystem.release(handle);
});

for (const fate of ['lost-before', 'lost-after'] as const) {
  test(`an unlink whose request or answer was lost is executed once (${fate})`, async (t) => {
    const { births, hold, unlink, isThere, persist, lines } = await started(t);
    births.removalFate = fate;
    const release = hold();
    await unlink('f0');
    await unlink('f1');
    release();
    await persist();
    assert.deepEqual([isThere('f0'), isThere('f1'), isThere('f2')], [false, false, true]);
    assert.deepEqual(births.removals, [['f0'], ['f0'], ['f1']]);
    assert.deepEqual(lines, []);
  });
}

test('fsync returns the error of a refused unlink once, the file is there again, and the next unlinks are synchronous', async (t) => {
  const { births, fileSystem, directory, inodes, unlink, isThere, persist, lines } = await started(t, {
    count: 4,
  });
  births.removalFate = 'refused';
  await unlink('f0');
  await assert.rejects(persist(), { errno: 'EIO' });
  await persist();
  assert.equal((await fileSystem.lookup(directory, 'f0')).inode, inodes[0]);
  assert.deepEqual(lines, ['an unlinked file still exists']);
  const requests = births.removals.length;
  for (const name of ['f1', 'f2']) {
    await unlink(name);
    assert.equal(isThere(name), false);
  }
  assert.equal(births.removals.length, requests, 'Synchronous');
  await unlink('f3');
  await assert.rejects(fileSystem.persistDirectory(ROOT), { errno: 'EIO' });
});

test('a recall of a directory waits until its unlinks are at the cluster', async (t) => {
  const { births, directory, hold, unlink, isThere } = await started(t);
  const release = hold();
  await unlink('f0');
  await unlink('f1');
  const recalled = births.recall(directory);
  assert.equal(await hasEnded(recalled), false);
  assert.ok(isThere('f1'));
  release();
  await recalled;
  assert.deepEqual([isThere('f0'), isThere('f1')], [false, false]);
  const requests = births.removals.length;
  await unlink('f2');
  assert.equal(births.removals.length, requests, 'Synchronous');
});

test('the name of a pending unlink is used again after the unlink', async (t) => {
  const { memory, fileSystem, directory, inodes, hold, unlink } = await started(t, { count: 4 });
  const release = hold();
  for (const name of ['f0', 'f1', 'f2']) await unlink(name);
  const created = fileSystem.create(directory, 'f0', 0o640, NEW, USER);
  const others = [
    fileSystem.makeDirectory(directory, 'f1', 0o755, USER),
    fileSystem.rename({ parent: directory, name: 'f3' }, { parent: directory, name: 'f2' }, 1),
  ];
  for (const work of [created, ...others]) assert.equal(await hasEnded(work), false);
  release();
  const { handle, attributes } = await created;
  await fileSystem.flush(handle);
  await fileSystem.release(handle);
  await Promise.all(others);
  assert.notEqual(attributes.inode, inodes[0]);
  assert.equal(memory.inodeAt(directory, 'f0'), attributes.inode);
  assert.equal(memory.inodeAt(directory, 'f2'), inodes[3]);
  assert.deepEqual(await names(fileSystem, directory), ['f0', 'f1', 'f2']);
  await unlink('f2');
  await fileSystem.persistDirectory(directory);
  assert.equal(memory.inodeAt(directory, 'f2'), undefined, 'The mount knows which file was renamed');
});

test('a listing, a change of the directory’s times and its removal wait for unlinks in it', async (t) => {
  const { memory, fileSystem, directory, hold, unlink } = await started(t);
  let release = hold();
  await unlink('f0');
  const listed = names(fileSystem, directory);
  assert.equal(await hasEnded(listed), false);
  release();
  assert.deepEqual(await listed, ['f1', 'f2']);
  release = hold();
  await unlink('f1');
  const timed = fileSystem.setAttributes(directory, { modified: { kind: 'time', ns: 5_000n } });
  assert.equal(await hasEnded(timed), false);
  release();
  await timed;
  assert.equal((await memory.attributes(directory)).modifiedNs, '5000');
  await unlink('f2');
  await fileSystem.removeDirectory(ROOT, 'd');
  await assert.rejects(fileSystem.lookup(ROOT, 'd'), { code: 'not-found' });
});

test('a query of an unlinked file by number, and its open, wait until it is unlinked', async (t) => {
  const { fileSystem, inodes, hold, unlink } = await started(t);
  const release = hold();
  await unlink('f0');
  const [inode = 0] = inodes;
  const asked = [fileSystem.attributes(inode), fileSystem.open(inode, constants.O_RDONLY, USER)] as const;
  for (const work of asked) assert.equal(await hasEnded(work), false);
  release();
  assert.equal((await asked[0]).links, 0);
  await assert.rejects(asked[1], { errno: 'ESTALE' });
});

test('a write and a creation that exceed the quota are repeated after pending unlinks', async (t) => {
  const { memory, births, fileSystem, directory, make, hold, unlink } = await started(t);
  const { handle } = await fileSystem.create(ROOT, 'other', 0o600, NEW, USER);
  let release = hold();
  await unlink('f0');
  memory.disturb({ writesFail: 'quota-exceeded' });
  await fileSystem.write(handle, 0, Buffer.from('other'), USER);
  const synced = fileSystem.persist(handle);
  assert.equal(await hasEnded(synced), false);
  memory.disturb({ writesFail: null });
  release();
  await synced;
  await fileSystem.release(handle);
  assert.equal(memory.textAt(ROOT, 'other'), 'other');
  release = hold();
  await unlink('f1');
  births.fate = 'refused';
  const made = make('new');
  assert.equal(await hasEnded(made), false);
  release();
  await made;
  assert.equal(memory.textAt(directory, 'new'), 'new');
});

test('the number of pending unlinks is bounded', async (t) => {
  // Its clock stands still: otherwise unlinks would be synchronous once one has been pending for long.
  const world = { ...systemWorld, nowMs: () => 1_000 };
  const { births, hold, unlink, isThere, persist } = await started(t, { count: 501, world });
  const release = hold();
  for (let number = 0; number < 500; number++) await unlink(`f${number}`);
  const last = unlink('f500');
  assert.equal(await hasEnded(last), false);
  release();
  await last;
  await persist();
  assert.equal(isThere('f500'), false);
  assert.deepEqual(
    births.removals.map(({ length }) => length),
    [1, 256, 244],
  );
});

test('a directory in which many files are unlinked gets delegated, and its names are read page by page', async (t) => {
  const { births, memory, fileSystem, persist } = await started(t, { count: 0 });
  const { inode: old } = await memory.makeDirectory(ROOT, 'old', 0o755, USER);
  const count = 1_100;
  for (let number = 0; number < count; number++) {
    const { attributes } = await memory.createFile(
      old,
      `f${String(number).padStart(4, '0')}`,
      0o600,
      USER,
      true,
    );
    await memory.openFile(attributes.inode).settle();
  }
  const ask = births.asked.count;
  for (let number = 0; number < 7; number++) await fileSystem.unlink(old, `f000${number}`);
  assert.equal(births.asked.count, ask);
  const unlinks = memory.calls.unlink ?? 0;
  for (let number = 7; number < count; number++) {
    await fileSystem.unlink(old, `f${String(number).padStart(4, '0')}`);
    await turn();
  }
  await fileSystem.persistDirectory(old);
  await persist();
  assert.equal(births.asked.count, ask + 1);
  assert.deepEqual((await memory.list(old, '', 10)).entries, []);
  const behind = births.removals.flat().length;
  assert.ok(behind > count - 50, `${behind} of ${count} were asynchronous`);
  assert.equal((memory.calls.unlink ?? 0) - unlinks, count - 7);
});

test('a directory that was recalled for a synchronous unlink of this mount is requested again', async (t) => {
  const { births, memory, directory, unlink } = await started(t, { count: 12 });
  births.end();
  memory.disturb({ stalled: true });
  const first = unlink('f0');
  assert.equal(await hasEnded(first), false);
  await births.recall(directory);
  memory.disturb({ stalled: false });
  await first;
  const { count } = births.asked;
  for (let number = 1; number < 12; number++) {
    await unlink(`f${number}`);
    await turn();
  }
  assert.equal(births.asked.count, count + 1);
});

test('an unlink that fails ends the streak', async (t) => {
  const { births, unlink, isThere } = await started(t);
  await assert.rejects(unlink('nothing'), { code: 'not-found' });
  for (const name of ['f0', 'f1']) {
    await unlink(name);
    assert.equal(isThere(name), false);
  }
  assert.deepEqual(births.removals, []);
});

test('a pending unlink stays in effect on this mount, and a call that waits for it fails in time', async (t) => {
  const { births, directory, fileSystem, hold, unlink, persist, isThere, lines } = await started(t, {
    waitMsMax: 50,
  });
  const answer = hold();
  births.removalFate = 'lost-before';
  for (const name of ['f0', 'f1', 'f2']) await unlink(name);
  await assert.rejects(persist(), { code: 'no-majority' });
  await assert.rejects(fileSystem.lookup(directory, 'f0'), { code: 'not-found' });
  answer();
  await until('they are gone', async () => !isThere('f0') && !isThere('f2'));
  await persist();
  assert.deepEqual(lines, []);
});

test('unlinks of an ended delegation are dropped, and each descriptor of the directory returns the error once', async (t) => {
  const { births, memory, fileSystem, directory, inodes, hold, unlink, isThere, lines } = await started(t);
  const before = await fileSystem.openDirectory(directory);
  const release = hold();
  await unlink('f0');
  await unlink('f1');
  births.end();
  await memory.openFile(inodes[1] ?? 0).write(0, [Buffer.from('by another')]);
  release();
  await until('they are dropped', async () => lines.length === 2);
  assert.deepEqual([isThere('f0'), isThere('f1')], [true, true]);
  assert.equal(memory.textAt(directory, 'f1'), 'by another');
  assert.equal((await fileSystem.lookup(directory, 'f0')).inode, inodes[0]);
  const after = await fileSystem.openDirectory(directory);
  for (const handle of [before, after]) {
    await assert.rejects(fileSystem.persistDirectory(directory, handle), { code: 'fence-lost' });
    await fileSystem.persistDirectory(directory, handle);
  }
  await fileSystem.persistDirectory(directory, await fileSystem.openDirectory(directory));
});

test('a file that another client has written after its unlink returned keeps its name', async (t) => {
  const { memory, directory, inodes, hold, unlink, persist, isThere } = await started(t);
  const release = hold();
  await unlink('f0');
  await unlink('f1');
  await memory.openFile(inodes[1] ?? 0).write(0, [Buffer.from('by another')]);
  release();
  await assert.rejects(persist(), { code: 'fence-lost' });
  assert.deepEqual([isThere('f0'), memory.textAt(directory, 'f1')], [false, 'by another']);
});

test('a file that this mount has written is unlinked by its current version', async (t) => {
  const { births, fileSystem, inodes, unlink, isThere, persist, lines } = await started(t);
  const { handle } = await fileSystem.open(inodes[0] ?? 0, constants.O_RDWR, USER);
  await fileSystem.write(handle, 0, Buffer.from('more'), USER);
  await fileSystem.flush(handle);
  await fileSystem.release(handle);
  await turn();
  await unlink('f0');
  await persist();
  assert.equal(isThere('f0'), false);
  assert.deepEqual([births.removals, lines], [[['f0']], []]);
});

test('the end of a mount waits for unlinks as long as a call may, and then drops them', async (t) => {
  const { backend, hold, unlink, isThere, lines } = await started(t, { waitMsMax: 50 });
  hold();
  await unlink('f0');
  await backend.stop();
  assert.deepEqual([isThere('f0'), lines], [true, ['an unlinked file still exists']]);
});

test('calls and the end of a mount wait for unlinks beyond their limit while the volume moves', async (t) => {
  const { backend, hold, unlink, persist, isThere, lines } = await started(t, {
    ...{ waitMsMax: 50, deadlineOf: (beganMs: number) => beganMs + LIMIT_MS },
  });
  const answer = hold();
  await unlink('f0');
  const persisted = persist();
  const stopped = backend.stop();
  await delay(200);
  answer();
  await persisted;
  await stopped;
  assert.deepEqual([isThere('f0'), lines], [false, []]);
});

/** Unlinks without a mount, and their requests; these are answered once the test calls `answer`. */
function begun(
  refused: readonly string[] = [],
  atNs: string | null = null,
  changed: (directories: readonly number[]) => Promise<void> = () => Promise.resolve(),
) {
  const requests: { readonly names: readonly UnlinkedName[]; readonly uid: number | undefined }[] = [];
  const { promise, resolve: answer } = Promise.withResolvers<void>();
  const removals = new Unlinks(
    systemWorld,
    new PendingOps(systemWorld),
    {
      async unlink(removed, { uid }) {
        requests.push({ names: removed, uid });
        await promise;
        const outcome = (name: string) =>
          refused.includes(name)
            ? ({ kind: 'refused', error: new Error(`Refused: ${name}`) } as const)
            : ({ kind: 'removed' } as const);
        return { outcomes: removed.map(({ name }) => outcome(name)), atNs };
      },
    },
    { removed: () => undefined, failed: () => undefined, changed },
    60_000,
  );
  const add = (parent: number, name: string, { inode = parent, uid = 0, session = 1 } = {}) => {
    const fence = { client: 1, session, inode: parent, generation: 1 };
    return removals.add({ parent, name, inode, contents: { epoch: 1, seq: 1 }, fence }, uid);
  };
  return { removals, add, requests, answer };
}

test('a request has unlinks in at most so many directories, of one user and one session', async () => {
  const { removals, add, requests, answer } = begun();
  const directories = 3 * FORGETS_MAX;
  for (let parent = 1; parent <= directories; parent++)
    for (const name of ['a', 'b'])
      add(parent, name, { uid: parent % 5 === 0 ? 1 : 2, session: parent % 7 === 0 ? 1 : 2 });
  answer();
  await removals.flush({ kind: 'all' });
  for (const { names: removed, uid } of requests) {
    assert.ok(new Set(removed.map(({ parent }) => parent)).size <= FORGETS_MAX);
    assert.deepEqual([...new Set(removed.map(({ parent }) => (parent % 5 === 0 ? 1 : 2)))], [uid]);
    assert.equal(new Set(removed.map(({ parent }) => parent % 7 === 0)).size, 1);
  }
  assert.equal(requests.flatMap(({ names: removed }) => removed).length, 2 * directories);
});

test('a change that fails during unlinks, but not by a quota, is not repeated', async () => {
  const { removals, add, answer } = begun();
  add(1, 'a');
  let tried = 0;
  const change = () => {
    tried++;
    return Promise.reject(new Error('By intent'));
  };
  const changed = assert.rejects(removals.withQuota(change), /By intent/);
  answer();
  await changed;
  assert.equal(tried, 1);
});

test('the time of an unlink is no earlier than the cluster’s last answer', async () => {
  const aheadNs = BigInt(Date.now()) * 1_000_000n + 3_600_000_000_000n;
  const { removals, add, answer } = begun([], String(aheadNs));
  assert.ok(BigInt(add(1, 'a')) < aheadNs);
  answer();
  await removals.flush({ kind: 'all' });
  assert.ok(BigInt(add(1, 'b')) >= aheadNs);
  await removals.flush({ kind: 'all' });
});

test('callers that wait for unlinks continue after the kernel has dropped the times of the directory', async () => {
  const { promise: dropped, resolve: drop } = Promise.withResolvers<void>();
  const told: (readonly number[])[] = [];
  const { removals, add, answer } = begun([], null, (directories) => {
    told.push(directories);
    return dropped;
  });
  add(1, 'a');
  let isOver = false;
  const flushed = removals.flush({ kind: 'all' }).then(() => {
    isOver = true;
  });
  answer();
  for (let turns = 0; turns < 20; turns++) await turn();
  assert.deepEqual([told, isOver], [[[1]], false]);
  let isLaterOver = false;
  const later = removals.flush({ kind: 'inode', inode: 1 }).then(() => {
    isLaterOver = true;
  });
  await turn();
  assert.equal(isLaterOver, false, 'Later callers wait as well');
  drop();
  await Promise.all([flushed, later]);
});
