/**
 * Goal: another replica's state is installed all or not at all, and durably once that was reported, also if power is
 * lost at that very moment.
 * Method: a disk that knows what was synced. The folder is copied as it may be after a loss of power, once while the
 * installation is under way and once after its report, and the copies are opened.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import type { DiskStore } from '../../server/storage/disk-store.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { describeFile, differenceTo } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { whenRemoved } from './large-operations.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';

const OBJECT_BYTES = 64;
const FILE = fileId(1);
const OTHER = fileId(2);
const OLD = Buffer.from(pattern(200, 1));
const NEW = Buffer.from(pattern(300, 2));
const SEEDS = 4;
const MANY = 100;
const SLICES = { rowsPerSlice: 4 };

test('another state is installed as a whole or not at all, whenever power is lost', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const prng = new Prng(seed);
    await withLossyStore(async ({ store, copyAfterLoss }) => {
      await write(store, FILE, 1, 3, OLD);
      await store.flush(FILE);
      await write(store, OTHER, 2, 1, NEW);
      const base = describeFile(store, OTHER);
      for (const entry of base.objects) {
        const bytes = await store.readObject(OTHER, entry.index, entry.versionEpoch, entry.versionSeq);
        assert.ok(bytes);
        await store.stage(FILE, { entry, bytes });
      }
      await store.promise(FILE, epoch(3));
      const installing = store.install(FILE, epoch(3), 1, NO_SESSIONS, differenceTo(store, FILE, base));
      // Somewhere in between: after as many ticks of the event loop as the seed says.
      for (let turn = 0; turn < seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      await check(copyAfterLoss(prng), `SEED=${seed}, during`, [
        { counter: 1, seq: 3, contents: OLD },
        { counter: 3, seq: 1, contents: NEW },
      ]);
      await installing;
      await check(copyAfterLoss(prng), `SEED=${seed}, after`, [{ counter: 3, seq: 1, contents: NEW }]);
    });
  }
});

/**
 * Goal: a state with many new objects, of which slices put the rows, is installed as a whole or not at all; what a
 * restart interrupts leaves nothing behind.
 */
test('many new objects are installed in slices, and none is seen before all are', async () => {
  const seen = new Set<string>();
  const many = Buffer.from(pattern(MANY * OBJECT_BYTES, 3));
  for (let seed = 1; seed <= 8; seed++) {
    await withLossyStore(async ({ store, copyAfterKill, copyAfterLoss }) => {
      await begin(store, FILE, OBJECT_BYTES);
      await store.flush(FILE);
      await write(store, OTHER, 2, 1, many);
      const base = await stage(store, many);
      await store.promise(FILE, epoch(3));
      const installing = store.install(FILE, epoch(3), 1, NO_SESSIONS, differenceTo(store, FILE, base));
      for (let turn = 0; turn < (seed - 1) * 20; turn++)
        await new Promise((resolve) => setImmediate(resolve));
      if (seed === 8) await installing;
      if (store.removalsPending > 0) {
        seen.add('in slices');
        assert.deepEqual(describeFile(store, FILE).objects, []);
        assert.equal((await store.read(FILE, 0, many.length)).length, 0);
      }
      for (const [copy, boot] of [
        [copyAfterKill(), 'one'],
        [copyAfterLoss(new Prng(seed)), 'two'],
      ] as const) {
        const look = async (left: DiskStore): Promise<void> => {
          const isInstalled = left.record(FILE)?.seq === 1;
          seen.add(isInstalled ? 'all' : 'nothing');
          await whenRemoved(left);
          const found = Buffer.from(await left.read(FILE, 0, many.length));
          assert.deepEqual(found, isInstalled ? many : Buffer.alloc(0), `SEED=${seed}`);
          if (isInstalled) return;
          await left.install(FILE, epoch(3), 0, NO_SESSIONS, null);
          const size = { kind: 'truncate', sizeBytes: many.length, modifiedNs: 1n } as const;
          await left.apply(FILE, epoch(3), 1, size, NO_SESSIONS);
          assert.deepEqual(describeFile(left, FILE).objects, [], `SEED=${seed}`);
        };
        await lookInto(copy, boot, look, SLICES);
      }
      await installing;
      assert.deepEqual(Buffer.from(await store.read(FILE, 0, many.length)), many);
      assert.equal(store.removalsPending, 0);
      await store.flush(FILE);
      const digests = await store.digests(FILE);
      assert.deepEqual(digests.total, (await store.digests(OTHER)).total);
    }, SLICES);
  }
  assert.deepEqual([...seen].sort(), ['all', 'in slices', 'nothing']);
});

test('a state before an interrupted installation is restored with all its objects', async () => {
  const many = Buffer.from(pattern(MANY * OBJECT_BYTES, 3));
  const outcomes = new Set<number | undefined>();
  for (let seed = 1; seed <= 4; seed++) {
    await withLossyStore(async ({ disk, store, copyAfterLoss }) => {
      await write(store, FILE, 1, 1, many);
      await store.flush(FILE);
      // From now on the disk syncs the index, and not the contents.
      const gate = Promise.withResolvers<void>();
      disk.contentsHeld = gate.promise;
      const change = (seq: number, operation: FileOperation): Promise<void> =>
        store.apply(FILE, epoch(1), seq, operation, NO_SESSIONS);
      await change(2, { kind: 'write', offset: 0, bytes: OLD.subarray(0, OBJECT_BYTES), modifiedNs: 1n });
      await change(3, { kind: 'truncate', sizeBytes: 2 * OBJECT_BYTES, modifiedNs: 1n });
      await whenRemoved(store);
      await write(store, OTHER, 2, 1, many);
      const base = await stage(store, many);
      await store.promise(FILE, epoch(3));
      const installing = store.install(FILE, epoch(3), 1, NO_SESSIONS, differenceTo(store, FILE, base));
      while (store.removalsPending === 0) await new Promise((resolve) => setImmediate(resolve));
      await begin(store, fileId(3), OBJECT_BYTES);
      const copy = copyAfterLoss(new Prng(seed));
      gate.resolve();
      await installing;
      const look = async (left: DiskStore): Promise<void> => {
        const seq = left.record(FILE)?.seq;
        outcomes.add(seq);
        if (seq !== 1) return;
        assert.deepEqual(Buffer.from(await left.read(FILE, 0, many.length)), many, `SEED=${seed}`);
        await whenRemoved(left);
        assert.deepEqual(Buffer.from(await left.read(FILE, 0, many.length)), many, `SEED=${seed}`);
      };
      await lookInto(copy, 'two', look, SLICES);
    }, SLICES);
  }
  assert.ok(outcomes.has(1), 'An older state was restored');
});

/** Stages all objects of `OTHER` for `FILE`. @returns what is to be installed */
async function stage(store: DiskStore, some: Uint8Array): Promise<ReturnType<typeof describeFile>> {
  const base = describeFile(store, OTHER);
  const stagings = base.objects.map(async (entry) => {
    const bytes = await store.readObject(OTHER, entry.index, entry.versionEpoch, entry.versionSeq);
    await store.stage(FILE, { entry, bytes: bytes ?? some });
  });
  await Promise.all(stagings);
  return base;
}

/** Operations up to `seqLast`, of which the last writes `bytes`. */
async function write(
  store: DiskStore,
  file: ReturnType<typeof fileId>,
  counter: number,
  seqLast: number,
  bytes: Uint8Array,
): Promise<void> {
  await begin(store, file, OBJECT_BYTES, counter);
  for (let seq = 1; seq <= seqLast; seq++) {
    const operation = { kind: 'write', offset: 0, bytes, modifiedNs: 1n } as const;
    await store.apply(file, epoch(counter), seq, operation, NO_SESSIONS);
  }
}

interface Whole {
  readonly counter: number;
  readonly seq: number;
  readonly contents: Buffer;
}

/** The state found is one of these, as a whole. */
async function check(folderPath: string, when: string, states: readonly Whole[]): Promise<void> {
  await lookInto(folderPath, 'two', async (store) => {
    const record = store.record(FILE);
    assert.ok(record);
    const found = states.find(({ counter, seq }) => {
      return counter === record.installed.counter && seq === record.seq;
    });
    assert.ok(found !== undefined, `${when}: ${record.installed.counter}/${record.seq} is found`);
    const contents = Buffer.from(await store.read(FILE, 0, 1_000));
    assert.deepEqual(contents, found.contents, when);
  });
}
