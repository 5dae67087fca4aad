/**
 * Goal: a file that is made here first is what any file is, to programs here and, once it is closed, to everybody; whatever happens to the
 * request in which it travels.
 * Method: the mount's calls over a cluster in memory, which tells what it was asked.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { makeReleasable } from '../../base/releasable-memory.ts';
import type { Attributes, CreateOutcome, NewFile } from '../../fuse/backend.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { Creates } from '../../fuse/pending/creates.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const LIMIT_MS = 5_000;
const USER = { uid: 7, gid: 8 };
const FLAGS = constants.O_RDWR | constants.O_CREAT;

/** A mount, and a directory in it that it has made and in which it has made a file at the cluster. */
async function started(t: TestContext, flushBehind = false, takesNamed = false) {
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  births.takesNamed = takesNamed;
  const state = births.state(systemWorld, 1_000);
  const backend = withPendingNames(systemWorld, births.backend, births, state, () => undefined);
  const options = { ...state, flushBehind };
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined, options);
  t.after(async () => {
    await fileSystem.stop();
    await backend.stop();
  });
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  const create = (name: string, flags = FLAGS) => fileSystem.create(directory, name, 0o640, flags, USER);
  const write = (handle: number, text: string, offset = 0) =>
    fileSystem.write(handle, offset, Buffer.from(text), USER);
  const close = async (handle: number) => {
    try {
      await fileSystem.flush(handle);
    } finally {
      await fileSystem.release(handle);
    }
  };
  const file = async (name: string, text: string) => {
    const { handle } = await create(name);
    await write(handle, text);
    await close(handle);
  };
  const textAt = (name: string) => memory.textAt(directory, name);
  /** Opens a new file, writes its name to it, and has that taken over. */
  const open = async (name: string) => {
    const created = await create(name);
    await write(created.handle, name);
    await fileSystem.attributes(created.attributes.inode);
    return created;
  };
  await file('first', 'at the cluster');
  return { memory, births, backend, fileSystem, directory, create, write, open, close, file, textAt };
}

test('a small file is one request, and whole when its close returns', async (t) => {
  const { memory, births, file, textAt } = await started(t);
  const before = { ...memory.calls };
  await file('a', 'contents');
  assert.equal(textAt('a'), 'contents');
  assert.deepEqual(births.requests, [1]);
  const { bear = 0, ...others } = memory.calls;
  assert.equal(bear, 1);
  for (const call of ['createFile', 'write', 'settle', 'lookup', 'list', 'state'])
    assert.equal(others[call], before[call], call);
});

test('files that are closed while a request is under way share the next one', async (t) => {
  const { births, file, textAt } = await started(t);
  const names = Array.from({ length: 8 }, (_, number) => `f${number}`);
  await Promise.all(names.map((name) => file(name, name)));
  assert.ok(births.requests.length <= 2, `${births.requests.length} requests`);
  assert.deepEqual(names.map(textAt), names);
});

test('many bytes do not wait until another request is answered', async (t) => {
  const { births, file, textAt } = await started(t);
  const answered = Promise.withResolvers<void>();
  births.held = answered.promise;
  const [small, large] = ['small', 'l'.repeat(128 * 1024)];
  const closing = [file('a', small)];
  while (births.requests.length === 0) await delay(1);
  closing.push(file('b', small), file('c', large));
  while (births.requests.length === 1) await delay(1);
  assert.deepEqual(births.requests, [1, 2], 'They take along who waits');
  answered.resolve();
  await Promise.all(closing);
  assert.deepEqual(['a', 'b', 'c'].map(textAt), [small, small, large]);
});

test('what was set before the close is part of it', async (t) => {
  const { fileSystem, births, memory, directory, create, write, close } = await started(t);
  const { handle, attributes } = await create('a');
  await write(handle, 'text');
  const calls = { ...memory.calls };
  await fileSystem.setAttributes(attributes.inode, { mode: 0o4751, uid: 70 });
  await fileSystem.setAttributes(attributes.inode, { mode: 0o751, modified: { kind: 'time', ns: 5_000n } });
  const told = await fileSystem.attributes(attributes.inode);
  assert.deepEqual(memory.calls, calls, 'Nobody is asked');
  await close(handle);
  const found = await memory.lookup(directory, 'a');
  assert.deepEqual([found.mode, found.uid, found.modifiedNs, found.sizeBytes], [0o751, 70, '5000', 4]);
  assert.deepEqual(
    [told.mode, told.modifiedNs, told.changedNs],
    [found.mode, found.modifiedNs, found.changedNs],
  );
  assert.deepEqual(births.requests, [1]);
});

test('programs here find the file before the cluster does', async (t) => {
  const { backend, fileSystem, directory, create, write, close, textAt } = await started(t);
  const { handle, attributes } = await create('b');
  assert.ok(backend.isChanging(directory), 'Its times are about to be others');
  await write(handle, 'some text');
  await write(handle, 'TEXT', 5);
  await fileSystem.truncate(attributes.inode, 8, USER);
  assert.equal((await fileSystem.lookup(directory, 'b')).inode, attributes.inode);
  assert.equal((await fileSystem.attributes(attributes.inode)).sizeBytes, 8);
  assert.equal(Buffer.from(await fileSystem.read(handle, 0, 100)).toString(), 'some TEX');
  const listing = await fileSystem.openDirectory(directory);
  const { entries } = await fileSystem.readDirectory(listing, 0, 100);
  assert.deepEqual(
    entries.map(({ name }) => name),
    ['.', '..', 'b', 'first'],
  );
  await assert.rejects(create('b', FLAGS | constants.O_EXCL), { code: 'exists' });
  const again = await create('b');
  assert.equal(again.attributes.inode, attributes.inode);
  assert.equal(textAt('b'), null);
  await close(again.handle);
  assert.equal(textAt('b'), 'some TEX');
  await close(handle);
  assert.equal(backend.isChanging(directory), false);
});

test('a file that has nothing in it yet is borne empty at its first close, and written to from then on', async (t) => {
  const { create, write, close, textAt, births } = await started(t);
  const { handle } = await create('a');
  // A shell closes the copy from which it made the standard output.
  await close((await create('a')).handle);
  assert.equal(textAt('a'), '');
  await write(handle, 'later');
  await close(handle);
  assert.equal(textAt('a'), 'later');
  assert.deepEqual(births.requests, [1]);
});

test('a file that grows beyond what can be borne is written in the ordinary way', async (t) => {
  const { create, write, close, textAt, births } = await started(t);
  const { handle } = await create('a');
  const piece = 'x'.repeat(100_000);
  for (let count = 0; count < 5; count++) await write(handle, piece, count * piece.length);
  await close(handle);
  assert.equal(textAt('a'), piece.repeat(5));
  assert.deepEqual(births.requests, []);
});

test('what is copied to a new file is borne with it, as it was then; more than can be borne is copied by the servers', async (t) => {
  const { fileSystem, directory, memory, births, create, write, close, file, textAt } = await started(t);
  await file('source', 'copied to the end');
  const { inode } = await fileSystem.lookup(directory, 'source');
  const source = await fileSystem.open(inode, constants.O_RDWR, USER);
  const copy = (to: number, from: number, at: number, length: number) =>
    fileSystem.copyRange(source.handle, from, to, at, length, USER);
  const small = await create('small');
  await write(small.handle, '[');
  assert.equal(await copy(small.handle, 7, 1, 100), 10);
  assert.equal(await copy(small.handle, 100, 11, 100), 0);
  await write(source.handle, 'COPIED TO THE END');
  await fileSystem.flush(source.handle);
  await close(small.handle);
  assert.deepEqual([textAt('small'), textAt('source')], ['[to the end', 'COPIED TO THE END']);
  assert.deepEqual(births.requests, [1, 1]);
  assert.equal(memory.calls.copyFrom, undefined, 'Nobody else was asked to copy');

  await fileSystem.truncate(inode, 300 * 1024, USER);
  const large = await create('large');
  assert.equal(await copy(large.handle, 0, 0, 300 * 1024), 300 * 1024);
  await close(large.handle);
  assert.equal(textAt('large')?.length, 300 * 1024);
  assert.ok((memory.calls.copyFrom ?? 0) > 0);
  await close(source.handle);
});

test('what is copied to a new file is no part of what others read', async (t) => {
  const { backend, fileSystem, directory, create, close, file, textAt } = await started(t);
  const contents = 'abc'.repeat(64 * 1024);
  await file('source', contents);
  const { inode } = await fileSystem.lookup(directory, 'source');
  const openFile = backend.openFile.bind(backend);
  const lending: typeof openFile = (opened, ...facts) => {
    const there = openFile(opened, ...facts);
    if (opened !== inode) return there;
    const read = async (offset: number, length: number): Promise<Uint8Array> => {
      const bytes = Uint8Array.from(await there.read(offset, length));
      // Whoever reads it last gives it back.
      makeReleasable(bytes);
      return bytes;
    };
    return { ...there, read };
  };
  Object.assign(backend, { openFile: lending });
  const source = await fileSystem.open(inode, constants.O_RDONLY, USER);
  const target = await create('target');
  const length = contents.length;
  assert.equal(await fileSystem.copyRange(source.handle, 0, target.handle, 0, length, USER), length);
  // Blocks that were read as a whole give their memory back.
  await turn();
  await close(target.handle);
  assert.equal(textAt('target'), contents);
  await close(source.handle);
});

test('a file that stays open is there for others a moment later', async (t) => {
  const { create, write, close, textAt } = await started(t);
  const { handle } = await create('a');
  await write(handle, 'one');
  const untilMs = performance.now() + LIMIT_MS;
  while (textAt('a') !== 'one' && performance.now() < untilMs) await delay(10);
  assert.equal(textAt('a'), 'one');
  await write(handle, 'two', 3);
  await close(handle);
  assert.equal(textAt('a'), 'onetwo');
});

test('before a directory is given back all of it is at the cluster', async (t) => {
  const { births, directory, open, close, file, textAt } = await started(t);
  const { handle } = await open('a');
  await births.recall(directory);
  assert.equal(textAt('a'), 'a');
  assert.deepEqual(births.requests, [1]);
  await close(handle);
  await file('b', 'afterwards');
  assert.equal(textAt('b'), 'afterwards');
  assert.deepEqual(births.requests, [1], 'In the ordinary way');
});

test('when all delegations are over, files go to the cluster; where another client has the name, its file stays and the close fails', async (t) => {
  const { births, memory, fileSystem, directory, create, write, close, textAt } = await started(t);
  const [a, b] = [await create('a'), await create('b', FLAGS | constants.O_APPEND)];
  await write(a.handle, 'mine');
  await write(b.handle, 'mine');
  const { promise, resolve } = Promise.withResolvers<void>();
  births.held = promise;
  births.end();
  const theirs = await memory.createFile(directory, 'b', 0o600, USER, true);
  await memory.openFile(theirs.attributes.inode).write(0, [Buffer.from('their log')]);
  resolve();
  await close(a.handle);
  await assert.rejects(fileSystem.flush(b.handle), { code: 'exists' });
  assert.deepEqual([textAt('a'), textAt('b')], ['mine', 'their log']);
  // The name is theirs, also on this mount, while the refused file is open.
  assert.equal(Buffer.from(await fileSystem.read(b.handle, 0, 100)).toString(), 'mine');
  assert.equal((await fileSystem.lookup(directory, 'b')).inode, theirs.attributes.inode);
  await fileSystem.rename({ parent: directory, name: 'b' }, { parent: directory, name: 'c' }, 0);
  await fileSystem.unlink(directory, 'c');
  assert.deepEqual([textAt('b'), textAt('c')], [null, null]);
  await fileSystem.release(b.handle);
  assert.equal(textAt('b'), null);
});

test('a name whose file was refused is free again while that file is open', async (t) => {
  const { births, fileSystem, directory, create, write, close, file, textAt } = await started(t);
  births.fate = 'refused';
  const { handle } = await create('a');
  await write(handle, 'refused');
  await assert.rejects(fileSystem.persist(handle), { code: 'quota-exceeded' });
  births.fate = 'born';
  await assert.rejects(fileSystem.unlink(directory, 'a'), { code: 'not-found' });
  await assert.rejects(fileSystem.lookup(directory, 'a'), { code: 'not-found' });
  await file('a', 'another');
  await assert.rejects(close(handle), { code: 'exists' });
  assert.equal(textAt('a'), 'another');
  assert.equal((await fileSystem.lookup(directory, 'a')).sizeBytes, 7);
});

test('a refused creation fails its own file, and no operation that gives or removes its name', async (t) => {
  const operations = [
    { operation: 'rename', code: null, text: 'other' },
    { operation: 'link', code: null, text: 'at the cluster' },
    { operation: 'unlink', code: 'not-found', text: null },
  ] as const;
  for (const { operation, code, text } of operations) {
    const { births, fileSystem, directory, create, write, close, file, textAt } = await started(t);
    await file('other', 'other');
    const { handle } = await create('a');
    await write(handle, 'refused');
    births.fate = 'refused';
    const from = { parent: directory, name: 'other' };
    const calls = {
      rename: () => fileSystem.rename(from, { ...from, name: 'a' }, 0),
      link: async () => fileSystem.link((await fileSystem.lookup(directory, 'first')).inode, directory, 'a'),
      unlink: () => fileSystem.unlink(directory, 'a'),
    };
    if (code === null) await calls[operation]();
    else await assert.rejects(calls[operation], { code });
    assert.equal(textAt('a'), text);
    await assert.rejects(close(handle), { code: 'quota-exceeded' });
    assert.equal(textAt('a'), text);
  }
});

test('a name is not taken from a creation of which nothing is known', async (t) => {
  const { births, fileSystem, directory, create, write, close, file, textAt } = await started(t);
  await file('other', 'other');
  const { handle } = await create('a');
  await write(handle, 'mine');
  births.fate = 'lost-before';
  const make = births.create.bind(births);
  births.create = () => Promise.reject(new ServiceError('unknown', 'Lost by intent'));
  const at = (name: string) => ({ parent: directory, name });
  const renamed = fileSystem.rename(at('other'), at('a'), 0);
  await assert.rejects(renamed, { code: 'unknown' });
  Object.assign(births, { create: make, fate: 'born' });
  await close(handle);
  assert.deepEqual([textAt('a'), textAt('other')], ['mine', 'other']);
});

test('while no attempt succeeds and the delegation is over, the cluster says what has the name', async (t) => {
  const { births, memory, fileSystem, directory, create, write, close, textAt } = await started(t);
  const { handle, attributes } = await create('a');
  await write(handle, 'mine');
  await fileSystem.attributes(attributes.inode);
  births.fate = 'lost-before';
  const make = births.create.bind(births);
  births.create = () => Promise.reject(new ServiceError('unknown', 'Lost by intent'));
  births.end();
  await assert.rejects(fileSystem.flush(handle), { code: 'unknown' });
  await memory.createFile(directory, 'a', 0o600, USER, true);
  assert.equal((await fileSystem.lookup(directory, 'a')).sizeBytes, 0);
  await fileSystem.unlink(directory, 'a');
  Object.assign(births, { create: make });
  await close(handle);
  assert.equal(textAt('a'), 'mine');
});

test('what a close has acknowledged ahead is not written to a file that has got the name since, and fsync says so', async (t) => {
  const { births, memory, fileSystem, directory, create, write, textAt } = await started(t, true);
  const opened = await fileSystem.openDirectory(directory);
  const { handle } = await create('b');
  await write(handle, 'mine');
  const { promise, resolve } = Promise.withResolvers<void>();
  births.held = promise;
  await fileSystem.flush(handle);
  const released = fileSystem.release(handle);
  await released;
  await memory.createFile(directory, 'b', 0o600, USER, true);
  births.end();
  resolve();
  await assert.rejects(fileSystem.persistDirectory(directory, opened), { errno: 'EIO' });
  await fileSystem.persistDirectory(directory, opened);
  await fileSystem.persistDirectory(directory, await fileSystem.openDirectory(directory));
  assert.equal(textAt('b'), '');
});

test('contents of an exclusive create are not written over what another client has written since (paused, then synced there)', async (t) => {
  for (const isClosed of [true, false]) {
    const { births, memory, backend, fileSystem, directory, create, write, textAt } = await started(
      t,
      false,
      true,
    );
    const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
    await write(handle, 'mine, and long');
    await fileSystem.attributes(attributes.inode);
    await memory.openFile(attributes.inode).write(0, [Buffer.from('theirs')]);
    // The server has a replica already, or the session is over.
    if (!isClosed) births.end();
    await assert.rejects(fileSystem.flush(handle), { errno: 'EIO' });
    assert.equal(textAt('a'), 'theirs');
    // While it is still open.
    assert.equal((await backend.lookup(directory, 'a')).sizeBytes, 6);
    assert.equal((await backend.attributes(attributes.inode)).sizeBytes, 6);
    const there = backend.openFile(attributes.inode, [], attributes.contents);
    assert.equal(Buffer.from(await there.read(0, 100)).toString(), 'theirs');
    await fileSystem.release(handle);
  }
});

test('an exclusive create is answered when the cluster has the name, also in a directory that is delegated', async (t) => {
  const { births, memory, fileSystem, directory, create, write, close, textAt } = await started(t);
  const { handle } = await create('a', FLAGS | constants.O_EXCL);
  assert.deepEqual([textAt('a'), births.requests], ['', []]);
  await write(handle, 'contents');
  await close(handle);
  assert.equal(textAt('a'), 'contents');
  await fileSystem.makeNode(directory, 'node', constants.S_IFREG | 0o600, 0, USER);
  assert.equal(textAt('node'), '');
  // The session was over, and the mount has not learned that yet.
  await memory.createFile(directory, 'lock', 0o600, USER, true);
  await assert.rejects(create('lock', FLAGS | constants.O_EXCL), { code: 'exists' });
});

test('a file that was created exclusively gets its contents in one request, whole', async (t) => {
  const { memory, births, fileSystem, create, write, close, textAt } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await assert.rejects(create('a', FLAGS | constants.O_EXCL), { code: 'exists' });
  const calls = { ...memory.calls };
  await write(handle, 'contents');
  assert.equal((await fileSystem.attributes(attributes.inode)).sizeBytes, 8);
  assert.deepEqual([textAt('a'), births.requests], ['', []]);
  await close(handle);
  assert.deepEqual([textAt('a'), births.requests], ['contents', [1]]);
  for (const call of ['createFile', 'makeNumbered', 'write', 'settle'])
    assert.equal(memory.calls[call], calls[call], call);
});

/** A file that was created exclusively, with contents, mode, owner and times that a program has set since. */
async function changedNamed(t: TestContext) {
  const mount = await started(t, false, true);
  const { fileSystem, create, write, memory } = mount;
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await write(handle, 'contents');
  const { inode } = attributes;
  await fileSystem.setAttributes(inode, { mode: 0o755 });
  await fileSystem.setAttributes(inode, { uid: 9, gid: 10 });
  await fileSystem.setAttributes(inode, {
    accessed: { kind: 'time', ns: 5n },
    modified: { kind: 'time', ns: 6n },
  });
  const seen = async () => {
    const { mode, uid, gid, accessedNs, modifiedNs } = await memory.attributes(inode);
    return { mode, uid, gid, accessedNs, modifiedNs };
  };
  return { ...mount, handle, inode, seen };
}

const CHANGED = { mode: 0o755, uid: 9, gid: 10, accessedNs: '5', modifiedNs: '6' };

test('what programs set of a file that was created exclusively is sent once, before its contents', async (t) => {
  const { memory, births, fileSystem, inode, handle, close, textAt, seen } = await changedNamed(t);
  const { mode, uid, gid } = await fileSystem.attributes(inode);
  assert.deepEqual({ mode, uid, gid }, { mode: 0o755, uid: 9, gid: 10 });
  const calls = memory.calls.setAttributes ?? 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  births.held = promise;
  const closed = close(handle);
  while (births.requests.length === 0) await turn();
  assert.deepEqual([(await seen()).mode, textAt('a')], [0o755, '']);
  resolve();
  await closed;
  assert.deepEqual([await seen(), textAt('a')], [CHANGED, 'contents']);
  assert.equal((memory.calls.setAttributes ?? 0) - calls, 1);
  const known = await fileSystem.attributes(inode);
  assert.equal(known.changedNs, (await memory.attributes(inode)).changedNs);
});

test('what programs set of a file that was created exclusively does not undo what another client has set', async (t) => {
  const { memory, backend, inode, handle, close, textAt, fileSystem, directory } = await changedNamed(t);
  await memory.setAttributes(inode, { mode: 0o600 });
  await assert.rejects(close(handle), { errno: 'EIO' });
  assert.deepEqual([(await memory.attributes(inode)).mode, textAt('a')], [0o600, '']);
  assert.equal((await backend.lookup(directory, 'a')).mode, 0o600);
  assert.equal((await fileSystem.lookup(directory, 'a')).mode, 0o600);
});

test('what programs set after a refused attempt is sent by the next one', async (t) => {
  const { births, memory, fileSystem, create, write, close, textAt } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await write(handle, 'text');
  births.fate = 'refused';
  await assert.rejects(fileSystem.persist(handle), { code: 'quota-exceeded' });
  births.fate = 'born';
  await fileSystem.setAttributes(attributes.inode, { mode: 0o600 });
  await close(handle);
  assert.deepEqual([(await memory.attributes(attributes.inode)).mode, textAt('a')], [0o600, 'text']);
});

test('what other clients must not see late of a file that has a name is set at the cluster at once', async (t) => {
  const { memory, fileSystem, create, write, close } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  const { inode } = attributes;
  await write(handle, 'text');
  // Another client may write the file before a set-user-id bit arrives late.
  await fileSystem.setAttributes(inode, { mode: 0o4755 });
  assert.equal((await memory.attributes(inode)).mode, 0o4755);
  await close(handle);
  const other = await create('b', FLAGS | constants.O_EXCL);
  await write(other.handle, 'text');
  // Contents with this time would put ctime into the future.
  const ns = BigInt(Date.now() + 3_600_000) * 1_000_000n;
  await fileSystem.setAttributes(other.attributes.inode, { modified: { kind: 'time', ns } });
  assert.equal((await memory.attributes(other.attributes.inode)).modifiedNs, String(ns));
  await close(other.handle);
});

test('attributes that a failed request has left out are sent again while the file is open', async (t) => {
  const { births, memory, fileSystem, inode, handle } = await changedNamed(t);
  births.changesFail = true;
  await assert.rejects(fileSystem.persist(handle), { code: 'unknown' });
  births.changesFail = false;
  const until = Date.now() + 2 * LIMIT_MS;
  while ((await memory.attributes(inode)).uid !== 9 && Date.now() < until) await delay(20);
  assert.equal((await memory.attributes(inode)).uid, 9);
  await fileSystem.release(handle);
});

test('the handle of a new file leads to what programs have set', async (t) => {
  const { fileSystem, inode, handle, close } = await changedNamed(t);
  assert.equal((await fileSystem.lookup(inode, '.')).mode, 0o755);
  await close(handle);
});

test('after another client’s change programs see its attributes, also while the file is open', async (t) => {
  const { memory, inode, handle, fileSystem } = await changedNamed(t);
  await memory.setAttributes(inode, { mode: 0o600 });
  await assert.rejects(fileSystem.persist(handle), { errno: 'EIO' });
  assert.equal((await fileSystem.attributes(inode)).mode, 0o600);
  await fileSystem.release(handle);
});

test('after the session’s end attributes are set at the cluster, before the mount learns of that end', async (t) => {
  const { births, memory, fileSystem, create, write, close } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await write(handle, 'text');
  births.expire();
  await fileSystem.setAttributes(attributes.inode, { mode: 0o600 });
  assert.equal((await memory.attributes(attributes.inode)).mode, 0o600);
  await close(handle);
});

test('attributes that were set by a request without an answer are not another client’s', async (t) => {
  const { births, fileSystem, handle, close, textAt, seen } = await changedNamed(t);
  births.changesLost = true;
  await assert.rejects(fileSystem.persist(handle), { code: 'unknown' });
  await close(handle);
  assert.deepEqual([await seen(), textAt('a')], [CHANGED, 'contents']);
});

test('attributes of a file that was created exclusively are there when its directory is recalled', async (t) => {
  const { births, directory, handle, close, textAt, seen } = await changedNamed(t);
  await births.recall(directory);
  assert.deepEqual([await seen(), textAt('a')], [CHANGED, 'contents']);
  await close(handle);
});

test('attributes are set at once if changes by other clients do not recall the directory', async (t) => {
  const { births, memory, fileSystem, create, close } = await started(t, false, true);
  births.isWatched = false;
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await fileSystem.setAttributes(attributes.inode, { mode: 0o600 });
  assert.equal((await memory.attributes(attributes.inode)).mode, 0o600);
  await close(handle);
});

test('where the catalog compares nothing, attributes are set there at once', async (t) => {
  const { births, memory, fileSystem, create, write, close, textAt } = await started(t, false, true);
  births.isConditional = false;
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await write(handle, 'text');
  await fileSystem.setAttributes(attributes.inode, { mode: 0o600 });
  assert.deepEqual([(await memory.attributes(attributes.inode)).mode, textAt('a')], [0o600, 'text']);
  await close(handle);
});

for (const fate of ['born', 'unborn', 'lost-before', 'lost-after'] as const) {
  for (const isWritten of [false, true]) {
    const by = isWritten ? 'written by another mount meanwhile' : 'alone';
    test(`a file that was created exclusively has its contents, or those of others (${fate}, ${by})`, async (t) => {
      const { memory, births, create, write, close, textAt } = await started(t, false, true);
      births.fate = fate;
      const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
      await write(handle, 'mine, and long');
      const theirs = () => memory.openFile(attributes.inode).write(0, [Buffer.from('theirs')]);
      const isFirst = fate === 'born';
      const send = births.createWithContents.bind(births);
      births.createWithContents = async (...asked) => {
        if (isFirst && isWritten) await theirs();
        try {
          return await send(...asked);
        } finally {
          if (!isFirst && isWritten) await theirs();
        }
      };
      if (isWritten) await assert.rejects(close(handle), { errno: 'EIO' });
      else await close(handle);
      const before = fate === 'lost-after' ? 'theirsand long' : 'theirs';
      assert.equal(textAt('a'), isWritten ? before : 'mine, and long');
    });
  }
}

test('what another mount has written since a birth of which no answer came stays', async (t) => {
  const { births, memory, create, write, close, textAt } = await started(t);
  births.fate = 'lost-after';
  const { handle, attributes } = await create('a');
  await write(handle, 'mine, and long');
  const make = births.create.bind(births);
  births.create = async (file) => {
    await memory.openFile(attributes.inode).write(0, [Buffer.from('theirs')]);
    return make(file);
  };
  await close(handle);
  assert.equal(textAt('a'), 'theirsand long');
});

for (const fate of ['unborn', 'lost-before', 'lost-after'] as const) {
  test(`a file whose request came to nothing, or whose answer was lost, is made nevertheless (${fate})`, async (t) => {
    const { births, memory, fileSystem, directory, create, write, close, textAt } = await started(t);
    births.fate = fate;
    const { handle, attributes } = await create('a');
    await write(handle, 'contents');
    await fileSystem.setAttributes(attributes.inode, { modified: { kind: 'time', ns: 5_000n } });
    await close(handle);
    assert.equal(textAt('a'), 'contents');
    const found = await memory.lookup(directory, 'a');
    assert.deepEqual([found.inode, found.modifiedNs], [attributes.inode, '5000']);
  });
}

test('a refusal is told by fsync and by close, and the name is free', async (t) => {
  const { births, fileSystem, directory, create, write, close, file, textAt } = await started(t);
  births.fate = 'refused';
  const { handle } = await create('a');
  await write(handle, 'contents');
  await assert.rejects(fileSystem.persist(handle), { code: 'quota-exceeded' });
  await assert.rejects(close(handle), { code: 'quota-exceeded' });
  assert.equal(textAt('a'), null);
  births.fate = 'born';
  await fileSystem.stop();
  await assert.rejects(fileSystem.lookup(directory, 'a'), { code: 'not-found' });
  await file('a', 'another');
  assert.equal(textAt('a'), 'another');
});

test('fsync, and whatever needs the file at the cluster, brings it there', async (t) => {
  const { fileSystem, memory, directory, open, close, textAt } = await started(t);
  const synced = await open('synced');
  await fileSystem.persist(synced.handle);
  assert.equal(textAt('synced'), 'synced');
  const linked = await open('linked');
  await fileSystem.link(linked.attributes.inode, ROOT, 'other');
  assert.equal(memory.textAt(ROOT, 'other'), 'linked');
  const moved = await open('moved');
  await fileSystem.rename({ parent: directory, name: 'moved' }, { parent: ROOT, name: 'to' }, 0);
  assert.equal(memory.textAt(ROOT, 'to'), 'moved');
  const removed = await open('removed');
  await fileSystem.unlink(directory, 'removed');
  assert.equal(textAt('removed'), null);
  assert.equal(Buffer.from(await fileSystem.read(removed.handle, 0, 100)).toString(), 'removed');
  const marked = await open('marked');
  await fileSystem.setXattr(marked.attributes.inode, 'user.a', Buffer.from('b'), 0);
  assert.equal(textAt('marked'), 'marked');
  const within = await open('within');
  await assert.rejects(fileSystem.removeDirectory(ROOT, 'd'), { code: 'not-empty' });
  for (const { handle } of [synced, linked, moved, removed, marked, within]) await close(handle);
});

test('fsync of a directory brings what was made in it, that of the root all; it tells what failed', async (t) => {
  const { births, fileSystem, directory, open, write, close, textAt } = await started(t, true);
  const named = await open('named');
  await fileSystem.persistDirectory(directory);
  assert.equal(textAt('named'), 'named');
  await write(named.handle, 'further');
  const closed = await open('closed');
  await close(closed.handle);
  await fileSystem.persistDirectory(ROOT);
  assert.equal(textAt('named'), 'further');
  assert.equal(textAt('closed'), 'closed');
  births.fate = 'refused';
  const refused = await open('refused');
  await assert.rejects(fileSystem.persistDirectory(ROOT), { code: 'quota-exceeded' });
  await close(refused.handle);
  births.fate = 'born';
  await close(named.handle);
});

test('a name that was given away, or given back, is not taken for what it was', async (t) => {
  const { fileSystem, directory, file, textAt } = await started(t);
  const at = (name: string) => ({ parent: directory, name });
  await file('a', 'a');
  await fileSystem.rename(at('a'), at('b'), 0);
  await file('a', 'again');
  await fileSystem.unlink(directory, 'b');
  await file('b', 'again, too');
  await fileSystem.symlink(directory, 'l', 'a', USER);
  await assert.rejects(fileSystem.create(directory, 'l', 0o600, FLAGS | constants.O_EXCL, USER), {
    code: 'exists',
  });
  assert.deepEqual([textAt('a'), textAt('b')], ['again', 'again, too']);
});

test('a directory in which several programs make files all the time is asked for between two of them', async (t) => {
  const { births, memory, directory, file, textAt } = await started(t);
  births.end();
  memory.disturb({ delayMs: 5 });
  const programs = Array.from({ length: 4 }, async (_, program) => {
    for (let number = 0; number < 10; number++) await file(`p${program}-${number}`, 'text');
  });
  await Promise.all(programs);
  assert.deepEqual(births.asked, { count: 1, delegated: 1 });
  assert.ok(births.requests.length > 0, 'Most of them were borne');
  assert.equal(textAt('p3-9'), 'text');
  assert.equal((await memory.list(directory, '', 100)).entries.length, 41);
});

test('a close that waits for nothing leaves the file to be borne, and what it says to fsync', async (t) => {
  const { births, fileSystem, create, write, textAt } = await started(t, true);
  const { promise, resolve } = Promise.withResolvers<void>();
  births.held = promise;
  const { handle } = await create('a');
  await write(handle, 'behind');
  await fileSystem.flush(handle);
  assert.equal(textAt('a'), null);
  const again = await create('a', constants.O_RDWR);
  await fileSystem.release(handle);
  assert.equal(Buffer.from(await fileSystem.read(again.handle, 0, 100)).toString(), 'behind');
  resolve();
  await fileSystem.persist(again.handle);
  assert.equal(textAt('a'), 'behind');
  await fileSystem.release(again.handle);
  births.fate = 'refused';
  const refused = await create('b');
  await write(refused.handle, 'text');
  await fileSystem.flush(refused.handle);
  await assert.rejects(fileSystem.persist(refused.handle), { code: 'quota-exceeded' });
  await fileSystem.release(refused.handle);
});

test('where numbers are refused, they are not asked for with each file', async () => {
  let asked = 0;
  const failures: unknown[] = [];
  const refused = new Error('a server of an earlier release');
  const reserve = () => {
    asked++;
    return Promise.reject(refused);
  };
  const numbers = new Creates(
    systemWorld,
    { reserve, creatingServer: () => 's1', createWithContents: () => Promise.reject(refused) },
    (error) => failures.push(error),
  );
  assert.equal(numbers.takeNumber(), null);
  await turn();
  for (let file = 0; file < 100; file++) assert.equal(numbers.takeNumber(), null);
  await turn();
  assert.deepEqual([asked, failures], [1, [refused]]);
});

test('numbers whose servers took no file are not used further, and better ones replace those of a server that is away', async () => {
  let reserved = 0;
  let outcome: CreateOutcome = { kind: 'not-created' };
  const backend = {
    reserve: async (count: number) => {
      return { first: 1_000 * ++reserved, count, server: 's1', untilMs: Number.POSITIVE_INFINITY };
    },
    creatingServer: () => 's1',
    createWithContents: async () => [outcome],
  };
  const numbers = new Creates(systemWorld, backend, assert.ifError);
  const next = async (): Promise<number> => {
    numbers.prepare();
    await turn();
    return numbers.takeNumber()?.inode ?? 0;
  };
  const bear = async (inode: number, told: CreateOutcome): Promise<void> => {
    outcome = told;
    await numbers.send({ inode, contents: Buffer.alloc(1) } as unknown as NewFile, 's1');
    await turn();
  };
  const [first, second] = [await next(), await next()];
  await bear(first, { kind: 'not-created' });
  const third = await next();
  assert.deepEqual([first, second, third], [1_000, 1_001, 2_000]);
  const born = { kind: 'created', attributes: {} as Attributes, namedNs: '1' } as const;
  await bear(second, { ...born, renew: true });
  assert.equal(await next(), 2_001, 'What is said of numbers that are replaced says nothing of these');
  await bear(third, born);
  assert.equal(await next(), 2_002);
  await bear(third, { ...born, renew: true });
  assert.equal(await next(), 3_000);
});

test('a directory that nobody else changes is listed again from memory, with what is changed in it here', async (t) => {
  const { fileSystem, births, memory, directory, file } = await started(t);
  const { calls } = memory;
  const shows = async (names: readonly string[], what: string, questions = 0): Promise<void> => {
    const handle = await fileSystem.openDirectory(directory);
    const listed = calls.list ?? 0;
    const page = await fileSystem.readDirectory(handle, 2, 100);
    assert.equal((calls.list ?? 0) - listed, questions, what);
    await fileSystem.releaseDirectory(handle);
    for (const { name, inode, kind } of page.entries) {
      const there = await fileSystem.lookup(directory, name);
      assert.deepEqual([inode, kind], [there.inode, there.kind], name);
    }
    assert.deepEqual(
      page.entries.map(({ name }) => name),
      names,
      what,
    );
  };
  const at = (name: string) => ({ parent: directory, name });
  await file('a', 'text');
  await shows(['a', 'first'], 'for the first time', 1);
  await shows(['a', 'first'], 'once more');
  await file('b', 'text');
  await shows(['a', 'b', 'first'], 'a new file');
  await fileSystem.unlink(directory, 'a');
  await shows(['b', 'first'], 'a removal');
  await fileSystem.rename(at('b'), at('zz'), 0);
  await shows(['first', 'zz'], 'another name');
  await fileSystem.makeDirectory(directory, 'e', 0o755, USER);
  await fileSystem.symlink(directory, 'link', 'zz', USER);
  await fileSystem.makeNode(directory, 'fifo', constants.S_IFIFO | 0o600, 0, USER);
  await shows(['e', 'fifo', 'first', 'link', 'zz'], 'all kinds');
  await fileSystem.removeDirectory(directory, 'e');
  await fileSystem.rename(at('link'), at('fifo'), 0);
  await shows(['fifo', 'first', 'zz'], 'a name over another one');
  const { inode } = await fileSystem.lookup(directory, 'zz');
  await fileSystem.link(inode, directory, 'y');
  await shows(['fifo', 'first', 'y', 'zz'], 'a second name');
  await fileSystem.rename(at('y'), at('zz'), 0);
  await shows(['fifo', 'first', 'y', 'zz'], 'of two names of one file none is gone', 1);
  await fileSystem.rename(at('fifo'), at('first'), 2);
  await shows(['fifo', 'first', 'y', 'zz'], 'names are exchanged', 1);
  await assert.rejects(fileSystem.removeDirectory(directory, 'first'));
  await shows(['fifo', 'first', 'y', 'zz'], 'what has failed', 1);
  births.fate = 'refused';
  const requests = births.requests.length;
  await assert.rejects(file('refused', 'text'));
  // It is tried once more behind the close.
  while (births.requests.length < requests + 2) await turn();
  await turn();
  births.fate = 'born';
  await shows(['fifo', 'first', 'y', 'zz'], 'what was refused', 1);
  await births.recall(directory);
  await memory.unlink(directory, 'zz');
  await shows(['fifo', 'first', 'y'], 'others may change it now', 1);
});

test('a directory that was given back, and had again, is listed as others have left it', async (t) => {
  const { fileSystem, births, memory, directory, file } = await started(t);
  const names = async (): Promise<string[]> => {
    const handle = await fileSystem.openDirectory(directory);
    const { entries } = await fileSystem.readDirectory(handle, 2, 100);
    await fileSystem.releaseDirectory(handle);
    return entries.map(({ name }) => name);
  };
  await file('a', 'text');
  assert.deepEqual(await names(), ['a', 'first']);
  // The session was over: nobody was called back.
  births.end();
  await memory.unlink(directory, 'a');
  const { delegated } = births.asked;
  for (const name of ['b', 'c']) await file(name, 'text');
  while (births.asked.delegated === delegated) await turn();
  await turn();
  assert.deepEqual(await names(), ['b', 'c', 'first']);
});
