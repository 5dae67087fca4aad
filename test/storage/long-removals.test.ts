import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import type { DiskStore } from '../../server/storage/disk-store.ts';
import { ObjectDigests } from '../../server/storage/object-digests.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { whenRemoved } from './large-operations.ts';
import { LossyDisk } from './lossy-disk.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';
import { assertSameBytes } from './same-bytes.ts';
import { DiskFixture } from './stores.ts';

const FILE = fileId(1);
const OBJECT_BYTES = 64;
const COUNT = 200;
const ROWS_PER_SLICE = 4;
const SLICES = { rowsPerSlice: ROWS_PER_SLICE };
const WHOLE = Buffer.from(pattern(COUNT * OBJECT_BYTES, 1));

function apply(store: DiskStore, seq: number, operation: FileOperation): Promise<void> {
  return store.apply(FILE, epoch(1), seq, operation, NO_SESSIONS);
}

function write(store: DiskStore, seq: number, offset: number, bytes: Uint8Array): Promise<void> {
  return apply(store, seq, { kind: 'write', offset, bytes, modifiedNs: 1n });
}

function truncate(store: DiskStore, seq: number, sizeBytes: number): Promise<void> {
  return apply(store, seq, { kind: 'truncate', sizeBytes, modifiedNs: 1n });
}

async function readAll(store: DiskStore): Promise<Buffer> {
  return Buffer.from(await store.read(FILE, 0, 1_000_000));
}

async function filled(store: DiskStore): Promise<void> {
  await begin(store, FILE, OBJECT_BYTES);
  await write(store, 1, 0, WHOLE);
}

/**
 * Goal: an operation that removes many objects is complete for all readers once it is applied, although slices delete
 * their rows later; what follows neither waits for all slices, nor sees what was removed.
 * Method: files of many objects, in a store whose slices have few.
 */
describe('a removal of many objects', () => {
  let fixture: DiskFixture;
  beforeEach(async () => {
    fixture = await DiskFixture.make(SLICES);
    await filled(fixture.store);
  });
  afterEach(() => fixture.dispose());

  test('is seen by all readers at once, and reads of a later extension return zeros', async () => {
    const { store } = fixture;
    await truncate(store, 2, 10 * OBJECT_BYTES);
    assert.equal(store.removalsPending, 1);
    await truncate(store, 3, WHOLE.length);
    assert.equal(store.removalsPending, 1, 'Growing does not wait');
    const expected = Buffer.alloc(WHOLE.length);
    WHOLE.copy(expected, 0, 0, 10 * OBJECT_BYTES);
    for (const isDone of [false, true]) {
      if (isDone) await whenRemoved(store);
      assertSameBytes(await readAll(store), expected);
      assert.equal(store.entries(FILE, 0, Number.MAX_SAFE_INTEGER, COUNT).length, 10);
      assert.deepEqual(store.entries(FILE, 10, 10, 1), []);
      assert.deepEqual(store.locate(FILE, 0, WHOLE.length, 1).extents.at(-1)?.begin, 0);
      assert.equal(await store.readObject(FILE, 11, 1, 1), null);
      assert.equal(store.readDependsOn(FILE, 20 * OBJECT_BYTES, OBJECT_BYTES), 3, 'The size');
    }
    const digests = await store.digests(FILE);
    const left = new ObjectDigests();
    for (const entry of describeFile(store, FILE).objects) left.replace(null, entry);
    assert.deepEqual(digests.total, left.total);
    await store.whenHolesCounted(FILE);
    assert.equal(store.holeBytes(FILE), WHOLE.length - 10 * OBJECT_BYTES);
  });

  test('lets writes pass outside, and behind the slices; its space is used again', async () => {
    const { store } = fixture;
    const expected = Buffer.from(WHOLE).fill(0, 20 * OBJECT_BYTES, 180 * OBJECT_BYTES);
    const writeHalf = (seq: number, index: number): Promise<void> => {
      const bytes = pattern(OBJECT_BYTES / 2, index);
      expected.set(bytes, index * OBJECT_BYTES);
      return write(store, seq, index * OBJECT_BYTES, bytes);
    };
    // Sent together: slices only run while no request waits, so that few of them have run by then.
    await Promise.all([
      apply(store, 2, {
        ...{ kind: 'punch', from: 20 * OBJECT_BYTES, to: 180 * OBJECT_BYTES, grows: false, modifiedNs: 1n },
      }),
      ...[190, 199, 22].map((index, at) => writeHalf(3 + at, index)),
    ]);
    assert.equal(store.removalsPending, 1, 'Writes do not wait for all slices');
    await writeHalf(6, 170);
    assertSameBytes((await readAll(store)).subarray(0, expected.length), expected);
    await whenRemoved(store);
    await store.flush(FILE);
    const container = path.join(fixture.path, 'objects', '01', '1.dat');
    const { size } = fs.statSync(container);
    await write(store, 7, 30 * OBJECT_BYTES, WHOLE.subarray(0, 100 * OBJECT_BYTES));
    assert.equal(fs.statSync(container).size, size, 'The new objects are in slots of the removed ones');
    await fixture.reopen();
    WHOLE.copy(expected, 30 * OBJECT_BYTES, 0, 100 * OBJECT_BYTES);
    assertSameBytes((await readAll(fixture.store)).subarray(0, expected.length), expected);
  });

  test('is followed by another one, an installation, a snapshot, and a removal of the replica', async () => {
    const { store } = fixture;
    await truncate(store, 2, 150 * OBJECT_BYTES);
    await truncate(store, 3, 100 * OBJECT_BYTES);
    await apply(store, 4, { kind: 'preserve', as: fileId(9), contents: { epoch: 1, seq: 3 } });
    assert.equal(store.entries(fileId(9), 0, COUNT, COUNT).length, 100);
    await truncate(store, 5, 50 * OBJECT_BYTES);
    await store.install(FILE, epoch(2), 5, NO_SESSIONS, null);
    assertSameBytes(await readAll(store), WHOLE.subarray(0, 50 * OBJECT_BYTES));
    const { attributes, from, record } = { ...describeFile(store, FILE), from: { epoch: epoch(2), seq: 5 } };
    const changes = new Map([[49, null]]);
    await store.install(FILE, epoch(3), 6, NO_SESSIONS, { attributes, changes, from, record });
    assert.equal(store.removalsPending, 0, 'The base is installed once no removal is pending');
    await store.remove(FILE);
    assert.equal(store.record(FILE), null);
    await begin(store, FILE, OBJECT_BYTES);
    assert.deepEqual(store.entries(FILE, 0, COUNT, COUNT), []);
    const preserved = Buffer.from(await store.read(fileId(9), 0, WHOLE.length));
    assertSameBytes(preserved, WHOLE.subarray(0, 100 * OBJECT_BYTES), 'The snapshot has its own objects');
    await store.remove(fileId(9));
  });

  test('continues at the next start without a request, where it was interrupted', async () => {
    await truncate(fixture.store, 2, 10 * OBJECT_BYTES);
    await fixture.reopen();
    assert.equal(fixture.store.removalsPending, 1);
    for (let turn = 0; turn < 100 * COUNT && fixture.store.removalsPending > 0; turn++)
      await new Promise((resolve) => setImmediate(resolve));
    assert.equal(fixture.store.removalsPending, 0);
    await truncate(fixture.store, 3, WHOLE.length);
    assertSameBytes(
      (await readAll(fixture.store)).subarray(10 * OBJECT_BYTES),
      Buffer.alloc(190 * OBJECT_BYTES),
    );
  });
});

test('a process killed during a removal loses none of it, and a loss of power all or nothing', async () => {
  const seen = new Set<string>();
  for (let seed = 1; seed <= 8; seed++) {
    const prng = new Prng(seed);
    await withLossyStore(async ({ store, copyAfterKill, copyAfterLoss }) => {
      await filled(store);
      await store.flush(FILE);
      await write(store, 2, 0, pattern(2 * OBJECT_BYTES, 2));
      await truncate(store, 3, 10 * OBJECT_BYTES);
      for (let turn = 0; turn < (seed - 1) * 4; turn++) await new Promise((resolve) => setImmediate(resolve));
      if (store.removalsPending > 0) seen.add('interrupted');
      // Another file's promise syncs the index, but not these contents.
      if (seed % 3 === 0) await begin(store, fileId(2), OBJECT_BYTES);
      const after = Buffer.from(WHOLE.subarray(0, 10 * OBJECT_BYTES));
      after.set(pattern(2 * OBJECT_BYTES, 2));
      for (const [copy, boot] of [
        [copyAfterKill(), 'one'],
        [copyAfterLoss(prng), 'two'],
      ] as const) {
        const look = async (left: DiskStore): Promise<void> => {
          const { seq } = left.record(FILE) ?? { seq: 0 };
          if (boot === 'one') assert.equal(seq, 3, `SEED=${seed}`);
          seen.add(`${boot} at ${seq}`);
          const expected = Buffer.alloc(WHOLE.length);
          (seq === 1 ? WHOLE : after).copy(expected);
          if (seq === 3) await truncate(left, 4, WHOLE.length);
          assertSameBytes(await readAll(left), expected, `SEED=${seed}, ${boot} at ${seq}`);
          await whenRemoved(left);
          assertSameBytes(await readAll(left), expected, `SEED=${seed}, ${boot} at ${seq}`);
        };
        await lookInto(copy, boot, look, SLICES);
      }
    }, SLICES);
  }
  assert.deepEqual([...seen].sort(), ['interrupted', 'one at 3', 'two at 1', 'two at 3']);
});

test('a loss of power before the sync of the contents takes a pending removal back', async () => {
  const outcomes = new Set<number | undefined>();
  for (let seed = 1; seed <= 6; seed++) {
    await withLossyStore(async ({ disk, store, copyAfterLoss }) => {
      await filled(store);
      await store.flush(FILE);
      // The disk syncs the index, and not these contents.
      const gate = Promise.withResolvers<void>();
      disk.contentsHeld = gate.promise;
      const look = async (left: DiskStore): Promise<void> => {
        const seq = left.record(FILE)?.seq;
        outcomes.add(seq);
        if (seq !== 1) return;
        assert.equal(left.removalsPending, 0);
        assertSameBytes(await readAll(left), WHOLE, `SEED=${seed}`);
      };
      try {
        await write(store, 2, 0, pattern(20 * OBJECT_BYTES, 2));
        await truncate(store, 3, 30 * OBJECT_BYTES);
        await begin(store, fileId(2), OBJECT_BYTES);
        // The slices may have ended by now: what they took away is kept for the earlier state.
        await lookInto(copyAfterLoss(new Prng(seed)), 'two', look, SLICES);
      } finally {
        gate.resolve();
      }
    }, SLICES);
  }
  assert.ok(outcomes.has(1), 'A state without the removal occurred');
});

test('a removal that a loss of power left pending is final: later generations do not mix with it', async () => {
  const found = new Set<string>();
  for (let seed = 1; seed <= 4; seed++) {
    const prng = new Prng(seed);
    await withLossyStore(async ({ disk: first, store, copyAfterLoss }) => {
      await filled(store);
      await store.flush(FILE);
      // The disk syncs the index, and not these contents: the state before the removal may be restored.
      const held = Promise.withResolvers<void>();
      first.contentsHeld = held.promise;
      await truncate(store, 2, 10 * OBJECT_BYTES);
      await begin(store, fileId(2), OBJECT_BYTES);
      const copy = copyAfterLoss(prng);
      held.resolve();
      const disk = new LossyDisk();
      const again = async (left: DiskStore): Promise<void> => {
        if (left.removalsPending > 0) found.add('pending');
        const kept = WHOLE.subarray(0, 10 * OBJECT_BYTES);
        const { seq } = left.record(FILE) ?? { seq: -1 };
        assert.equal(seq, 2, `SEED=${seed}: nothing of the contents was lost`);
        const apply = async (at: number, bytes: Uint8Array): Promise<void> =>
          left.apply(FILE, epoch(2), at, { kind: 'write', offset: 0, bytes, modifiedNs: 1n }, NO_SESSIONS);
        await left.install(FILE, epoch(2), seq, NO_SESSIONS, null);
        await whenRemoved(left);
        assertSameBytes(await readAll(left), kept);
        await apply(3, pattern(WHOLE.length, 2));
        await left.flush(FILE);
        await apply(4, pattern(WHOLE.length, 3));
        await begin(left, fileId(3), OBJECT_BYTES);
        assert.equal(left.failure, null);
        disk.copyAfterLoss(copy, `${copy}-again`, prng);
      };
      await lookInto(copy, 'two', again, { ...SLICES, fileOps: disk });
      const look = async (left: DiskStore): Promise<void> => {
        const { seq } = left.record(FILE) ?? { seq: -1 };
        found.add(`at ${seq}`);
        assertSameBytes(await readAll(left), Buffer.from(pattern(WHOLE.length, seq - 1)), `SEED=${seed}`);
      };
      await lookInto(`${copy}-again`, 'three', look, SLICES);
    }, SLICES);
  }
  assert.ok(found.has('pending') && found.has('at 3'), [...found].join(', '));
});
