/**
 * Goal: what a mount creates or removes before it sends the request has the result that the cluster would have given,
 * in the order of the programs' calls, also if other clients use the directory.
 * Method: the calls of a mount's backend over a cluster in memory, in which the test can hold any call.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, FileSystemBackend } from '../../fuse/backend.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { UNCOMMITTED_MS_MAX } from '../../fuse/pending/uncommitted-files.ts';
import { SLOW_MS } from '../../fuse/pending/unlinks.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const USER = { uid: 7, gid: 8 };
const ROW_MS = 100;

type Call = (...argv: never[]) => Promise<unknown>;

/** Runs the event loop until all work that is due, and what follows from it, has ended. */
async function settled(): Promise<void> {
  for (let turns = 0; turns < 20; turns++) await turn();
}

async function hasEnded(work: Promise<unknown>): Promise<boolean> {
  let ended = false;
  const note = (): void => {
    ended = true;
  };
  void work.then(note, note);
  await settled();
  return ended;
}

/**
 * A mount's backend with a clock that the test moves, and a delegated directory with one file that the cluster has.
 */
async function started(t: TestContext, { mode = 0o755, gid = USER.gid, policy = 'quorum' as const } = {}) {
  const clock = { nowMs: 0 };
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  const pass = (ms: number): void => {
    clock.nowMs += ms;
    t.mock.timers.tick(ms);
  };
  const memory = new MemoryBackend();
  Object.assign(memory, { policy });
  const births = new MemoryBirths(memory);
  const holds: (() => void)[] = [];
  /**
   * Holds the next call of `name` until the caller calls the returned function: before its execution, or with
   * `isAnswerHeld` after it.
   */
  const hold = (
    of: object,
    name: keyof FileSystemBackend | keyof MemoryBirths,
    isAnswerHeld = false,
  ): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    holds.push(resolve);
    const call = (Reflect.get(of, name) as Call).bind(of);
    const held: Call = async (...argv) => {
      Object.assign(of, { [name]: call });
      if (!isAnswerHeld) await promise;
      const answer = call(...argv);
      if (isAnswerHeld) await Promise.allSettled([answer, promise]);
      return answer;
    };
    Object.assign(of, { [name]: held });
    return resolve;
  };
  const cluster: FileSystemBackend = births.backend;
  const lines: string[] = [];
  const state = births.state(world);
  const { cache, pending } = state;
  const log = (_: unknown, message: string): unknown => lines.push(message);
  const backend = withPendingNames(world, cluster, births, state, log, { streakMs: ROW_MS });
  t.after(async () => {
    for (const release of holds) release();
    await backend.stop();
  });
  const { inode: directory } = await backend.makeDirectory(ROOT, 'd', mode, { uid: USER.uid, gid });
  const make = (name: string, owner = {}, at = directory) =>
    backend.createFile(at, name, 0o666, { ...USER, ...owner }, false);
  const file = ({ inode, replicas, contents }: Attributes) => backend.openFile(inode, replicas, contents);
  /** Creates files at the cluster. */
  const made = async (...names: string[]): Promise<number[]> => {
    const inodes: number[] = [];
    for (const name of names) {
      const { attributes } = await make(name);
      await file(attributes).settle();
      inodes.push(attributes.inode);
    }
    return inodes;
  };
  const unlink = (name: string) => backend.unlink(directory, name);
  /** Two unlinks at the cluster: those that follow are a streak. */
  const row = async (): Promise<void> => {
    await made('row 1', 'row 2');
    for (const name of ['row 1', 'row 2']) await unlink(name);
  };
  await made('first');
  await settled();
  const isThere = (name: string): boolean => memory.inodeAt(directory, name) !== undefined;
  return {
    ...{ clock, pass, memory, births, cluster, hold, lines, backend, directory },
    ...{ cache, pending, isDelegated: (inode: number) => cache.delegations.of(inode) !== undefined },
    ...{ make, made, file, unlink, row, isThere },
  };
}

const isNotFound = { code: 'not-found' };

// Attributes of new files.

test('a new file has its mode reduced by the umask, and the group of a set-group-id directory', async (t) => {
  const { make, memory, file, directory } = await started(t, { mode: 0o2775, gid: 50 });
  const { attributes, uncommitted } = await make('f', { umask: 0o027 });
  assert.deepEqual(
    [uncommitted, attributes.mode, attributes.uid, attributes.gid],
    [true, 0o640, USER.uid, 50],
  );
  await file(attributes).settle();
  const { mode, uid, gid } = await memory.lookup(directory, 'f');
  assert.deepEqual([mode, uid, gid], [0o640, USER.uid, 50]);
});

test('a change of an inherited group goes to the cluster, which decides about the set-group-id bit', async (t) => {
  const { make, memory, backend, directory } = await started(t, { mode: 0o2775, gid: 50 });
  const { attributes } = await make('f');
  assert.equal((await backend.setAttributes(attributes.inode, { gid: 60 })).gid, 60);
  assert.equal((await memory.lookup(directory, 'f')).gid, 60);
});

test('a change of the owner of a new file clears its set-user-id and set-group-id bits', async (t) => {
  const { make, memory, backend, file, directory } = await started(t);
  const { attributes } = await make('f');
  await backend.setAttributes(attributes.inode, { mode: 0o6755 });
  assert.equal((await backend.setAttributes(attributes.inode, { uid: 70 })).mode, 0o755);
  await file(attributes).settle();
  assert.equal((await memory.lookup(directory, 'f')).mode, 0o755);
});

test('an access time that is set on a new file is stored, also if the creation with contents fails', async (t) => {
  const { make, memory, births, backend, file, directory } = await started(t);
  for (const [name, fate] of [
    ['f', 'born'],
    ['g', 'unborn'],
  ] as const) {
    births.fate = fate;
    const { attributes } = await make(name);
    await backend.setAttributes(attributes.inode, { accessedNs: '5000' });
    await file(attributes).settle();
    assert.equal((await memory.lookup(directory, name)).accessedNs, '5000', fate);
  }
});

test('files are created at the cluster if the directory has a default ACL, or the volume an update policy without create with contents', async (t) => {
  const inheriting = await started(t);
  const { backend, directory, isDelegated } = inheriting;
  await backend.setXattr(directory, 'system.posix_acl_default', Buffer.from('x'), 'set');
  // The delegation is requested again when the next files are created.
  for (const name of ['a', 'b']) assert.equal((await inheriting.make(name)).uncommitted, undefined);
  await settled();
  assert.ok(isDelegated(directory));
  assert.equal((await inheriting.make('c')).uncommitted, undefined);
  t.mock.reset();
  const sealing = await started(t, { policy: 'read-only' as 'quorum' });
  for (const name of ['a', 'b']) assert.equal((await sealing.make(name)).uncommitted, undefined);
});

test('the kernel’s times of a directory are updated once creations and unlinks in it are at the cluster', async (t) => {
  const { make, memory, births, file, directory, row, made, unlink, cache } = await started(t);
  const told: (string | null)[] = [];
  t.mock.method(cache, 'directoryChanged', (of: number, atNs: string | null) => {
    if (of === directory) told.push(atNs);
  });
  const { attributes } = await make('f');
  await file(attributes).settle();
  assert.deepEqual(told, [(await memory.attributes(directory)).changedNs]);
  await made('g');
  await row();
  births.removalFate = 'refused';
  told.length = 0;
  await unlink('g');
  await settled();
  assert.deepEqual(told, [null], 'The times that were shown for the unlink do not hold');
});

test('a query of extended attributes of a new file, or a removal of one, creates the file at the cluster first', async (t) => {
  const { make, backend, isThere } = await started(t);
  for (const [name, work] of [
    ['a', (inode: number) => backend.xattrs(inode)],
    ['b', (inode: number) => backend.xattr(inode, 'user.a')],
    ['c', (inode: number) => backend.removeXattr(inode, 'user.a')],
  ] as const) {
    const { attributes, uncommitted } = await make(name);
    assert.equal(uncommitted, true);
    await work(attributes.inode).catch((error: ServiceError) => assert.equal(error.code, 'no-attribute'));
    assert.ok(isThere(name), name);
  }
});

test('a query of security.capability of a new file is answered without the cluster', async (t) => {
  const { make, backend, isThere } = await started(t);
  const { attributes } = await make('a');
  await assert.rejects(backend.xattr(attributes.inode, 'security.capability'), { code: 'no-attribute' });
  assert.equal(isThere('a'), false);
});

// Listings.

test('a page of a directory has each uncommitted file of that directory once', async (t) => {
  const { make, made, births, cluster, backend, directory, hold, file } = await started(t);
  await made('b', 'd', 'f');
  const { inode: other } = await backend.makeDirectory(ROOT, 'other', 0o755, USER);
  await make('elsewhere', {}, other);
  for (const name of ['a', 'c', 'e', 'g']) await make(name);
  const names: string[][] = [];
  for (let after = '', more = true; more; ) {
    const page = await backend.list(directory, after, 2);
    names.push(page.entries.map(({ name }) => name));
    ({ more } = page);
    after = page.entries.at(-1)?.name ?? '';
  }
  assert.deepEqual(names.flat(), ['a', 'b', 'c', 'd', 'e', 'f', 'first', 'g']);
  assert.equal(births.requests.length, 3, 'The cluster has none of them');
  // A file that is created during the request is in the answer already.
  const { attributes } = await make('late');
  const answer = hold(cluster, 'list');
  const listed = backend.list(directory, 'g', 10);
  await file(attributes).settle();
  answer();
  assert.deepEqual(
    (await listed).entries.map(({ name }) => name),
    ['late'],
  );
});

// When uncommitted files are sent.

test('each file that stays open is created at the cluster a fixed time after its creation here', async (t) => {
  const { make, isThere, pass } = await started(t);
  await make('a');
  pass(100);
  await make('b');
  pass(UNCOMMITTED_MS_MAX - 100);
  await settled();
  assert.deepEqual([isThere('a'), isThere('b')], [true, false]);
  pass(100);
  await settled();
  assert.ok(isThere('b'));
});

test('the end of the cache session, and of the mount, sends uncommitted files to the cluster', async (t) => {
  const { make, births, backend, isThere } = await started(t);
  await make('a');
  births.end();
  await settled();
  assert.ok(isThere('a'));
  await make('b');
  await make('c');
  await settled();
  assert.equal((await make('d')).uncommitted, true);
  await backend.stop();
  assert.ok(isThere('d'));
});

test('a creation waits while there are too many uncommitted files, unless it is one at the cluster', async (t) => {
  const { make, memory, file, directory } = await started(t);
  const kept: Attributes[] = [];
  const fill = async (prefix: string): Promise<boolean> => {
    const { attributes, uncommitted } = await make(`${prefix}${kept.length}`);
    kept.push(attributes);
    // Reserved numbers arrive meanwhile.
    await turn();
    return uncommitted === true;
  };
  while (kept.length < 2_000) assert.ok(await fill('f'));
  const waiting = make('more');
  assert.equal(await hasEnded(waiting), false);
  assert.equal((await make('elsewhere', {}, ROOT)).uncommitted, undefined, 'The root is not delegated');
  const [first] = kept as [Attributes];
  await file(first).settle();
  assert.equal((await waiting).uncommitted, true);
  await Promise.all(kept.map((one) => file(one).settle()));
  // The same for too many bytes of uncommitted files.
  const bytes = new Uint8Array(256 * 1024);
  for (let count = 0; count < 64; count++) {
    const { attributes } = await make(`large ${count}`);
    await file(attributes).write(0, [bytes]);
  }
  assert.equal(memory.inodeAt(directory, 'large 0'), undefined);
  const { attributes } = await make('one more');
  await file(attributes).write(0, [bytes.subarray(0, 1)]);
  const last = make('last');
  assert.equal(await hasEnded(last), false);
  await file(attributes).settle();
  await last;
});

// Changes by other clients.

test('names that were cached before a recall or the end of the cache session are not used after the next delegation', async (t) => {
  const { make, memory, births, cluster, backend, directory, hold, pass, isDelegated } = await started(t);
  for (const [name, end] of [
    ['called back', () => births.recall(directory)],
    ['over', () => births.end()],
  ] as const) {
    await end();
    await memory.createFile(directory, name, 0o600, USER, true);
    // The delegation is not requested at once: another client creates names in the directory.
    pass(60_000);
    await make(`${name} 1`);
    const answer = hold(cluster, 'attributes');
    await make(`${name} 2`);
    await settled();
    assert.ok(births.isDelegated(directory));
    assert.equal((await backend.lookup(directory, name)).mode, 0o600, name);
    answer();
    await settled();
    assert.ok(isDelegated(directory), name);
  }
});

test('after a recall a directory is not requested for five seconds', async (t) => {
  const { make, births, directory, pass } = await started(t);
  await births.recall(directory);
  const { count } = births.asked;
  for (const name of ['a', 'b', 'c']) await make(name);
  await settled();
  assert.equal(births.asked.count, count);
  pass(5_001);
  for (const name of ['d', 'e']) await make(name);
  await settled();
  assert.equal(births.asked.count, count + 1);
});

test('while the catalog is out of reach no delegation is requested', async (t) => {
  const { make, births, cluster } = await started(t);
  let isAway = true;
  Object.assign(cluster, { isCatalogUnavailable: () => isAway });
  births.end();
  const { count } = births.asked;
  for (const name of ['a', 'b', 'c']) await make(name);
  await settled();
  assert.equal(births.asked.count, count);
  isAway = false;
  await make('d');
  await settled();
  assert.equal(births.asked.count, count + 1);
});

test('the answer of a look-up that began before a rename is not cached after it', async (t) => {
  const { make, made, cluster, backend, directory, hold } = await started(t);
  await made('f');
  const at = (name: string) => ({ parent: directory, name });
  // If a file has two names, the mount does not know what a rename of one did.
  await backend.link((await backend.lookup(directory, 'f')).inode, directory, 'other');
  await backend.rename(at('f'), at('g'), 'replace');
  const answer = hold(cluster, 'lookup', true);
  const asked = assert.rejects(backend.lookup(directory, 'f'), isNotFound);
  await settled();
  const { attributes } = await make('f');
  answer();
  await asked;
  assert.equal((await backend.lookup(directory, 'f')).inode, attributes.inode);
});

test('a change of a directory applies to files created meanwhile and later; files created before are sent first', async (t) => {
  const { make, memory, cluster, backend, file, directory, hold, isDelegated } = await started(t);
  const { attributes } = await make('before');
  await backend.setAttributes(directory, { modifiedNs: '5000' });
  await file(attributes).settle();
  assert.equal((await memory.attributes(directory)).modifiedNs, '5000');
  for (const name of ['a', 'b']) await make(name);
  await settled();
  assert.ok(isDelegated(directory));
  const answer = hold(cluster, 'setAttributes');
  const changing = backend.setAttributes(directory, { mode: 0o2755, gid: 50 });
  await settled();
  const making = make('meanwhile');
  await settled();
  answer();
  await changing;
  await file((await making).attributes).settle();
  await file((await make('afterwards')).attributes).settle();
  assert.equal((await memory.lookup(directory, 'afterwards')).gid, 50);
  assert.equal((await making).uncommitted, undefined, 'The cluster decides about its attributes');
});

// Unlinks.

test('an unlinked name is gone on this mount at once, also after the cache session ended before the request was sent', async (t) => {
  const { made, births, backend, directory, hold, row, unlink, isThere } = await started(t);
  await made('a', 'b');
  await row();
  const answer = hold(births, 'unlink');
  assert.equal((await unlink('a')).isPending, true);
  await assert.rejects(backend.lookup(directory, 'a'), isNotFound);
  const again = unlink('a');
  births.end();
  await assert.rejects(backend.lookup(directory, 'a'), isNotFound);
  assert.ok(isThere('a'));
  answer();
  // The first unlink was dropped: its delegation has ended.
  assert.equal((await again).isPending, undefined);
  assert.equal(isThere('a'), false);
});

test('a mount with leases estimates the times of a directory with pending unlinks while it is delegated', async (t) => {
  const { made, row, hold, births, cluster, memory, backend, unlink, directory } = await started(t);
  Object.assign(cluster, { caches: true });
  await made('a', 'b');
  await row();
  const before = await backend.attributes(directory);
  const remove = hold(births, 'unlink');
  await unlink('a');
  assert.ok(backend.isChanging(directory), 'The kernel caches no times of it');
  const estimated = await backend.attributes(directory);
  assert.ok(BigInt(estimated.modifiedNs) > BigInt(before.modifiedNs));
  assert.equal(estimated.changedNs, estimated.modifiedNs);
  births.end();
  const waiting = backend.attributes(directory);
  assert.equal(await hasEnded(waiting), false, 'Other clients may have seen the directory since');
  remove();
  assert.deepEqual(await waiting, await memory.attributes(directory));
  assert.equal(backend.isChanging(directory), false);
});

test('the kernel caches a delegated directory with the times after its latest unlink', async (t) => {
  const { made, row, hold, births, cluster, memory, backend, directory, unlink } = await started(t);
  await made('a', 'b');
  await row();
  const granted = await memory.attributes(directory);
  Object.assign(cluster, { caches: true, grantedAttributes: () => granted });
  const remove = hold(births, 'unlink');
  await unlink('a');
  const after = await backend.attributes(directory);
  assert.ok(backend.delegatedAttributesMs(after) > 0);
  assert.equal(backend.delegatedAttributesMs(granted), 0, 'These times are from before the unlink');
  Object.assign(cluster, { grantedAttributes: () => undefined });
  assert.equal(backend.delegatedAttributesMs(after), 0, 'The current attributes are not known');
  Object.assign(cluster, { grantedAttributes: () => granted });
  births.end();
  assert.equal(backend.delegatedAttributesMs(after), 0, 'Other clients may change the directory');
  remove();
});

test('a mount with leases uses no grant of a file whose unlink is pending', async (t) => {
  const { made, row, hold, births, cluster, memory, backend, directory, unlink } = await started(t);
  await made('a', 'b');
  await row();
  const inode = memory.inodeAt(directory, 'a') ?? 0;
  const granted = await memory.attributes(inode);
  Object.assign(cluster, { caches: true, grantedAttributes: () => granted });
  assert.deepEqual(backend.grantedAttributes(inode), granted);
  const remove = hold(births, 'unlink');
  await unlink('a');
  assert.equal(backend.grantedAttributes(inode), undefined, 'The file has no name now');
  const waiting = backend.attributes(inode);
  assert.equal(await hasEnded(waiting), false);
  remove();
  assert.equal((await waiting).links, 0);
  assert.deepEqual(backend.grantedAttributes(inode), granted, 'The client library drops the grant by itself');
});

test('a name that was unlinked synchronously is free for a new file at once', async (t) => {
  const { make, made, unlink } = await started(t);
  await made('a');
  assert.equal((await unlink('a')).isPending, undefined);
  assert.equal((await make('a')).uncommitted, true);
});

test('an unlink long after the last one is synchronous', async (t) => {
  const { made, row, unlink, pass } = await started(t);
  await made('a', 'b', 'c');
  await row();
  for (const name of ['a', 'b']) assert.equal((await unlink(name)).isPending, true);
  await settled();
  pass(ROW_MS);
  assert.equal((await unlink('c')).isPending, undefined);
});

test('unlinks are synchronous while the cluster has not answered one for long', async (t) => {
  const { made, births, hold, row, unlink, pass } = await started(t);
  const names = Array.from({ length: 14 }, (_, number) => `f${number}`);
  await made(...names);
  await row();
  const answer = hold(births, 'unlink');
  const stepMs = ROW_MS - 1;
  for (const [place, name] of names.entries()) {
    assert.equal((await unlink(name)).isPending, place * stepMs > SLOW_MS ? undefined : true, name);
    pass(stepMs);
  }
  answer();
  await settled();
});

test('a second unlink of a name fails', async (t) => {
  const { made, row, unlink } = await started(t);
  await made('a', 'b');
  await row();
  await unlink('a');
  await settled();
  await assert.rejects(unlink('a'), isNotFound);
});

test('in a directory with the sticky bit unlinks are synchronous, as the cluster decides who may remove what', async (t) => {
  const { made, row, unlink } = await started(t, { mode: 0o1777 });
  await made('a');
  await row();
  assert.equal((await unlink('a')).isPending, undefined);
});

test('operations that depend on pending unlinks wait for them: of the file, of its directory, and those that exceed a quota', async (t) => {
  const { made, make, births, cluster, backend, directory, hold, row, unlink, isThere } = await started(t);
  const inodes = await made('a', 'b', 'c', 'd', 'e');
  /** Begins work after an asynchronous unlink of `name`, and checks that it waits for the unlink's answer. */
  const behind = async (name: string, begin: () => Promise<unknown>): Promise<unknown> => {
    await row();
    const answer = hold(births, 'unlink');
    assert.equal((await unlink(name)).isPending, true, name);
    const begun = begin();
    assert.equal(await hasEnded(begun), false, name);
    answer();
    return begun;
  };
  await behind('a', () => backend.xattrs(inodes[0] ?? 0));
  await behind('e', () => backend.attributes(directory));
  const quota = new ServiceError('quota-exceeded', 'By intent');
  const symlink = cluster.symlink.bind(cluster);
  Object.assign(cluster, {
    symlink: (...argv: Parameters<typeof symlink>) =>
      isThere('b') ? Promise.reject(quota) : symlink(...argv),
  });
  await behind('b', () => backend.symlink(directory, 'l', 'target', USER));
  const send = births.createWithContents.bind(births);
  births.createWithContents = async (server, files) =>
    files[0]?.name === 'new' ? [{ kind: 'refused', error: quota }] : send(server, files);
  const { attributes } = await make('new');
  await behind('c', () => backend.openFile(attributes.inode, [], attributes.contents).settle());
  await backend.unlink(directory, 'new');
  for (const name of ['l', 'first']) await unlink(name);
  await behind('d', () => backend.removeDirectory(ROOT, 'd'));
});

test('fsync of a directory returns the error of an unlink in it, and fsync of another directory does not', async (t) => {
  const { births, backend, directory, made, row, unlink, pending } = await started(t);
  await made('a');
  await row();
  births.removalFate = 'refused';
  await unlink('a');
  const { inode: other } = await backend.makeDirectory(ROOT, 'other', 0o755, USER);
  for (const inode of [other, directory]) await pending.flush({ kind: 'directory', inode });
  assert.equal(pending.errors.checkAndAdvance(other, 0), null);
  assert.match(String(pending.errors.checkAndAdvance(directory, 0)?.error), /Refused by intent/);
});

test('a directory is delegated again only after its earlier unlinks have been answered', async (t) => {
  const { births, make, made, hold, row, unlink, directory, isDelegated } = await started(t);
  await made('a');
  await row();
  const answer = hold(births, 'unlink');
  await unlink('a');
  births.end();
  const { delegated } = births.asked;
  await make('b');
  await settled();
  assert.equal(births.asked.delegated, delegated);
  answer();
  await settled();
  assert.deepEqual([births.asked.delegated, isDelegated(directory)], [delegated + 1, true]);
});
