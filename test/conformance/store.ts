import assert from 'node:assert/strict';
import { after, beforeEach, describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { FAN_OUT, ObjectDigests } from '../../server/storage/object-digests.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import type { FileStore } from '../../server/storage/store.ts';
import type { WritePart } from '../../wire/file-operation.ts';
import { isLong } from '../long.ts';
import { describeFile, differenceTo, type FileDescription } from './description.ts';

/** A store under test, which can be deleted, and opened again if it has a disk. */
export interface StoreFixture {
  readonly store: FileStore;
  /** Closes the store and opens it again; null for a store without a disk. */
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

/** @returns bytes that differ by offset and seed */
export function pattern(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at++) bytes[at] = (at * 31 + seed * 101 + (at >> 8)) & 0xff;
  return bytes;
}

/** Creates the replica of a file in an epoch of its own, ready for operations from 1. */
export async function begin(store: FileStore, file: FileId, objectBytes: number, counter = 1): Promise<void> {
  store.create(file, VIEW, objectBytes);
  await store.promise(file, epoch(counter));
  await store.install(file, epoch(counter), 0, NO_SESSIONS, null);
}

/** Tests that every kind of store must pass. */
export function storeConformance(
  name: string,
  make: () => Promise<StoreFixture>,
  fuzzRuns = isLong ? 40 : 6,
): void {
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
    const writeParts = (seq: number, parts: readonly WritePart[], at = e1) =>
      store.apply(file, at, seq, { kind: 'write-parts', parts, modifiedNs: BigInt(seq) }, Uint8Array.of(seq));
    const truncate = (seq: number, sizeBytes: number, at = e1) =>
      store.apply(
        file,
        at,
        seq,
        { kind: 'truncate', sizeBytes, modifiedNs: BigInt(seq) },
        Uint8Array.of(seq),
      );
    const punch = (seq: number, from: number, to: number, options: { grows?: boolean; at?: Epoch } = {}) =>
      store.apply(
        file,
        options.at ?? e1,
        seq,
        { kind: 'punch', from, to, grows: options.grows === true, modifiedNs: BigInt(seq) },
        Uint8Array.of(seq),
      );
    /** Asserts that the hole bytes are those without an entry. */
    const assertHoles = () => {
      const { attributes, objects } = describeFile(store, file);
      const storedBytes = objects.reduce((sum, { length }) => sum + length, 0);
      assert.equal(store.holeBytes(file), attributes.sizeBytes - storedBytes);
    };
    /** Asserts that the store's digests are those of its entries. */
    const assertDigests = async () => {
      const kept = await store.digests(file);
      const expected = new ObjectDigests();
      for (const entry of describeFile(store, file).objects) expected.replace(null, entry);
      assert.deepEqual(kept.total, expected.total);
      const { objects } = describeFile(store, file);
      assertHoles();
      for (let level = 0; level < expected.height; level++) {
        const numbers = new Set(objects.map(({ index }) => Math.floor(index / FAN_OUT ** (level + 1))));
        for (const number of numbers) {
          assert.deepEqual(kept.digest(level, number), expected.digest(level, number), `${level}, ${number}`);
        }
      }
      return kept;
    };
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

    test('the store reports which records changed, and which replicas are new or in another view', async () => {
      const changes: (readonly [number, boolean])[] = [];
      const reported = () => changes.splice(0);
      store.recordChanges.on((changed, isPlaced) => changes.push([changed, isPlaced]));
      await begin(store, file, 8);
      assert.deepEqual([...new Set(reported().map(([changed]) => changed))], [file]);
      await write(1, 0, pattern(4, 1));
      assert.deepEqual(reported(), [[file, false]]);
      const base = describeFile(store, file);
      const view = { number: 2, members: ['a', 'b'] as ServerId[] };
      const moved = { ...base, record: { ...base.record, view } };
      await store.install(file, epoch(2), 1, NO_SESSIONS, differenceTo(store, file, moved));
      assert.deepEqual(reported(), [[file, true]]);
      const preserved = fileId(6);
      const contents = { epoch: base.attributes.versionEpoch, seq: base.attributes.versionSeq };
      await store.apply(file, epoch(2), 2, { kind: 'preserve', as: preserved, contents }, NO_SESSIONS);
      assert.ok(reported().some(([changed, isPlaced]) => changed === preserved && isPlaced));
      const first = {
        file: fileId(7),
        operations: [{ kind: 'write', offset: 0, bytes: pattern(4, 2), modifiedNs: 1n }],
      } as const;
      await store.createWithContents([first], e1, VIEW, 8);
      assert.ok(reported().some(([changed, isPlaced]) => changed === 7 && isPlaced));
      await store.remove(file);
      assert.deepEqual(reported(), [[file, false]]);
      assert.equal(store.record(file), null);
    });

    test('a new replica is empty, with zero epochs', async () => {
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
        seal: 'open',
      });
      assert.equal((await readAll()).length, 0);
      assert.equal(store.trust(file), 'intact');
    });

    test('a replica that may have replaced one is lost until a base is installed', async () => {
      store.create(file, VIEW, 16, 'lost');
      assert.equal(store.trust(file), 'lost');
      await store.promise(file, e1);
      assert.equal(store.trust(file), 'lost', 'a promise alone does not end that');
      await reopen();
      if (fixture?.reopen == null) store.create(file, VIEW, 16, 'lost');
      assert.equal(store.trust(file), 'lost');
      await store.install(file, e1, 0, NO_SESSIONS, null);
      assert.equal(store.trust(file), 'intact');
    });

    test('a change of the view is an operation, and does not change the contents', async () => {
      const view = { number: 2, members: VIEW.members.slice(1), joint: VIEW.members, policy: 'all' } as const;
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      const { attributes, objects } = describeFile(store, file);
      await store.apply(file, e1, 2, { kind: 'view', view }, Uint8Array.of(2));
      for (const again of [false, true]) {
        if (again) await reopen();
        assert.deepEqual(store.record(file)?.view, view);
        assert.equal(store.record(file)?.seq, 2);
        assert.deepEqual([...(store.record(file)?.sessions ?? [])], [2]);
        assert.deepEqual(store.attributes(file), attributes);
        assert.deepEqual(describeFile(store, file).objects, objects);
      }
      // A base includes its view.
      const base = describeFile(store, file);
      await store.apply(file, e1, 3, { kind: 'view', view: { ...view, number: 3 } }, Uint8Array.of(3));
      await store.install(file, epoch(2), 2, base.record.sessions, differenceTo(store, file, base));
      assert.deepEqual(store.record(file)?.view, view);
      await store.apply(file, epoch(2), 3, { kind: 'delete' }, NO_SESSIONS);
      await store.apply(file, epoch(2), 4, { kind: 'view', view: { ...view, number: 4 } }, NO_SESSIONS);
      assert.equal(store.record(file)?.view.number, 4, 'also for a deleted file');
    });

    test('a second creation changes nothing', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(5, 1));
      store.create(file, { number: 2, members: [] }, 32);
      assert.equal(store.record(file)?.view.number, 1);
      assert.equal(store.attributes(file).objectBytes, 16);
    });

    test('the promised and the installed epoch survive a restart', async () => {
      await begin(store, file, 16, 4);
      await store.promise(file, epoch(9));
      await reopen();
      if (fixture?.reopen == null) return;
      assert.deepEqual(store.record(file)?.promised, epoch(9));
      assert.deepEqual(store.record(file)?.installed, epoch(4));
    });

    test('replicas are created with their first operations, and accept further ones', async () => {
      const other = fileId(6);
      const births = [file, other].map((each, at) => ({
        file: each,
        operations: [
          { kind: 'write', offset: 0, bytes: pattern(40, at), modifiedNs: 9n },
          { kind: 'settling' },
        ] as const,
      }));
      assert.deepEqual(await store.createWithContents(births, e1, VIEW, 16), [null, null]);
      await reopen();
      if (fixture?.reopen == null) return;
      for (const [at, each] of [file, other].entries()) {
        const { promised, installed, seq } = store.record(each) ?? assert.fail('The replica exists');
        assert.deepEqual({ promised, installed, seq }, { promised: e1, installed: e1, seq: 2 });
        assert.equal(store.trust(each), 'intact');
        const { sizeBytes, versionSeq } = store.attributes(each);
        assert.deepEqual({ sizeBytes, versionSeq }, { sizeBytes: 40, versionSeq: 1 });
        assert.deepEqual(Buffer.from(await store.read(each, 0, 99)), Buffer.from(pattern(40, at)));
      }
      await store.promise(file, epoch(2));
      await store.install(file, epoch(2), 2, NO_SESSIONS, null);
      await write(3, 8, pattern(8, 5), epoch(2));
      const bytes = Buffer.from(pattern(40, 0));
      bytes.set(pattern(8, 5), 8);
      assert.deepEqual(Buffer.from(await store.read(file, 0, 99)), bytes);
    });

    test('a creation, promise and installation in one tick take effect in order, with the write after them', async () => {
      store.create(file, VIEW, 16);
      await Promise.all([
        store.promise(file, epoch(1)),
        store.install(file, epoch(1), 0, NO_SESSIONS, null),
        write(1, 0, pattern(10, 1)),
      ]);
      await reopen();
      if (fixture?.reopen == null) return;
      const { promised, installed, seq } = store.record(file) ?? assert.fail('The replica exists');
      assert.deepEqual({ promised, installed, seq }, { promised: epoch(1), installed: epoch(1), seq: 1 });
      assert.deepEqual(Buffer.from(await readAll()), Buffer.from(pattern(10, 1)));
    });

    test('a write across objects can be read in any part', async () => {
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

    test('of overlapping parts in one operation the later one counts', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(50, 1));
      const parts = [
        { offset: 10, bytes: pattern(20, 2) },
        { offset: 66, bytes: pattern(5, 3) },
        { offset: 14, bytes: pattern(4, 4) },
        { offset: 17, bytes: pattern(20, 5) },
      ];
      await writeParts(2, parts);
      const wanted = Buffer.alloc(71);
      wanted.set(pattern(50, 1));
      for (const { offset, bytes } of parts) wanted.set(bytes, offset);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      assert.deepEqual(
        describeFile(store, file).objects.map(({ index, versionSeq }) => [index, versionSeq]),
        [
          [0, 2],
          [1, 2],
          [2, 2],
          [3, 1],
          [4, 2],
        ],
        'The object between them is unchanged',
      );
      assert.equal(store.attributes(file).versionSeq, 2);
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
        describeFile(store, file).objects.map(({ index, length, versionSeq }) => [index, length, versionSeq]),
        [
          [0, 5, 2],
          [2, 12, 1],
        ],
      );
    });

    test('a truncate within an object removes the bytes behind it for good', async () => {
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

    test('appends after a truncate do not show the removed bytes', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(16, 1));
      await truncate(2, 4);
      await write(3, 6, pattern(2, 2));
      const wanted = Buffer.alloc(8);
      wanted.set(pattern(16, 1).subarray(0, 4));
      wanted.set(pattern(2, 2), 6);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
    });

    test('a punch removes whole objects and zeroes parts of others', async () => {
      await begin(store, file, 16);
      const bytes = pattern(100, 1);
      await write(1, 0, bytes);
      await assertDigests();
      await punch(2, 20, 70);
      const wanted = Buffer.from(bytes).fill(0, 20, 70);
      for (const again of [false, true]) {
        if (again) await reopen();
        assert.deepEqual(Buffer.from(await readAll()), wanted);
        assert.equal(store.attributes(file).sizeBytes, 100, 'The size is unchanged');
        assert.equal(store.attributes(file).versionSeq, 2);
        assert.equal(store.attributes(file).modifiedNs, 2n);
        assert.deepEqual(
          describeFile(store, file).objects.map(({ index, length, versionSeq }) => [
            index,
            length,
            versionSeq,
          ]),
          [
            // Zeros at the end of an object are not stored: the object is shorter.
            [0, 16, 1],
            [1, 4, 2],
            [4, 16, 2],
            [5, 16, 1],
            [6, 4, 1],
          ],
        );
        await assertDigests();
      }
    });

    test('a punch works within an object, at its edges, and beyond the end', async () => {
      await begin(store, file, 16);
      const wanted = Buffer.from(pattern(40, 1));
      await write(1, 0, wanted);
      await punch(2, 3, 5);
      wanted.fill(0, 3, 5);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      await punch(3, 16, 32);
      wanted.fill(0, 16, 32);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      await punch(4, 36, 1000);
      wanted.fill(0, 36);
      await punch(5, 500, 600);
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      assert.deepEqual(
        describeFile(store, file).objects.map(({ index, length }) => [index, length]),
        [
          [0, 16],
          [2, 4],
        ],
      );
      await write(6, 38, pattern(4, 2));
      assert.deepEqual(Buffer.from(await readAll()), Buffer.concat([wanted.subarray(0, 38), pattern(4, 2)]));
      await punch(7, 0, 42);
      assert.deepEqual(describeFile(store, file).objects, []);
      assert.deepEqual(Buffer.from(await readAll()), Buffer.alloc(42));
      await assertDigests();
    });

    test('a punch with `grows` makes the file longer, and never shorter', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(20, 1));
      await punch(2, 60, 60, { grows: true });
      await punch(3, 30, 30, { grows: true });
      assert.equal(store.attributes(file).sizeBytes, 60);
      await punch(4, 10, 80, { grows: true });
      const wanted = Buffer.alloc(80);
      wanted.set(pattern(20, 1).subarray(0, 10));
      assert.deepEqual(Buffer.from(await readAll()), wanted);
      await reopen();
      if (fixture?.reopen != null) assert.deepEqual(Buffer.from(await readAll()), wanted);
    });

    test('a read of a hole depends on the punch that made it', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(48, 1));
      await punch(2, 16, 32);
      assert.equal(store.readDependsOn(file, 16, 16), 2);
      await punch(3, 0, 16);
      const base = describeFile(store, file);
      await store.install(file, epoch(2), 3, NO_SESSIONS, differenceTo(store, file, base));
      assert.equal(store.readDependsOn(file, 0, 48), 0, 'The contents are of an earlier epoch');
    });

    test('a punch does not change a deleted or a sealed file', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      await store.apply(file, e1, 2, { kind: 'seal', final: false }, NO_SESSIONS);
      await punch(3, 0, 20);
      assert.ok(Buffer.from(pattern(40, 1)).equals(await readAll()));
      await store.apply(file, e1, 4, { kind: 'delete' }, NO_SESSIONS);
      await punch(5, 0, 100, { grows: true });
      assert.equal(store.attributes(file).sizeBytes, 0);
    });

    test('concurrent operations take effect in order', async () => {
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
      assert.equal(store.readDependsOn(file, 16, 16), 1, 'The size is of operation 1');
      assert.equal(store.readDependsOn(file, 0, 48), 3);
      await truncate(4, 50);
      assert.equal(store.readDependsOn(file, 16, 16), 4, 'The size is part of the answer');
      await store.promise(file, epoch(2));
      await store.install(file, epoch(2), 4, NO_SESSIONS, null);
      assert.equal(store.readDependsOn(file, 0, 50), 0, 'The contents are of an earlier epoch');
    });

    test('a deleted file has no contents and does not change', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      await store.apply(file, e1, 2, { kind: 'delete' }, NO_SESSIONS);
      assert.equal(store.attributes(file).dead, true);
      assert.equal(store.attributes(file).sizeBytes, 0);
      await write(3, 0, pattern(4, 3));
      assert.equal(store.record(file)?.seq, 3);
      assert.equal((await readAll()).length, 0);
      assert.deepEqual(describeFile(store, file).objects, []);
    });

    test('a settling is counted as an operation and changes nothing', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      const before = describeFile(store, file);
      await store.apply(file, e1, 2, { kind: 'settling' }, Uint8Array.of(2));
      await store.flush(file);
      for (const again of [false, true]) {
        if (again) await reopen();
        assert.deepEqual(store.attributes(file), before.attributes);
        assert.deepEqual(describeFile(store, file).objects, before.objects);
        assert.equal(store.record(file)?.seq, 2);
      }
      await write(3, 40, pattern(4, 3));
      assert.equal(store.attributes(file).sizeBytes, 44);
    });

    test('a sealed file keeps its contents after any operation, until it is deleted', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(40, 1));
      const before = describeFile(store, file);
      assert.equal(before.attributes.seal, 'open');
      await Promise.all([
        store.apply(file, e1, 2, { kind: 'seal', final: false }, Uint8Array.of(2)),
        write(3, 4, pattern(60, 3)),
        truncate(4, 3),
        truncate(5, 80),
      ]);
      const sealed = { ...before.attributes, seal: 'sealed' };
      assert.deepEqual(store.attributes(file), sealed);
      await store.apply(file, e1, 6, { kind: 'seal', final: true }, Uint8Array.of(6));
      await store.apply(file, e1, 7, { kind: 'seal', final: false }, Uint8Array.of(7));
      await store.flush(file);
      for (const again of [false, true]) {
        if (again) await reopen();
        assert.deepEqual(store.attributes(file), { ...before.attributes, seal: 'final' });
        assert.equal(store.record(file)?.seq, 7, 'Operations without effect are counted, too');
        assert.deepEqual([...(store.record(file)?.sessions ?? [])], [7]);
        assert.deepEqual(describeFile(store, file).objects, before.objects);
        assert.ok(Buffer.from(pattern(40, 1)).equals(await readAll()));
      }
      // A base includes whether the file is sealed.
      const base = describeFile(store, file);
      await store.apply(file, e1, 8, { kind: 'delete' }, NO_SESSIONS);
      assert.equal(store.attributes(file).dead, true);
      assert.equal((await readAll()).length, 0);
      const other = fileId(6);
      await begin(store, other, 16);
      const empty = { ...base, objects: [] };
      await store.install(other, epoch(2), 7, NO_SESSIONS, differenceTo(store, other, empty));
      assert.equal(store.attributes(other).seal, 'final');
    });

    test('a read returns the contents from its start, whatever is written meanwhile', async () => {
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

    test('an object is read by its version', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(20, 1));
      await write(2, 0, pattern(3, 2));
      assert.equal(await store.readObject(file, 0, 1, 1), null);
      assert.equal((await store.readObject(file, 0, 1, 2))?.length, 16);
      assert.equal((await store.readObject(file, 1, 1, 1))?.length, 4);
      assert.equal(await store.readObject(file, 9, 1, 1), null);
    });

    test('another replica’s state is installed as a whole', async () => {
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
      const base = describeFile(store, other);
      await begin(store, file, 16);
      await write(1, 0, pattern(200, 1));
      const before = await readAll();
      for (const entry of base.objects) {
        const bytes = await store.readObject(other, entry.index, entry.versionEpoch, entry.versionSeq);
        assert.ok(bytes);
        await store.stage(file, { entry, bytes });
      }
      assert.deepEqual(await readAll(), before, 'Staged objects are not part of the contents');
      await store.promise(file, epoch(3));
      await store.install(
        file,
        epoch(3),
        base.record.seq,
        base.record.sessions,
        differenceTo(store, file, base),
      );
      for (const again of [false, true]) {
        if (again) await reopen();
        if (again && fixture?.reopen == null) break;
        const now = describeFile(store, file);
        assert.deepEqual(now.objects, base.objects);
        assert.deepEqual(now.attributes, base.attributes);
        assert.deepEqual([...now.record.sessions], [9, 3]);
        assert.deepEqual(now.record.installed, epoch(3));
        assert.deepEqual(await readAll(), await store.read(other, 0, 1000));
      }
      // The same base again needs no staged objects: the store has these versions.
      await store.promise(file, epoch(4));
      await store.install(
        file,
        epoch(4),
        base.record.seq,
        base.record.sessions,
        differenceTo(store, file, base),
      );
      await write(4, 0, pattern(4, 77), epoch(4));
      assert.deepEqual(Buffer.from(await store.read(file, 0, 4)), Buffer.from(pattern(4, 77)));
    });

    test('the installation of a difference has the same result as that of the whole state', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(160, 1));
      await truncate(2, 150);
      const own = describeFile(store, file);
      const bytes = [pattern(16, 9), pattern(7, 10)] as const;
      const entryOf = (index: number, content: Uint8Array): ObjectEntry => ({
        index,
        versionEpoch: 2,
        versionSeq: 5,
        length: content.length,
        crc32: crc32(content),
      });
      const staged = [entryOf(3, bytes[0]), entryOf(1000, bytes[1])] as const;
      for (const [at, entry] of staged.entries())
        await store.stage(file, { entry, bytes: bytes[at] as Uint8Array });
      assert.deepEqual(store.staged(file, 3), staged[0]);
      await store.digests(file);
      await store.promise(file, epoch(3));
      await store.install(file, epoch(3), 5, Uint8Array.of(5), {
        record: { ...own.record, view: { ...VIEW, number: 4 } },
        attributes: { ...own.attributes, sizeBytes: 16_007 },
        from: { epoch: own.record.installed, seq: own.record.seq },
        changes: new Map([
          [3, staged[0]],
          [5, null],
          [77, null],
          [1000, staged[1]],
        ]),
      });
      assert.equal(store.staged(file, 3), null);
      for (const again of [false, true]) {
        if (again) await reopen();
        const now = describeFile(store, file);
        const kept = own.objects.filter(({ index }) => index !== 3 && index !== 5);
        assert.deepEqual(
          now.objects,
          [...kept, ...staged].sort((a, b) => a.index - b.index),
        );
        assert.equal(now.record.view.number, 4);
        assert.equal(now.record.seq, 5);
        assert.equal(now.attributes.sizeBytes, 16_007);
        assert.deepEqual(Buffer.from(await store.read(file, 48, 16)), Buffer.from(bytes[0]));
        assert.deepEqual(Buffer.from(await store.read(file, 80, 16)), Buffer.alloc(16));
        await assertDigests();
      }
    });

    test('a difference to another state than the store’s is an assertion failure', async () => {
      await begin(store, file, 16);
      await write(1, 0, pattern(16, 1));
      const { record, attributes } = describeFile(store, file);
      await write(2, 0, pattern(16, 2));
      const from = { epoch: record.installed, seq: record.seq };
      const difference = { record, attributes, from, changes: new Map() };
      await assert.rejects(store.install(file, epoch(2), 1, NO_SESSIONS, difference), {
        name: 'AssertionFailure',
      });
    });

    test('entries are returned in order, in pages', async () => {
      await begin(store, file, 16);
      for (const [at, index] of [40, 3, 900, 4].entries()) await write(at + 1, index * 16, pattern(5, index));
      const indices = (first: number, last: number, countMax: number) =>
        store.entries(file, first, last, countMax).map(({ index }) => index);
      assert.deepEqual(indices(0, Number.MAX_SAFE_INTEGER, 10), [3, 4, 40, 900]);
      assert.deepEqual(indices(4, 900, 2), [4, 40]);
      assert.deepEqual(indices(5, 39, 10), []);
      assert.deepEqual(indices(900, 900, 10), [900]);
      assert.deepEqual(store.entries(file, 3, 3, 1), [describeFile(store, file).objects[0]]);
    });

    test('digests follow each change of the object map', async () => {
      await begin(store, file, 16);
      await assertDigests();
      await write(1, 0, pattern(16 * 300, 1));
      await assertDigests();
      await write(2, 16 * 70_000 + 3, pattern(40, 2));
      await write(3, 20, pattern(3, 3));
      await assertDigests();
      await truncate(4, 16 * 200 + 5);
      await truncate(5, 16 * 400);
      await assertDigests();
      const digests = await store.digests(file);
      const leaf = Math.floor(200 / 16);
      assert.deepEqual(digests.leavesSince({ epoch: 1, seq: 3 }, 0, 10).includes(leaf), true);
      assert.deepEqual(digests.leavesSince({ epoch: 1, seq: 5 }, 0, 10), []);
      assert.deepEqual(digests.leavesSince({ epoch: 0, seq: 0 }, 17, 2), [1, 2]);
      await store.apply(file, e1, 6, { kind: 'delete' }, NO_SESSIONS);
      assert.deepEqual((await assertDigests()).total, { low: 0, high: 0 });
    });

    test('digests are right if the map changes while they are computed', async () => {
      await begin(store, file, 16);
      for (let seq = 1; seq <= 8; seq++) await write(seq, (seq - 1) * 16_000, pattern(16_000, seq));
      await reopen();
      const asked = store.digests(file);
      const works: Promise<void>[] = [];
      for (let seq = 9; seq <= 40; seq++) {
        works.push(write(seq, ((seq * 797) % 8_000) * 16, pattern(100, seq)));
        await new Promise((resolve) => setImmediate(resolve));
      }
      works.push(truncate(41, 16 * 3_000));
      await asked;
      await Promise.all(works);
      await assertDigests();
    });

    test('hole bytes are right if many objects change while they are counted', async () => {
      const count = 9_000;
      const parts = Array.from({ length: count }, (_, at) => ({
        offset: at * 8,
        bytes: Uint8Array.of(1, 2),
      }));
      await begin(store, file, 8);
      await writeParts(1, parts);
      await reopen();
      const counted = store.whenHolesCounted(file);
      await write(2, 4, Uint8Array.of(3));
      await punch(3, 8, 24);
      await truncate(4, count * 16);
      await counted;
      assert.equal(store.holeBytes(file), count * 16 - (count - 2) * 2 - 3);
      await write(5, (count - 1) * 8, Uint8Array.of(1, 2, 3));
      assert.equal(store.holeBytes(file), count * 16 - (count - 2) * 2 - 4);
      await assertDigests();
    });

    test('staged objects that a base needs are kept', async () => {
      await begin(store, file, 16);
      const bytes = pattern(16, 9);
      for (const index of [1, 2]) {
        const entry = { index, versionEpoch: 1, versionSeq: 4, length: 16, crc32: crc32(bytes) };
        await store.stage(file, { entry, bytes });
      }
      store.unstage(file, ({ index }) => index === 2);
      await store.flush(file);
      assert.equal(store.staged(file, 1), null);
      assert.equal(store.staged(file, 2)?.versionSeq, 4);
    });

    test('staged objects that were dropped cannot be installed', async () => {
      await begin(store, file, 16);
      const bytes = pattern(16, 9);
      const entry = { index: 0, versionEpoch: 1, versionSeq: 4, length: 16, crc32: crc32(bytes) };
      await store.stage(file, { entry, bytes });
      store.unstage(file);
      const described = describeFile(store, file);
      const base: FileDescription = { ...described, objects: [entry] };
      await assert.rejects(store.install(file, epoch(2), 4, NO_SESSIONS, differenceTo(store, file, base)), {
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

    test('a lost object has its version and no bytes, until it is repaired or replaced', async () => {
      for (const fill of [0, 1]) {
        await begin(store, file, 16);
        await write(1, 0, pattern(40, 1));
        const bytes = new Uint8Array(16).fill(fill);
        const entry = { index: 5, versionEpoch: 1, versionSeq: 4, length: 16, crc32: crc32(bytes) };
        await store.stageLost(file, entry);
        const described = describeFile(store, file);
        const attributes = { ...described.attributes, sizeBytes: 96 };
        const objects = [...described.objects, entry];
        await store.install(
          file,
          epoch(2),
          4,
          NO_SESSIONS,
          differenceTo(store, file, { ...described, attributes, objects }),
        );
        const isLost = { name: 'ServiceError', code: 'integrity' };
        await assert.rejects(store.readObject(file, 5, 1, 4), isLost);
        assert.equal((await store.read(file, 0, 40)).length, 40);
        await store.repair(file, { entry, bytes });
        assert.deepEqual(Buffer.from((await store.readObject(file, 5, 1, 4)) ?? []), Buffer.from(bytes));
        await store.remove(file);
      }
    });

    test('a removed replica is gone, and can be created again', async () => {
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

    test('files are listed in ascending order, in pages', async () => {
      for (const id of [900, 3, 2 ** 40, 17]) store.create(fileId(id), VIEW, 16);
      assert.deepEqual(store.list(fileId(0), 10), [3, 17, 900, 2 ** 40]);
      assert.deepEqual(store.list(fileId(3), 2), [17, 900]);
      await store.promise(fileId(17), epoch(1));
      assert.deepEqual(store.list(fileId(3), 2), [17, 900]);
    });

    test('a flush without changes and many flushes at once resolve', async () => {
      await begin(store, file, 16);
      await store.flush(file);
      const works: Promise<void>[] = [];
      for (let seq = 1; seq <= 20; seq++) works.push(write(seq, seq * 3, pattern(9, seq)), store.flush(file));
      await Promise.all(works);
      assert.equal(store.record(file)?.seq, 20);
    });

    test('an operation that is not the next one is an assertion failure', async () => {
      await begin(store, file, 16);
      await assert.rejects(write(2, 0, pattern(4, 1)), { name: 'AssertionFailure' });
      await write(1, 0, pattern(4, 1));
      assert.equal(store.record(file)?.seq, 1);
    });

    test('a store reports its space, and refuses after it is closed', async () => {
      const space = await store.space();
      assert.ok(space.freeBytes > 0 && space.totalBytes >= space.freeBytes);
      await store.close();
      assert.throws(
        () => store.record(file),
        (error) => error instanceof ServiceError && error.code === 'storage',
      );
    });

    test('a store does what a buffer does, in any order of calls', { timeout: 120_000 }, async () => {
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
              case 'write-parts': {
                seq++;
                const parts = next.places.map(({ offset, length }, at) => {
                  return { offset, bytes: pattern(length, 1_000 * seq + at) };
                });
                const ends = parts.map(({ offset, bytes }) => offset + bytes.length);
                const grown = Buffer.alloc(Math.max(model.length, ...ends));
                grown.set(model);
                for (const { offset, bytes } of parts) grown.set(bytes, offset);
                model = grown;
                works.push(writeParts(seq, parts, epoch(inEpoch)));
                break;
              }
              case 'truncate': {
                const resized = Buffer.alloc(next.size);
                model.copy(resized);
                model = resized;
                works.push(truncate(++seq, next.size, epoch(inEpoch)));
                break;
              }
              case 'punch': {
                const { from, grows } = next;
                const to = from + next.length;
                const resized = Buffer.alloc(grows ? Math.max(model.length, to) : model.length);
                model.copy(resized);
                model = resized.fill(0, Math.min(from, resized.length), Math.min(to, resized.length));
                works.push(punch(++seq, from, to, { grows, at: epoch(inEpoch) }));
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
                assertHoles();
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
              case 'digests':
                await Promise.all(works);
                works = [];
                await assertDigests();
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
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('write-parts' as const),
      places: fc.array(fc.record({ offset: fc.nat(200), length: fc.integer({ min: 1, max: 40 }) }), {
        minLength: 1,
        maxLength: 6,
      }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('truncate' as const), size: fc.nat(200) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('punch' as const),
      from: fc.nat(200),
      length: fc.nat(80),
      grows: fc.boolean(),
    }),
  },
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
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('digests' as const) }) },
);
