/**
 * Goal: what a mount has written is read there without a request, and never instead of what other clients have written
 * since.
 * Method: the mount's calls over a cluster in memory that counts requests, and that others write, too. The kernel
 * queries the attributes before a read if they have expired.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const LIMIT_MS = 5_000;
const AGE_MS = 1_000;
const USER = { uid: 7, gid: 8 };
const FLAGS = constants.O_RDWR | constants.O_CREAT;

async function started(t: TestContext, { ageMaxMs = AGE_MS, checksAttributesBeforeReads = true } = {}) {
  const time = { nowMs: 1_000 };
  const world = { ...systemWorld, nowMs: () => time.nowMs };
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  const state = births.state(world, ageMaxMs);
  const backend = withPendingNames(world, births.backend, births, state, () => undefined);
  const fileSystem = fileSystemOf(world, backend, ROOT, LIMIT_MS, () => undefined, state);
  const done = async () => undefined;
  fileSystem.mounted({ checksAttributesBeforeReads, invalidateInode: done, dropAttributes: done });
  t.after(() => fileSystem.stop());
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  const write = (handle: number, text: string, offset = 0) =>
    fileSystem.write(handle, offset, Buffer.from(text), USER);
  const close = async (handle: number) => {
    await fileSystem.flush(handle);
    await fileSystem.release(handle);
  };
  const create = (name: string, parent = directory) => fileSystem.create(parent, name, 0o640, FLAGS, USER);
  const open = (inode: number, flags = constants.O_RDWR) => fileSystem.open(inode, flags, USER);
  const read = async (handle: number, offset = 0, length = 4096) =>
    Buffer.from(await fileSystem.read(handle, offset, length)).toString();
  const elsewhere = (inode: number) => memory.openFile(inode);
  const countOf = (call: string) => memory.calls[call] ?? 0;
  return {
    time,
    memory,
    births,
    fileSystem,
    directory,
    create,
    open,
    write,
    read,
    close,
    elsewhere,
    countOf,
  };
}

/** A file at the cluster with the contents `text`, open for reading and writing. */
async function written(t: TestContext, text = 'text', options = {}) {
  const mount = await started(t, options);
  const { attributes, handle: first } = await mount.create('f');
  await mount.write(first, text);
  await mount.close(first);
  const { inode } = attributes;
  const { handle } = await mount.open(inode);
  const reads = mount.countOf('read');
  const isAsked = () => mount.countOf('read') > reads;
  return { ...mount, inode, handle, isAsked };
}

test('contents of a new file are read without a request, also after it is opened again', async (t) => {
  const { create, write, read, close, open, countOf } = await started(t);
  const { handle, attributes } = await create('f');
  await write(handle, 'some text');
  await write(handle, 'TEXT', 5);
  assert.equal(await read(handle), 'some TEXT');
  await close(handle);
  const again = await open(attributes.inode);
  assert.equal(await read(again.handle, 5, 2), 'TE');
  await write(again.handle, ' and more', 9);
  assert.equal(await read(again.handle), 'some TEXT and more');
  await close(again.handle);
  const { handle: reader } = await open(attributes.inode, constants.O_RDONLY);
  assert.equal(await read(reader), 'some TEXT and more');
  assert.equal(countOf('read'), 0);
});

test('contents of a file that was created at the cluster are read without a request', async (t) => {
  const { create, write, read, close, open, births, countOf } = await started(t);
  births.end();
  const { handle, attributes } = await create('f', ROOT);
  await write(handle, 'text');
  assert.equal(await read(handle), 'text');
  await close(handle);
  const { handle: again } = await open(attributes.inode);
  assert.equal(await read(again), 'text');
  assert.equal(countOf('read'), 0);
});

test('an open after a change by another client reads the new contents', async (t) => {
  const { time, inode, handle, read, close, open, elsewhere, isAsked } = await written(t);
  await close(handle);
  await elsewhere(inode).write(0, [Buffer.from('T')]);
  time.nowMs += 100;
  const { handle: again } = await open(inode);
  assert.equal(await read(again), 'Text');
  assert.ok(isAsked());
});

test('changes by other clients are seen after the caching time', async (t) => {
  const { time, inode, handle, read, fileSystem, elsewhere, isAsked } = await written(t);
  time.nowMs += AGE_MS - 1;
  assert.equal(await read(handle), 'text');
  assert.ok(!isAsked());
  await elsewhere(inode).write(0, [Buffer.from('T')]);
  time.nowMs += 2;
  assert.equal(
    await read(handle),
    'Text',
    'A read of a mapped file queries the cluster, as no attributes were queried before',
  );
  await fileSystem.attributes(inode);
  assert.equal(await read(handle), 'Text');
});

test('an answer that the file is unchanged extends the time for which its contents are used', async (t) => {
  const { time, inode, handle, read, fileSystem, isAsked } = await written(t);
  for (let count = 0; count < 3; count++) {
    time.nowMs += AGE_MS + 1;
    await fileSystem.attributes(inode);
    assert.equal(await read(handle), 'text');
  }
  assert.ok(!isAsked());
  // Cached attributes extend nothing.
  time.nowMs += AGE_MS - 100;
  await fileSystem.attributes(inode);
  time.nowMs += 200;
  assert.equal(await read(handle), 'text');
  assert.ok(isAsked());
});

test('sending access times does not extend the time for which contents are used', async (t) => {
  const { time, memory, inode, handle, read, fileSystem, elsewhere, isAsked } = await written(t);
  assert.equal(await read(handle), 'text');
  time.nowMs += AGE_MS - 100;
  await fileSystem.persistDirectory(ROOT);
  assert.equal(memory.noted.length, 1);
  await fileSystem.attributes(inode);
  await elsewhere(inode).write(0, [Buffer.from('T')]);
  time.nowMs += 200;
  assert.equal(await read(handle), 'Text');
  assert.ok(isAsked());
});

test('a change by another client between two writes of this mount is read', async (t) => {
  const { inode, handle, read, write, fileSystem, elsewhere } = await written(t);
  await elsewhere(inode).write(1, [Buffer.from('E')]);
  await write(handle, 'T', 3);
  await fileSystem.flush(handle);
  assert.equal(await read(handle), 'tExT', 'The answer to the write shows that the file changed before');
  await write(handle, 'X', 2);
  await fileSystem.flush(handle);
  assert.equal(await read(handle), 'tEXT');
});

test('bytes of a failed write are not read', async (t) => {
  const { inode, handle, read, write, memory, fileSystem, time } = await written(t);
  memory.disturb({ writesFail: 'no-space' });
  await write(handle, 'T');
  await assert.rejects(fileSystem.persist(handle));
  memory.disturb({ writesFail: null });
  assert.equal(await read(handle), 'text');
  await write(handle, 'X', 2);
  await fileSystem.persist(handle);
  time.nowMs += AGE_MS + 1;
  await fileSystem.attributes(inode);
  assert.equal(await read(handle), 'teXt');
});

for (const { what, options } of [
  { what: 'a kernel that does not ask before it reads', options: { checksAttributesBeforeReads: false } },
  { what: 'a handle that appends', options: {} },
]) {
  test(`a read queries the cluster for ${what}`, async (t) => {
    const { inode, handle, read, open, elsewhere, isAsked } = await written(t, 'text', options);
    const { handle: appender } = await open(inode, constants.O_RDWR | constants.O_APPEND);
    await elsewhere(inode).write(0, [Buffer.from('T')]);
    assert.equal(await read(what.includes('appends') ? appender : handle), 'Text');
    assert.ok(isAsked());
  });
}

test('without caching, the answer to the attributes query before a read decides', async (t) => {
  const { inode, handle, read, fileSystem, elsewhere, isAsked, time } = await written(t, 'text', {
    ageMaxMs: 0,
  });
  time.nowMs += 60_000;
  await fileSystem.attributes(inode);
  assert.equal(await read(handle), 'text');
  assert.ok(!isAsked());
  await elsewhere(inode).write(0, [Buffer.from('T')]);
  await fileSystem.attributes(inode);
  assert.equal(await read(handle), 'Text');
});

test('after an extension the file has zeros there, and after a cut no bytes', async (t) => {
  const { inode, handle, read, write, fileSystem, isAsked } = await written(t);
  await fileSystem.truncate(inode, 6, USER);
  assert.equal(await read(handle), 'text\0\0');
  assert.ok(!isAsked());
  await fileSystem.truncate(inode, 2, USER);
  await fileSystem.truncate(inode, 4, USER);
  assert.equal(await read(handle), 'te\0\0');
  await fileSystem.truncate(inode, 1, USER);
  await write(handle, 'T', 3);
  assert.equal(await read(handle), 't\0\0T');
});

for (let seed = 1; seed <= 20; seed++) {
  test(`reads return the current contents, whatever this mount and others change (seed ${seed})`, async (t) => {
    const prng = new Prng(seed);
    const { time, memory, fileSystem, directory, create, open, close, elsewhere, countOf } = await started(t);
    const sizeMax = 20_000;
    const made = await create('f');
    const { inode } = made.attributes;
    let { handle } = made;
    const some = () => Buffer.alloc(prng.integer(1, 6_000), prng.integer(97, 122));
    const place = () => prng.integer(0, sizeMax);
    let ownCount = 0;
    for (let step = 0; step < 150; step++) {
      switch (prng.integer(0, 11)) {
        case 0:
        case 1:
        case 2:
          await fileSystem.write(handle, prng.pick([0, 0, 4096, place()]), some(), USER);
          break;
        case 3:
          await fileSystem.truncate(inode, place(), USER);
          break;
        case 4:
          await fileSystem.allocate(handle, prng.pick([3, 16]), place(), prng.integer(1, 9_000), USER);
          break;
        case 5: {
          const appender = await open(inode, constants.O_WRONLY | constants.O_APPEND);
          await fileSystem.write(appender.handle, 0, some(), USER);
          await close(appender.handle);
          break;
        }
        case 6: {
          await close(handle);
          // Work that the close has left ends.
          await elsewhere(inode).state();
          time.nowMs += prng.integer(0, 100);
          ({ handle } = await open(inode));
          break;
        }
        case 7: {
          await fileSystem.attributes(inode);
          // Now the cluster has the file.
          await fileSystem.persist(handle);
          const other = elsewhere(inode);
          await prng.pick([
            () => other.write(place(), [some()]),
            () => other.truncate(place()),
            () => other.append(some()),
          ])();
          time.nowMs += AGE_MS + 1;
          break;
        }
        default: {
          await fileSystem.attributes(inode);
          const offset = place();
          const length = prng.integer(1, 9_000);
          const asked = countOf('read');
          const read = Buffer.from(await fileSystem.read(handle, offset, length));
          await fileSystem.persist(handle);
          const whole = Buffer.from(memory.textAt(directory, 'f') ?? '');
          assert.deepEqual(read, whole.subarray(offset, offset + length), `Step ${step}`);
          if (countOf('read') === asked) ownCount++;
        }
      }
    }
    assert.ok(ownCount > 0, 'Some reads needed no request');
  });
}
