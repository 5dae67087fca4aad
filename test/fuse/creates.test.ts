/**
 * Goal: a file that this mount creates with contents behaves as any file: for programs of this mount at once, for all
 * clients after its close. This holds whatever happens to the request that creates it.
 * Method: the mount's calls over a cluster in memory that counts its requests.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
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

/** A mount, and a delegated directory that it has created, with one file that the cluster has. */
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
  /** Opens a new file, writes its name to it, and waits until the write has been processed. */
  const open = async (name: string) => {
    const created = await create(name);
    await write(created.handle, name);
    await fileSystem.attributes(created.attributes.inode);
    return created;
  };
  await file('first', 'at the cluster');
  return { memory, births, backend, fileSystem, directory, create, write, open, close, file, textAt };
}

test('a small file is created with its contents by one request, which the close waits for', async (t) => {
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

test('files that are closed during a request share the next one', async (t) => {
  const { births, file, textAt } = await started(t);
  const names = Array.from({ length: 8 }, (_, number) => `f${number}`);
  await Promise.all(names.map((name) => file(name, name)));
  assert.ok(births.requests.length <= 2, `${births.requests.length} requests`);
  assert.deepEqual(names.map(textAt), names);
});

test('many bytes are sent without waiting for the answer to an earlier request', async (t) => {
  const { births, file, textAt } = await started(t);
  const answered = Promise.withResolvers<void>();
  births.held = answered.promise;
  const [small, large] = ['small', 'l'.repeat(128 * 1024)];
  const closing = [file('a', small)];
  while (births.requests.length === 0) await delay(1);
  closing.push(file('b', small), file('c', large));
  while (births.requests.length === 1) await delay(1);
  assert.deepEqual(births.requests, [1, 2], 'The second request includes the waiting file');
  answered.resolve();
  await Promise.all(closing);
  assert.deepEqual(['a', 'b', 'c'].map(textAt), [small, small, large]);
});

test('attributes that are set before the close are part of the request', async (t) => {
  const { fileSystem, births, memory, directory, create, write, close } = await started(t);
  const { handle, attributes } = await create('a');
  await write(handle, 'text');
  const calls = { ...memory.calls };
  await fileSystem.setAttributes(attributes.inode, { mode: 0o4751, uid: 70 });
  await fileSystem.setAttributes(attributes.inode, { mode: 0o751, modified: { kind: 'time', ns: 5_000n } });
  const told = await fileSystem.attributes(attributes.inode);
  assert.deepEqual(memory.calls, calls, 'No request is sent');
  await close(handle);
  const found = await memory.lookup(directory, 'a');
  assert.deepEqual([found.mode, found.uid, found.modifiedNs, found.sizeBytes], [0o751, 70, '5000', 4]);
  assert.deepEqual(
    [told.mode, told.modifiedNs, told.changedNs],
    [found.mode, found.modifiedNs, found.changedNs],
  );
  assert.deepEqual(births.requests, [1]);
});

test('an uncommitted file is visible to programs of this mount', async (t) => {
  const { backend, fileSystem, directory, create, write, close, textAt } = await started(t);
  const { handle, attributes } = await create('b');
  assert.ok(backend.isChanging(directory), 'The times of the directory are about to change');
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

test('an empty file is created at its first close, and later writes go to that file', async (t) => {
  const { create, write, close, textAt, births } = await started(t);
  const { handle } = await create('a');
  // A shell closes the descriptor that it has copied to the standard output.
  await close((await create('a')).handle);
  assert.equal(textAt('a'), '');
  await write(handle, 'later');
  await close(handle);
  assert.equal(textAt('a'), 'later');
  assert.deepEqual(births.requests, [1]);
});

test('a file that grows too large is created empty, and written by ordinary requests', async (t) => {
  const { create, write, close, textAt, births } = await started(t);
  const { handle } = await create('a');
  const piece = 'x'.repeat(100_000);
  for (let count = 0; count < 5; count++) await write(handle, piece, count * piece.length);
  await close(handle);
  assert.equal(textAt('a'), piece.repeat(5));
  assert.deepEqual(births.requests, []);
});

test('a copy to a new file reads the bytes at once and is created with them; a large copy is made by the servers', async (t) => {
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
  assert.equal(memory.calls.copyFrom, undefined, 'No server was asked to copy');

  await fileSystem.truncate(inode, 300 * 1024, USER);
  const large = await create('large');
  assert.equal(await copy(large.handle, 0, 0, 300 * 1024), 300 * 1024);
  await close(large.handle);
  assert.equal(textAt('large')?.length, 300 * 1024);
  assert.ok((memory.calls.copyFrom ?? 0) > 0);
  await close(source.handle);
});

test('bytes that are copied to a new file are copied from buffers of other readers', async (t) => {
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
      // The last reader releases the memory.
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
  // Whole blocks release their memory after the read.
  await turn();
  await close(target.handle);
  assert.equal(textAt('target'), contents);
  await close(source.handle);
});

test('a file that stays open is created at the cluster after a while', async (t) => {
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

test('a recall of a directory waits until the cluster has its uncommitted files', async (t) => {
  const { births, directory, open, close, file, textAt } = await started(t);
  const { handle } = await open('a');
  await births.recall(directory);
  assert.equal(textAt('a'), 'a');
  assert.deepEqual(births.requests, [1]);
  await close(handle);
  await file('b', 'afterwards');
  assert.equal(textAt('b'), 'afterwards');
  assert.deepEqual(births.requests, [1], 'By an ordinary request');
});

test('when the cache session ends, files are created at the cluster; if another client has the name, the close fails', async (t) => {
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
  // The name is the other client's, also on this mount, while the refused file is open.
  assert.equal(Buffer.from(await fileSystem.read(b.handle, 0, 100)).toString(), 'mine');
  assert.equal((await fileSystem.lookup(directory, 'b')).inode, theirs.attributes.inode);
  await fileSystem.rename({ parent: directory, name: 'b' }, { parent: directory, name: 'c' }, 0);
  await fileSystem.unlink(directory, 'c');
  assert.deepEqual([textAt('b'), textAt('c')], [null, null]);
  await fileSystem.release(b.handle);
  assert.equal(textAt('b'), null);
});

test('the name of a refused file is free while the file is still open', async (t) => {
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

test('a refused creation fails its own file only, and no operation that replaces or removes its name', async (t) => {
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

test('a rename does not replace a name whose creation has an unknown outcome', async (t) => {
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

test('after the end of the cache session the cluster decides what has a name, while all creations fail', async (t) => {
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

test('contents of a close that did not wait are not written to another client’s file of that name, and fsync returns an error', async (t) => {
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

test('contents of an exclusive create do not overwrite what another client has written since', async (t) => {
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
    // Either the server has a replica already, or the cache session has ended.
    if (!isClosed) births.end();
    await assert.rejects(fileSystem.flush(handle), { errno: 'EIO' });
    assert.equal(textAt('a'), 'theirs');
    // The attributes and contents of the other client are visible while the file is still open.
    assert.equal((await backend.lookup(directory, 'a')).sizeBytes, 6);
    assert.equal((await backend.attributes(attributes.inode)).sizeBytes, 6);
    const there = backend.openFile(attributes.inode, [], attributes.contents);
    assert.equal(Buffer.from(await there.read(0, 100)).toString(), 'theirs');
    await fileSystem.release(handle);
  }
});

test('an exclusive create returns when the cluster has the name, also in a delegated directory', async (t) => {
  const { births, memory, fileSystem, directory, create, write, close, textAt } = await started(t);
  const { handle } = await create('a', FLAGS | constants.O_EXCL);
  assert.deepEqual([textAt('a'), births.requests], ['', []]);
  await write(handle, 'contents');
  await close(handle);
  assert.equal(textAt('a'), 'contents');
  await fileSystem.makeNode(directory, 'node', constants.S_IFREG | 0o600, 0, USER);
  assert.equal(textAt('node'), '');
  // The cache session has ended, and the mount does not know that yet.
  await memory.createFile(directory, 'lock', 0o600, USER, true);
  await assert.rejects(create('lock', FLAGS | constants.O_EXCL), { code: 'exists' });
});

test('a file that was created exclusively gets its contents by one request', async (t) => {
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

/** A file that was created exclusively; a program has set its contents, mode, owner and times since. */
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

test('attributes that programs set on an exclusively created file are sent once, before its contents', async (t) => {
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

test('attributes that programs set on an exclusively created file do not overwrite those of another client', async (t) => {
  const { memory, backend, inode, handle, close, textAt, fileSystem, directory } = await changedNamed(t);
  await memory.setAttributes(inode, { mode: 0o600 });
  await assert.rejects(close(handle), { errno: 'EIO' });
  assert.deepEqual([(await memory.attributes(inode)).mode, textAt('a')], [0o600, '']);
  assert.equal((await backend.lookup(directory, 'a')).mode, 0o600);
  assert.equal((await fileSystem.lookup(directory, 'a')).mode, 0o600);
});

test('attributes that are set after a refused request are sent by the next one', async (t) => {
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

test('a set-user-id bit and a time in the future are set at the cluster at once', async (t) => {
  const { memory, fileSystem, create, write, close } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  const { inode } = attributes;
  await write(handle, 'text');
  // A late set-user-id bit could reach contents that another client has written meanwhile.
  await fileSystem.setAttributes(inode, { mode: 0o4755 });
  assert.equal((await memory.attributes(inode)).mode, 0o4755);
  await close(handle);
  const other = await create('b', FLAGS | constants.O_EXCL);
  await write(other.handle, 'text');
  // If the contents were sent with this time, ctime would be in the future.
  const ns = BigInt(Date.now() + 3_600_000) * 1_000_000n;
  await fileSystem.setAttributes(other.attributes.inode, { modified: { kind: 'time', ns } });
  assert.equal((await memory.attributes(other.attributes.inode)).modifiedNs, String(ns));
  await close(other.handle);
});

test('attributes that a failed request did not set are sent again while the file is open', async (t) => {
  const { births, memory, fileSystem, inode, handle } = await changedNamed(t);
  births.changesFail = true;
  await assert.rejects(fileSystem.persist(handle), { code: 'unknown' });
  births.changesFail = false;
  const until = Date.now() + 2 * LIMIT_MS;
  while ((await memory.attributes(inode)).uid !== 9 && Date.now() < until) await delay(20);
  assert.equal((await memory.attributes(inode)).uid, 9);
  await fileSystem.release(handle);
});

test('a look-up by the inode of a new file shows the attributes that programs have set', async (t) => {
  const { fileSystem, inode, handle, close } = await changedNamed(t);
  assert.equal((await fileSystem.lookup(inode, '.')).mode, 0o755);
  await close(handle);
});

test('after a change by another client programs see its attributes, also while the file is open', async (t) => {
  const { memory, inode, handle, fileSystem } = await changedNamed(t);
  await memory.setAttributes(inode, { mode: 0o600 });
  await assert.rejects(fileSystem.persist(handle), { errno: 'EIO' });
  assert.equal((await fileSystem.attributes(inode)).mode, 0o600);
  await fileSystem.release(handle);
});

test('attributes are set at the cluster if the cache session has ended, also before the mount knows that', async (t) => {
  const { births, memory, fileSystem, create, write, close } = await started(t, false, true);
  const { handle, attributes } = await create('a', FLAGS | constants.O_EXCL);
  await write(handle, 'text');
  births.expire();
  await fileSystem.setAttributes(attributes.inode, { mode: 0o600 });
  assert.equal((await memory.attributes(attributes.inode)).mode, 0o600);
  await close(handle);
});

test('attributes of a request whose answer was lost are recognized as this mount’s', async (t) => {
  const { births, fileSystem, handle, close, textAt, seen } = await changedNamed(t);
  births.changesLost = true;
  await assert.rejects(fileSystem.persist(handle), { code: 'unknown' });
  await close(handle);
  assert.deepEqual([await seen(), textAt('a')], [CHANGED, 'contents']);
});

test('a recall of the directory sends the attributes of an exclusively created file', async (t) => {
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

test('if the catalog does not support conditional changes, attributes are set at the cluster at once', async (t) => {
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
    test(`a file that was created exclusively has its contents, or those of other clients (${fate}, ${by})`, async (t) => {
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

test('after a creation whose answer was lost, what another mount has written since stays', async (t) => {
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
  test(`a file whose request failed, or whose answer was lost, is created by the next request (${fate})`, async (t) => {
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

test('fsync and close return a refusal, and the name is free', async (t) => {
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

test('fsync and operations that need the file at the cluster create it there first', async (t) => {
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

test('fsync of a directory creates the files in it, fsync of the root all files; each returns what failed', async (t) => {
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

test('a name that was renamed or removed can be used again for a new file', async (t) => {
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

test('a directory in which several programs create files all the time gets delegated', async (t) => {
  const { births, memory, directory, file, textAt } = await started(t);
  births.end();
  memory.disturb({ delayMs: 5 });
  const programs = Array.from({ length: 4 }, async (_, program) => {
    for (let number = 0; number < 10; number++) await file(`p${program}-${number}`, 'text');
  });
  await Promise.all(programs);
  assert.deepEqual(births.asked, { count: 1, delegated: 1 });
  assert.ok(births.requests.length > 0, 'Most files are created with contents');
  assert.equal(textAt('p3-9'), 'text');
  assert.equal((await memory.list(directory, '', 100)).entries.length, 41);
});

test('with flush_behind a close leaves the creation to a later request, and its error to fsync', async (t) => {
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

test('if the cluster refuses to reserve numbers, it is not asked for each file', async () => {
  let asked = 0;
  const failures: unknown[] = [];
  const refused = new Error('a server of an earlier release');
  const reserve = () => {
    asked++;
    return Promise.reject(refused);
  };
  const numbers = new Creates(
    systemWorld,
    {
      reserve,
      reserving: () => ({ server: 's1', catalog: 0 }),
      createWithContents: () => Promise.reject(refused),
    },
    (error) => failures.push(error),
  );
  assert.equal(numbers.takeNumber(), null);
  await turn();
  for (let file = 0; file < 100; file++) assert.equal(numbers.takeNumber(), null);
  await turn();
  assert.deepEqual([asked, failures], [1, [refused]]);
});

test('reserved numbers whose server created no file are dropped, and a server can have numbers replaced', async () => {
  let reserved = 0;
  let outcome: CreateOutcome = { kind: 'not-created' };
  const backend = {
    reserve: async (count: number) => {
      return {
        first: 1_000 * ++reserved,
        count,
        server: 's1',
        untilMs: Number.POSITIVE_INFINITY,
      };
    },
    reserving: () => ({ server: 's1', catalog: 0 }),
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
  assert.equal(await next(), 2_001, 'A request to renew earlier numbers does not concern these');
  await bear(third, born);
  assert.equal(await next(), 2_002);
  await bear(third, { ...born, renew: true });
  assert.equal(await next(), 3_000);
});

test('a file that gets another number where its directory has moved is used by the former one while it is open', async (t) => {
  const { memory, births, backend, fileSystem, directory, open, write, close, textAt } = await started(t);
  const { handle, attributes } = await open('a');
  const { inode } = attributes;
  births.end();
  births.movedTo = 3 as CatalogNumber;
  await fileSystem.flush(handle);
  const number = memory.inodeAt(directory, 'a') as number;
  assert.notEqual(number, inode);
  assert.deepEqual([await backend.numberOf(inode), await backend.numberOf(number)], [number, number]);
  assert.deepEqual([backend.formerNumberOf(inode), backend.formerNumberOf(number)], [inode, inode]);
  await write(handle, 'written', 0);
  await fileSystem.setAttributes(inode, { mode: 0o600 });
  await fileSystem.setXattr(inode, 'user.note', Buffer.from('kept'), 0);
  await fileSystem.truncate(inode, 5, USER);
  const shown = await fileSystem.attributes(inode);
  assert.deepEqual([shown.inode, shown.mode, shown.sizeBytes], [inode, 0o600, 5]);
  const again = await fileSystem.open(inode, constants.O_RDONLY, USER);
  assert.equal(Buffer.from(await fileSystem.read(again.handle, 0, 9)).toString(), 'writt');
  await fileSystem.release(again.handle);
  await close(handle);
  assert.equal(textAt('a'), 'writt');
  assert.equal((await memory.attributes(number)).mode, 0o600);
  assert.equal(Buffer.from(await memory.xattr(number, 'user.note')).toString(), 'kept');
});

test('numbers of a catalog that the volume has left are dropped', async () => {
  let catalog = ROOT_CATALOG;
  const backend = {
    reserve: async (count: number) => {
      const first = inodesOf(catalog).first + 999;
      return { first, count, server: 's1', untilMs: Number.POSITIVE_INFINITY };
    },
    reserving: () => ({ server: 's1', catalog }),
    createWithContents: () => assert.fail('No file is sent'),
  };
  const numbers = new Creates(systemWorld, backend, assert.ifError);
  numbers.prepare();
  await turn();
  assert.equal(numbers.takeNumber()?.inode, 1_000);
  catalog = 3 as CatalogNumber;
  assert.equal(numbers.takeNumber(), null);
  await turn();
  assert.equal(numbers.takeNumber()?.inode, inodesOf(catalog).first + 999);
});

test('files of directories with a placement class have numbers of their own', async () => {
  const asked: (number | undefined)[] = [];
  const backend = {
    reserve: async (count: number, placement?: number) => {
      asked.push(placement);
      return {
        first: 1_000 * asked.length,
        count,
        server: 's1',
        untilMs: Number.POSITIVE_INFINITY,
      };
    },
    reserving: () => ({ server: 's1', catalog: 0 }),
    createWithContents: async () => [{ kind: 'not-created' } as const],
  };
  const numbers = new Creates(systemWorld, backend, assert.ifError);
  const next = async (placement?: number): Promise<number | undefined> => {
    numbers.takeNumber(placement);
    await turn();
    return numbers.takeNumber(placement)?.inode;
  };
  assert.deepEqual([await next(), await next(7), await next(8)], [1_000, 2_000, 3_000]);
  assert.deepEqual(asked, [undefined, 7, 8]);
  await numbers.send({ inode: 2_000, contents: Buffer.alloc(1) } as unknown as NewFile, 's1');
  assert.equal(await next(7), 4_000, 'Others are reserved after a failure');
  assert.deepEqual([numbers.takeNumber()?.inode, numbers.takeNumber(8)?.inode], [1_001, 3_001]);
});

test('a delegated directory is listed from memory, with the changes of this mount', async (t) => {
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
  await shows(['a', 'first'], 'first listing', 1);
  await shows(['a', 'first'], 'second listing');
  await file('b', 'text');
  await shows(['a', 'b', 'first'], 'a new file');
  await fileSystem.unlink(directory, 'a');
  await shows(['b', 'first'], 'a removal');
  await fileSystem.rename(at('b'), at('zz'), 0);
  await shows(['first', 'zz'], 'after a rename');
  await fileSystem.makeDirectory(directory, 'e', 0o755, USER);
  await fileSystem.symlink(directory, 'link', 'zz', USER);
  await fileSystem.makeNode(directory, 'fifo', constants.S_IFIFO | 0o600, 0, USER);
  await shows(['e', 'fifo', 'first', 'link', 'zz'], 'all kinds');
  await fileSystem.removeDirectory(directory, 'e');
  await fileSystem.rename(at('link'), at('fifo'), 0);
  await shows(['fifo', 'first', 'zz'], 'after a rename over another name');
  const { inode } = await fileSystem.lookup(directory, 'zz');
  await fileSystem.link(inode, directory, 'y');
  await shows(['fifo', 'first', 'y', 'zz'], 'after a link');
  await fileSystem.rename(at('y'), at('zz'), 0);
  await shows(
    ['fifo', 'first', 'y', 'zz'],
    'after a rename between two names of one file, which changes nothing',
    1,
  );
  await fileSystem.rename(at('fifo'), at('first'), 2);
  await shows(['fifo', 'first', 'y', 'zz'], 'after an exchange of names', 1);
  await assert.rejects(fileSystem.removeDirectory(directory, 'first'));
  await shows(['fifo', 'first', 'y', 'zz'], 'after a removal that failed', 1);
  births.fate = 'refused';
  const requests = births.requests.length;
  await assert.rejects(file('refused', 'text'));
  // The mount sends it once more after the close.
  while (births.requests.length < requests + 2) await turn();
  await turn();
  births.fate = 'born';
  await shows(['fifo', 'first', 'y', 'zz'], 'after a refused creation', 1);
  await births.recall(directory);
  await memory.unlink(directory, 'zz');
  await shows(['fifo', 'first', 'y'], 'after the recall other clients may change it', 1);
});

test('a directory that is delegated again is listed with the changes of other clients', async (t) => {
  const { fileSystem, births, memory, directory, file } = await started(t);
  const names = async (): Promise<string[]> => {
    const handle = await fileSystem.openDirectory(directory);
    const { entries } = await fileSystem.readDirectory(handle, 2, 100);
    await fileSystem.releaseDirectory(handle);
    return entries.map(({ name }) => name);
  };
  await file('a', 'text');
  assert.deepEqual(await names(), ['a', 'first']);
  // The cache session has ended: there was no recall.
  births.end();
  await memory.unlink(directory, 'a');
  const { delegated } = births.asked;
  for (const name of ['b', 'c']) await file(name, 'text');
  while (births.asked.delegated === delegated) await turn();
  await turn();
  assert.deepEqual(await names(), ['b', 'c', 'first']);
});
