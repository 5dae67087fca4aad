import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { isPageAligned, PAGE_BYTES, pageMemory, releasePages } from '../../base/page-memory.ts';
import { Prng } from '../../base/prng.ts';
import { type Container, Containers } from '../../server/storage/container.ts';
import { DirectWrites, type DirectWritesOptions } from '../../server/storage/direct-writes.ts';
import { DiskPace } from '../../server/storage/disk-pace.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';
import { systemWorld } from '../../world/system-world.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern, storeConformance } from '../conformance/store.ts';
import { ALL_DIRECT, DiskFixture, knowsDirectWrites, temporaryFolder } from './stores.ts';

const FILE = fileId(1);
const MIB = 1024 * 1024;
const { O_DIRECT } = fs.constants;

const coded = (code: string): Error => Object.assign(new Error(`${code}: injected`), { code });

/**
 * A disk that refuses direct writes that are not aligned, as all do, whatever the file system of the test: it makes
 * them through the page cache.
 */
class AlignedDisk implements FileOps {
  readonly #direct = new Set<number>();
  /** Direct writes, by position and length, and descriptors for them. */
  readonly writes: (readonly [position: number, length: number])[] = [];
  /** The memory that contained the bytes of the last one. */
  memory: ArrayBufferLike | null = null;
  opened = 0;
  /** What a direct write does before the disk has it: throws, or says how many bytes it takes. */
  meets: () => Promise<number> = async () => Infinity;

  async open(file: string, flags: number): Promise<number> {
    const fd = await diskFileOps.open(file, flags & ~O_DIRECT);
    if ((flags & O_DIRECT) !== 0) {
      this.opened++;
      this.#direct.add(fd);
    }
    return fd;
  }

  close(fd: number): Promise<void> {
    this.#direct.delete(fd);
    return diskFileOps.close(fd);
  }

  async write(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number> {
    if (!this.#direct.has(fd)) return diskFileOps.write(fd, buffers, position);
    const [bytes, ...others] = buffers;
    assert.ok(bytes !== undefined && others.length === 0);
    this.writes.push([position, bytes.length]);
    this.memory = bytes.buffer;
    const isAligned = position % PAGE_BYTES === 0 && bytes.length % PAGE_BYTES === 0 && isPageAligned(bytes);
    if (!isAligned) throw coded('EINVAL');
    const count = await this.meets();
    return diskFileOps.write(fd, [bytes.subarray(0, Math.min(count, bytes.length))], position);
  }

  writeNow = diskFileOps.writeNow;
  read = diskFileOps.read;
  datasync = diskFileOps.datasync;
  truncate = diskFileOps.truncate;
  unlink = diskFileOps.unlink;
  flushDirectory = diskFileOps.flushDirectory;
}

describe('a container whose large contents bypass the page cache', () => {
  let folder: string;
  let disk: AlignedDisk;
  let refusals: string[];
  const opened: Containers[] = [];

  beforeEach(() => {
    folder = temporaryFolder();
    fs.mkdirSync(path.join(folder, '01'));
    disk = new AlignedDisk();
    refusals = [];
  });
  afterEach(async () => {
    for (const containers of opened.splice(0)) await containers.close();
    fs.rmSync(folder, { recursive: true });
  });

  const containersOf = (
    options: DirectWritesOptions = {},
    nowMs = systemWorld.nowMs,
  ): [Containers, DirectWrites] => {
    const direct = new DirectWrites(nowMs, { refused: (reason) => refusals.push(reason), ...options });
    const containers = new Containers(nowMs, folder, disk, direct, (error) => assert.fail(String(error)));
    opened.push(containers);
    return [containers, direct];
  };
  const writing = (containers: Containers, position: number, pieces: readonly Uint8Array[]) =>
    containers.use(FILE, true, (container: Container) => {
      let at = position;
      const chunks = pieces.map((bytes) => {
        const chunk = { position: at, buffers: [bytes], byteCount: bytes.length };
        at += bytes.length;
        return chunk;
      });
      return container.write(chunks);
    });
  const there = (position: number, length: number): Buffer => {
    const bytes = Buffer.alloc(length);
    const fd = fs.openSync(path.join(folder, '01', '1.dat'), 'r');
    fs.readSync(fd, bytes, 0, length, position);
    fs.closeSync(fd);
    return bytes;
  };

  test('writes whole pages directly, and the rest at both ends through it', async () => {
    const [containers, direct] = containersOf(ALL_DIRECT);
    const bytes = Buffer.from(pattern(5 * PAGE_BYTES, 3));
    for (const [position, length, from, to] of [
      [0, 2 * PAGE_BYTES, 0, 2],
      [8 * PAGE_BYTES + 100, 3 * PAGE_BYTES, 9, 11],
      [16 * PAGE_BYTES, 2 * PAGE_BYTES + 1, 16, 18],
      [32 * PAGE_BYTES - 1, 2 * PAGE_BYTES, 32, 33],
    ] as const) {
      disk.writes.length = 0;
      // In pieces, as objects are.
      const pieces = [bytes.subarray(0, 1000), bytes.subarray(1000, 1001), bytes.subarray(1001, length)];
      await writing(containers, position, pieces);
      assert.deepEqual(disk.writes, [[from * PAGE_BYTES, (to - from) * PAGE_BYTES]]);
      assert.ok(there(position, length).equals(bytes.subarray(0, length)), `${position}`);
    }
    disk.writes.length = 0;
    await writing(containers, 64 * PAGE_BYTES + 1, [bytes.subarray(0, 2 * PAGE_BYTES - 2)]);
    assert.deepEqual(disk.writes, [], 'no page of it is whole');
    assert.equal(disk.opened, 1);
    assert.equal(direct.bytes, 7 * PAGE_BYTES);
  });

  test("writes from the bytes' own memory, if they begin at a page and are adjacent", async () => {
    const [containers] = containersOf(ALL_DIRECT);
    const bytes = pageMemory(3 * PAGE_BYTES);
    bytes.set(pattern(bytes.length, 5));
    const expected = Buffer.from(bytes);
    const [first, second, third] = [0, 1, 2].map((at) =>
      bytes.subarray(at * PAGE_BYTES, (at + 1) * PAGE_BYTES),
    );
    assert.ok(first !== undefined && second !== undefined && third !== undefined);
    await writing(containers, 0, [first, second, third]);
    assert.equal(disk.memory, bytes.buffer);
    await writing(containers, PAGE_BYTES, [second, third]);
    assert.equal(disk.memory, bytes.buffer);
    assert.ok(there(0, bytes.length).equals(expected));
    for (const pieces of [
      [second, first, third],
      [first, third],
      [bytes.subarray(1, PAGE_BYTES + 1)],
      [first, Buffer.from(second)],
    ]) {
      await writing(containers, 0, pieces);
      assert.notEqual(disk.memory, bytes.buffer, 'a copy');
      const whole = Buffer.concat(pieces);
      assert.ok(there(0, whole.length).equals(whole));
    }
    assert.ok(bytes.equals(expected), 'the container does not release them');
    releasePages(bytes);
  });

  test('uses it for small files and small writes, and for all if an option says so', async () => {
    const bytes = pattern(MIB, 1);
    const [containers] = containersOf();
    await writing(containers, 15 * MIB, [bytes]);
    await writing(containers, 17 * MIB, [bytes.subarray(1)]);
    assert.deepEqual(disk.writes, []);
    await writing(containers, 16 * MIB, [bytes]);
    assert.deepEqual(disk.writes, [[16 * MIB, MIB]]);
    await containers.close();
    const [told] = containersOf({ mode: 'off' });
    await writing(told, 16 * MIB, [bytes]);
    assert.equal(disk.writes.length, 1);
  });

  for (const where of ['open', 'write'] as const) {
    test(`tries a file system that does not support it once (${where})`, async () => {
      const refusing = async () => Promise.reject(coded('EINVAL'));
      if (where === 'write') disk.meets = refusing;
      else {
        const { open } = AlignedDisk.prototype;
        disk.open = (file, flags) => ((flags & O_DIRECT) !== 0 ? refusing() : open.call(disk, file, flags));
      }
      const [containers, direct] = containersOf(ALL_DIRECT);
      for (const seed of [1, 2]) {
        const bytes = pattern(3 * PAGE_BYTES + 5, seed);
        await writing(containers, 0, [bytes]);
        assert.ok(there(0, bytes.length).equals(bytes));
      }
      assert.deepEqual([refusals, direct.bytes], [['EINVAL: injected'], 0]);
      assert.equal(disk.writes.length, where === 'write' ? 1 : 0);
    });
  }

  test('continues where the disk stopped short', async () => {
    const [containers, direct] = containersOf(ALL_DIRECT);
    for (const count of [0, 2 * PAGE_BYTES, 1000]) {
      const bytes = pattern(4 * PAGE_BYTES, count);
      disk.meets = async () => count;
      await writing(containers, 0, [bytes]);
      assert.ok(there(0, bytes.length).equals(bytes), `${count}`);
    }
    assert.deepEqual([refusals, direct.bytes], [[], 2 * PAGE_BYTES + 1000]);
  });

  test('takes no more threads than it may', async () => {
    const [containers] = containersOf(ALL_DIRECT);
    const held = Promise.withResolvers<number>();
    disk.meets = () => held.promise;
    const works = Array.from({ length: 6 }, (_, at) =>
      writing(containers, at * PAGE_BYTES, [pattern(PAGE_BYTES, at)]),
    );
    // The last two wait for no direct write.
    await Promise.all(works.slice(4));
    assert.equal(disk.writes.length, 4);
    held.resolve(Infinity);
    await Promise.all(works);
    for (let at = 0; at < 6; at++)
      assert.ok(there(at * PAGE_BYTES, PAGE_BYTES).equals(pattern(PAGE_BYTES, at)));
  });

  test('makes no direct writes to a slow disk for a minute', async () => {
    let nowMs = 0;
    const [containers] = containersOf(ALL_DIRECT, () => nowMs);
    const bytes = pattern(4 * MIB, 1);
    let each = 20;
    disk.meets = async () => {
      nowMs += each;
      return Infinity;
    };
    for (let turn = 0; turn < 16; turn++) await writing(containers, 0, [bytes]);
    assert.equal(disk.writes.length, 16, '200 MB/s');
    each = 40;
    for (let turn = 0; turn < 16; turn++) await writing(containers, 0, [bytes]);
    assert.equal(disk.writes.length, 24, '100 MB/s, as eight show');
    nowMs += 60_000;
    await writing(containers, 0, [bytes]);
    assert.equal(disk.writes.length, 25);
  });
});

test('the pace of a disk is that of its fastest write, and of all at the same time', () => {
  let nowMs = 0;
  const pace = new DiskPace(() => nowMs);
  const write = (count: number, ms: number): boolean => {
    const ends = Array.from({ length: count }, () => pace.begin());
    nowMs += ms;
    for (const ended of ends) ended(4 * MIB);
    return pace.isSlow;
  };
  for (let turn = 0; turn < 7; turn++) assert.equal(write(1, 500), false);
  assert.equal(write(1, 20), false, 'one did not have to wait for the processor');
  for (let turn = 0; turn < 8; turn++) assert.equal(write(2, 40), false);
  for (let turn = 0; turn < 7; turn++) assert.equal(write(1, 40), false);
  assert.equal(write(1, 40), true);
  assert.equal(pace.inProgressCount, 0);
});

storeConformance('disk store that writes directly', () => DiskFixture.make({ directWrites: ALL_DIRECT }));

describe('a disk store that writes directly', () => {
  let disk: AlignedDisk;
  let fixture: DiskFixture;

  beforeEach(async () => {
    disk = new AlignedDisk();
    fixture = await DiskFixture.make({ fileOps: disk, directWrites: ALL_DIRECT });
    await begin(fixture.store, FILE, PAGE_BYTES);
  });
  afterEach(() => fixture.dispose());

  const write = (seq: number, offset: number, bytes: Uint8Array) =>
    fixture.store.apply(FILE, epoch(1), seq, { kind: 'write', offset, bytes, modifiedNs: 1n }, NO_SESSIONS);
  const read = async (length: number) => Buffer.from(await fixture.store.read(FILE, 0, length));

  for (const [code, says] of [
    ['ENOSPC', 'no-space'],
    ['EIO', 'storage'],
  ] as const) {
    test(`refuses what the disk refuses, and nothing torn is seen (${code})`, async () => {
      const bytes = pattern(10 * PAGE_BYTES, 1);
      await write(1, 0, bytes);
      disk.meets = async () => Promise.reject(coded(code));
      for (const outcome of await Promise.allSettled([
        write(2, 0, pattern(10 * PAGE_BYTES, 2)),
        write(3, 7, bytes),
      ])) {
        assert.equal(outcome.status === 'rejected' && outcome.reason.code, says);
      }
      disk.meets = async () => Infinity;
      assert.ok((await read(bytes.length)).equals(bytes));
      await write(2, PAGE_BYTES, bytes);
      assert.ok((await read(11 * PAGE_BYTES)).subarray(PAGE_BYTES).equals(bytes));
    });
  }

  test('acknowledges nothing before the disk has it', async () => {
    const held = Promise.withResolvers<number>();
    const met = Promise.withResolvers<void>();
    disk.meets = () => {
      met.resolve();
      return held.promise;
    };
    let isApplied = false;
    const applied = write(1, 0, pattern(4 * PAGE_BYTES, 1)).then(() => {
      isApplied = true;
    });
    await Promise.race([met.promise, applied]);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([isApplied, fixture.store.attributes(FILE).sizeBytes], [false, 0]);
    held.resolve(Infinity);
    await applied;
    assert.ok((await read(4 * PAGE_BYTES)).equals(pattern(4 * PAGE_BYTES, 1)));
  });
});

/**
 * Goal: a reader of a container finds the last write, whichever way it was written, and so does the disk after a sync.
 * Method: a real file system; writes of all sizes at random places of one file, some of whole pages and some not,
 * several at a time, while it is read; then the file is compared by another descriptor, and past the page cache.
 */
test('both ways agree on one file', {
  skip: !knowsDirectWrites() && 'the file system has no direct writes',
}, async () => {
  const prng = new Prng(1);
  const fixture = await DiskFixture.make({ directWrites: ALL_DIRECT });
  const { store } = fixture;
  const model = Buffer.alloc(64 * PAGE_BYTES);
  let size = 0;
  try {
    await begin(store, FILE, 2 * PAGE_BYTES);
    let seq = 0;
    for (let round = 0; round < 40; round++) {
      const works = Array.from({ length: 6 }, () => {
        const isPaged = prng.chance(0.4);
        const unit = isPaged ? PAGE_BYTES : 1;
        const offset = isPaged ? prng.integer(0, 40) * PAGE_BYTES : prng.integer(0, 40 * PAGE_BYTES);
        const bytes = pattern(prng.integer(1, isPaged ? 12 : 12 * PAGE_BYTES) * unit, ++seq);
        model.set(bytes, offset);
        size = Math.max(size, offset + bytes.length);
        return store.apply(
          FILE,
          epoch(1),
          seq,
          { kind: 'write', offset, bytes, modifiedNs: 1n },
          NO_SESSIONS,
        );
      });
      const reading = store.read(FILE, 0, size);
      await Promise.all(works);
      await reading;
      assert.ok(
        Buffer.from(await store.read(FILE, 0, size)).equals(model.subarray(0, size)),
        `round ${round}`,
      );
      if (prng.chance(0.3)) await store.flush(FILE);
    }
    assert.ok(store.directBytes > 0);
    await store.flush(FILE);
    const container = path.join(fixture.path, 'objects', '01', '1.dat');
    assert.ok(
      readThrough(container, O_DIRECT).equals(readThrough(container, 0)),
      'on the disk, and in the page cache',
    );
    await fixture.reopen();
    assert.ok(Buffer.from(await fixture.store.read(FILE, 0, size)).equals(model.subarray(0, size)));
  } finally {
    await fixture.dispose();
  }
});

function readThrough(file: string, flag: number): Buffer {
  const fd = fs.openSync(file, fs.constants.O_RDONLY | flag);
  const bytes = pageMemory(4 * MIB);
  const count = fs.readSync(fd, bytes);
  fs.closeSync(fd);
  return bytes.subarray(0, count);
}
