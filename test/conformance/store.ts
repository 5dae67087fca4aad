import assert from 'node:assert/strict';
import { after, beforeEach, describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch, View } from '../../replica/actions.ts';
import type { FileDescription, FileStore } from '../../server/storage/store.ts';

/** A store under test, which can be thrown away and opened again where it has a disk. */
export interface StoreFixture {
  readonly store: FileStore;
  /** Closes and opens again; null for a store that remembers nothing. */
  readonly reopen: (() => Promise<void>) | null;
  dispose(): Promise<void>;
}

export const VIEW: View = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };
export const NO_SESSIONS = new Uint8Array(0);

export function epoch(counter: number): Epoch {
  return { counter, server: 'a' as ServerId, incarnation: 7 as Incarnation };
}

export function fileId(value: number): FileId {
  return value as FileId;
}

/** Bytes that differ from place to place and from seed to seed. */
export function pattern(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at++) bytes[at] = (at * 31 + seed * 101 + (at >> 8)) & 0xff;
  return bytes;
}

/** Makes the replica of a file in an epoch of its own, ready for operations from 1 on. */
export async function begin(store: FileStore, file: FileId, objectBytes: number, counter = 1): Promise<void> {
  store.create(file, VIEW, objectBytes);
  await store.promise(file, epoch(counter));
  await store.install(file, epoch(counter), 0, NO_SESSIONS, null);
}

/** What every store must do, whatever it is made of. */
export function storeConformance(name: string, make: () => Promise<StoreFixture>, fuzzRuns = 40): void {
  describe(name, () => {
    let fixture: StoreFixture | null = null;
    let store: FileStore;
    const file = fileId(5);
    const e1 = epoch(1);

    const write = (seq: number, offset: number, bytes: Uint8Array, at = e1) =>
      store.apply(
        file,
        at,
        seq,
        { kind: 'write', offset, bytes, modifiedNs: 1_700_000_000_000_000_000n + BigInt(seq) },
        Uint8Array.of(seq),
      );
    const truncate = (seq: number, sizeBytes: number, at = e1) =>
      store.apply(
        file,
        at,
        seq,
        { kind: 'truncate', sizeBytes, modifiedNs: BigInt(seq) },
        Uint8Array.of(seq),
      );
    const readAll = () => store.read(file, 0, 1_000_000);
    const reopen = async () => {
      if (fixture?.reopen == null) return;
      await fixture.reopen();
      store = fixture.store;
    };

    beforeEach(async () => {
      await fixture?.dispose();
      fixture = await make();
      store = fixture.store;
    });
    after(() => fixture?.dispose());

    test('a replica begins empty, with zero epochs', async () => {
      assert.equal(store.record(file), null);
      store.create(file, VIEW, 16);
      const record = store.record(file);
      assert.equal(record?.seq, 0);
      assert.equal(record.promised.counter, 0);
      assert.equal(record.installed.counter, 0);
      assert.deepEqual(record.view, VIEW);
      assert.deepEqual(store.attributes(file), {
        sizeBytes: 0,
        modifiedNs: 0n,
        versionEpoch: 0,
        versionSeq: 0,
        objectBytes: 16,
        dead: false,
      });
      assert.equal((await readAll()).length, 0);
      assert.equal(store.isSuspect(file), false);
    });

    test('creating again changes nothing', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(5, 1));
      store.create(file, { number: 2, members: [] }, 32);
      assert.equal(store.record(file)?.view.number, 1);
      assert.equal(store.attributes(file).objectBytes, 16);
    });

    test('promise and installed epoch survive', async () => {
      await begin(store, file, 16, 4);
      await store.promise(file, epoch(9));
      await reopen();
      if (fixture?.reopen == null) return;
      assert.deepEqual(store.record(file)?.promised, epoch(9));
      assert.deepEqual(store.record(file)?.installed, epoch(4));
    });

    test('writes that span objects, then reads of any part', async () => {
      await begin(store, file, 16);
      const bytes = pattern(100, 3);
      await write(1, 0, bytes);
      for (const again of [false, true]) {
        if (again) await reopen();
        if (again && fixture?.reopen == null) break;
        assert.deepEqual(Buffer.from(await readAll()), Buffer.from(bytes));
        for (const [offset, length] of [
          [0, 1],
          [15, 2],
          [16, 16],
          [17, 60],
          [90, 100],
          [99, 1],
          [100, 1],
          [500, 10],
        ] as const) {
          assert.deepEqual(
            Buffer.from(await store.read(file, offset, length)),
            Buffer.from(bytes.subarray(offset, offset + length)),
          );
        }
      }
    });

    test('holes, gaps within objects and growing truncates read as zeros', async () => {
      await begin(store, file, 16);
      await write(1, 40, pattern(4, 1));
      await write(2, 3, pattern(2, 2));
      await truncate(3, 70);
      const wanted = Buffer.alloc(70);
      wanted.set(pattern(4, 1), 40);
      wanted.set(pattern(2, 2), 3);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      assert.deepEqual(
        store.describe(file).objects.map(({ index, length, versionSeq }) => [index, length, versionSeq]),
        [
          [0, 5, 2],
          [2, 12, 1],
        ],
      );
    });

    test('a truncate to mid-object cuts the tail for good', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(60, 1));
      await truncate(2, 20);
      await truncate(3, 60);
      const wanted = Buffer.alloc(60);
      wanted.set(pattern(60, 1).subarray(0, 20));
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      await reopen();
      if (fixture?.reopen != null) assert.deepEqual(Buffer.from(await readAll()), wanted);
    });

    test('appends after a truncate do not bring the cut bytes back', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(16, 1));
      await truncate(2, 4);
      await write(3, 6, pattern(2, 2));
      const wanted = Buffer.alloc(8);
      wanted.set(pattern(16, 1).subarray(0, 4));
      wanted.set(pattern(2, 2), 6);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
    });

    test('operations made without waiting take effect in order', async () => {
      await begin(store, file, 16);
      const model = Buffer.alloc(64);
      const works: Promise<void>[] = [];
      for (let seq = 1; seq <= 40; seq++) {
        const offset = (seq * 7) % 50;
        const bytes = pattern(1 + (seq % 14), seq);
        model.set(bytes, offset);
        works.push(write(seq, offset, bytes));
      }
      await Promise.all(works);
      assert.equal(store.record(file)?.seq, 40);
      assert.deepEqual([...(store.record(file)?.sessions ?? [])], [40]);
      const all = await readAll();
      assert.deepEqual(Buffer.from(all), model.subarray(0, all.length));
    });

    test('attributes follow the last applied operation', async () => {
      await begin(store, file, 16, 3);
      await write(1, 10, pattern(10, 1), epoch(3));
      assert.equal(store.attributes(file).sizeBytes, 20);
      assert.equal(store.attributes(file).modifiedNs, 1_700_000_000_000_000_001n);
      assert.equal(store.attributes(file).versionEpoch, 3);
      await reopen();
      if (fixture?.reopen != null)
        assert.equal(store.attributes(file).modifiedNs, 1_700_000_000_000_000_001n);
    });

    test('a read depends on the newest operation that it shows', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(48, 1));
      await write(2, 0, pattern(4, 2));
      await write(3, 32, pattern(4, 3));
      assert.equal(store.readDependsOn(file, 0, 16), 2);
      assert.equal(store.readDependsOn(file, 16, 16), 1, 'the size is of operation 1');
      assert.equal(store.readDependsOn(file, 0, 48), 3);
      await truncate(4, 50);
      assert.equal(store.readDependsOn(file, 16, 16), 4, 'the size is part of the answer');
      await store.promise(file, epoch(2));
      await store.install(file, epoch(2), 4, NO_SESSIONS, null);
      assert.equal(store.readDependsOn(file, 0, 50), 0, 'all of it is of an earlier epoch');
    });

    test('a deleted file has no contents and changes no more', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      await store.apply(file, e1, 2, { kind: 'delete' }, NO_SESSIONS);
      assert.equal(store.attributes(file).dead, true);
      assert.equal(store.attributes(file).sizeBytes, 0);
      await write(3, 0, pattern(4, 3));
      assert.equal(store.record(file)?.seq, 3);
      assert.equal((await readAll()).length, 0);
      assert.deepEqual(store.describe(file).objects, []);
    });

    test('a read keeps what it saw, whatever is written meanwhile', async () => {
      await begin(store, file, 64);
      const before = pattern(640, 1);
      await write(1, 0, before);
      const reads: Promise<Uint8Array>[] = [];
      const writes: Promise<void>[] = [];
      for (let seq = 2; seq < 30; seq++) {
        reads.push(readAll());
        writes.push(write(seq, 0, pattern(640, seq)));
      }
      for (const read of reads) assert.deepEqual(Buffer.from(await read), Buffer.from(before));
      await Promise.all(writes);
      assert.deepEqual(Buffer.from(await readAll()), Buffer.from(pattern(640, 29)));
    });

    test('an object is told apart by its version', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(20, 1));
      await write(2, 0, pattern(3, 2));
      assert.equal(await store.readObject(file, 0, 1, 1), null);
      assert.equal((await store.readObject(file, 0, 1, 2))?.length, 16);
      assert.equal((await store.readObject(file, 1, 1, 1))?.length, 4);
      assert.equal(await store.readObject(file, 9, 1, 1), null);
    });

    test("another replica's state is installed as a whole", async () => {
      const other = fileId(6);
      await begin(store, other, 16, 2);
      for (const [seq, offset] of [
        [1, 0],
        [2, 64],
        [3, 20],
      ] as const) {
        const bytes = pattern(24, seq + 50);
        await store.apply(
          other,
          epoch(2),
          seq,
          { kind: 'write', offset, bytes, modifiedNs: 5n },
          Uint8Array.of(9, seq),
        );
      }
      const base = store.describe(other);
      await begin(store, file, 16);
      await write(1, 0, pattern(200, 1));
      const before = await readAll();
      for (const entry of base.objects) {
        const bytes = await store.readObject(other, entry.index, entry.versionEpoch, entry.versionSeq);
        assert.ok(bytes);
        await store.stage(file, { entry, bytes });
      }
      assert.deepEqual(await readAll(), before, 'what is staged is beside the contents');
      await store.promise(file, epoch(3));
      await store.install(file, epoch(3), base.record.seq, base.record.sessions, base);
      for (const again of [false, true]) {
        if (again) await reopen();
        if (again && fixture?.reopen == null) break;
        const now = store.describe(file);
        assert.deepEqual(now.objects, base.objects);
        assert.deepEqual(now.attributes, base.attributes);
        assert.deepEqual([...now.record.sessions], [9, 3]);
        assert.deepEqual(now.record.installed, epoch(3));
        assert.deepEqual(await readAll(), await store.read(other, 0, 1000));
      }
      // The same base again needs nothing staged: the versions are here.
      await store.promise(file, epoch(4));
      await store.install(file, epoch(4), base.record.seq, base.record.sessions, base);
      await write(4, 0, pattern(4, 77), epoch(4));
      assert.deepEqual(Buffer.from(await store.read(file, 0, 4)), Buffer.from(pattern(4, 77)));
    });

    test('what was staged and forgotten cannot be installed', async () => {
      await begin(store, file, 16);
      const bytes = pattern(16, 9);
      const entry = { index: 0, versionEpoch: 1, versionSeq: 4, length: 16, crc32: crc32(bytes) };
      await store.stage(file, { entry, bytes });
      store.unstage(file);
      const described = store.describe(file);
      const base: FileDescription = { ...described, objects: [entry] };
      await assert.rejects(store.install(file, epoch(2), 4, NO_SESSIONS, base), {
        name: 'AssertionFailure',
      });
    });

    test('a damaged object is not staged', async () => {
      await begin(store, file, 16);
      const bytes = pattern(16, 9);
      const entry = { index: 0, versionEpoch: 1, versionSeq: 4, length: 16, crc32: crc32(bytes) ^ 1 };
      await assert.rejects(
        store.stage(file, { entry, bytes }),
        (error) => error instanceof ServiceError && error.code === 'integrity',
      );
    });

    test('a removed replica is gone, and may be made again', async () => {
      await begin(store, file, 16);
      await begin(store, fileId(300), 16);
      await write(1, 0, pattern(40, 1));
      await store.remove(file);
      assert.equal(store.record(file), null);
      assert.deepEqual(store.list(fileId(0), 10), [300]);
      await assert.rejects(readAll(), (error) => error instanceof ServiceError && error.code === 'not-found');
      await begin(store, file, 32, 2);
      await reopen();
      if (fixture?.reopen == null) return;
      assert.equal(store.attributes(file).objectBytes, 32);
      assert.equal((await readAll()).length, 0);
    });

    test('lists files in ascending order, a page at a time', async () => {
      for (const id of [900, 3, 2 ** 40, 17]) store.create(fileId(id), VIEW, 16);
      assert.deepEqual(store.list(fileId(0), 10), [3, 17, 900, 2 ** 40]);
      assert.deepEqual(store.list(fileId(3), 2), [17, 900]);
      await store.promise(fileId(17), epoch(1));
      assert.deepEqual(store.list(fileId(3), 2), [17, 900]);
    });

    test('flush with nothing to flush, and many at once', async () => {
      await begin(store, file, 16);
      await store.flush(file);
      const works: Promise<void>[] = [];
      for (let seq = 1; seq <= 20; seq++) works.push(write(seq, seq * 3, pattern(9, seq)), store.flush(file));
      await Promise.all(works);
      assert.equal(store.record(file)?.seq, 20);
    });

    test('an operation that is not the next one is our own mistake', async () => {
      await begin(store, file, 16);
      await assert.rejects(write(2, 0, pattern(4, 1)), { name: 'AssertionFailure' });
      await write(1, 0, pattern(4, 1));
      assert.equal(store.record(file)?.seq, 1);
    });

    test('tells its space, and nothing after it is closed', async () => {
      const space = await store.space();
      assert.ok(space.freeBytes > 0 && space.totalBytes >= space.freeBytes);
      await store.close();
      assert.throws(
        () => store.record(file),
        (error) => error instanceof ServiceError && error.code === 'storage',
      );
    });

    test('does what a buffer does, in any order of calls', { timeout: 120_000 }, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
          await fixture?.dispose();
          fixture = await make();
          store = fixture.store;
          await begin(store, file, 16);
          let model = Buffer.alloc(0);
          let seq = 0;
          let inEpoch = 1;
          let works: Promise<unknown>[] = [];
          for (const next of steps) {
            switch (next.kind) {
              case 'write': {
                const offset = next.append ? model.length : next.offset;
                const bytes = pattern(next.length, ++seq);
                const grown = Buffer.alloc(Math.max(model.length, offset + bytes.length));
                grown.set(model);
                grown.set(bytes, offset);
                model = grown;
                works.push(write(seq, offset, bytes, epoch(inEpoch)));
                break;
              }
              case 'truncate': {
                const resized = Buffer.alloc(next.size);
                model.copy(resized);
                model = resized;
                works.push(truncate(++seq, next.size, epoch(inEpoch)));
                break;
              }
              case 'flush':
                works.push(store.flush(file));
                break;
              case 'reset':
                inEpoch++;
                works.push(store.install(file, epoch(inEpoch), seq, NO_SESSIONS, null));
                break;
              case 'read':
                await Promise.all(works);
                works = [];
                assert.deepEqual(
                  Buffer.from(await store.read(file, next.offset, next.length)),
                  model.subarray(next.offset, next.offset + next.length),
                );
                break;
              case 'reopen':
                await Promise.all(works);
                works = [];
                await reopen();
                if (fixture?.reopen != null) assert.equal(store.record(file)?.seq, seq);
                break;
            }
          }
          await Promise.all(works);
          assert.deepEqual(Buffer.from(await readAll()), model);
          assert.equal(store.attributes(file).sizeBytes, model.length);
        }),
        { numRuns: Number(process.env.RUNS ?? fuzzRuns) },
      );
    });
  });
}

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      offset: fc.nat(200),
      length: fc.integer({ min: 1, max: 70 }),
      append: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('truncate' as const), size: fc.nat(200) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('flush' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reset' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('read' as const),
      offset: fc.nat(220),
      length: fc.nat(120),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reopen' as const) }) },
);
