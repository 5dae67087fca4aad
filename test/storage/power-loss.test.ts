import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { type FileId, ROOT_CATALOG } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { DiskStore } from '../../server/storage/disk-store.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { begin, epoch, fileId, pattern, VIEW } from '../conformance/store.ts';
import { isLong } from '../long.ts';
import { LossyDisk } from './lossy-disk.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';
import { ALL_DIRECT, FOLDER, knowsDirectWrites, temporaryFolder } from './stores.ts';

const OBJECT_BYTES = 64;
/** Of every other seed all sizes are so many times as large, and whole pages are written past the page cache. */
const DIRECT_TIMES = 128;
const FILES = [fileId(1), fileId(2)];
const given = process.env.SEED;
const seeds =
  given === undefined ? Array.from({ length: isLong ? 30 : 5 }, (_, at) => at + 1) : [Number(given)];
const reached = new Set<string>();

interface Model {
  /** Contents after every operation so far; index 0 is the empty file. */
  readonly states: Buffer[];
  syncedSeq: number;
  promised: number;
  installed: number;
}

/**
 * Goal: after a loss of power every replica is in a state that it once was in, no earlier than what was synced;
 * promises are kept; no damaged byte is read. Overwriting makes nothing worse.
 * Method: two files are written at random on a disk that knows what was synced. Now and then the folder is copied as it
 * may be after a loss of power, and the copy is opened and compared. Each of three processes ends with a loss of power
 * or with kill -9, so that generations of earlier processes occur.
 */
describe('loss of power', () => {
  for (const seed of seeds) {
    test(`leaves a state that existed (SEED=${seed})`, async () => {
      const prng = new Prng(seed);
      const times = seed % 2 === 0 ? DIRECT_TIMES : 1;
      const parent = temporaryFolder();
      const models: Model[] = FILES.map(() => ({
        states: [Buffer.alloc(0)],
        syncedSeq: 0,
        promised: 1,
        installed: 1,
      }));
      try {
        let folderPath = path.join(parent, 'life-0');
        let boot = 0;
        let disk = new LossyDisk();
        for (let life = 1; life <= 3; life++) {
          const folder = DataFolder.open(folderPath, { ...FOLDER, bootId: `boot ${boot}` });
          const directWrites = times === 1 ? { mode: 'off' as const } : ALL_DIRECT;
          const store = await DiskStore.open(folder, {
            fileOps: disk,
            directWrites,
            rowsPerSlice: 1 + (seed % 3),
          });
          for (const [at, file] of FILES.entries()) {
            if (store.record(file) === null) await begin(store, file, OBJECT_BYTES * times);
            else if (prng.chance(0.5)) await rejoin(store, file, models[at] as Model);
          }
          for (let round = 0; round < 3; round++) {
            await work(store, models, prng, times);
            const copy = path.join(parent, `copy-${life}-${round}`);
            disk.copyAfterLoss(folderPath, copy, prng);
            await check(copy, 'another boot', models);
          }
          const next = path.join(parent, `life-${life}`);
          if (prng.chance(0.5)) {
            disk.copyAfterLoss(folderPath, next, prng);
            disk = new LossyDisk();
            await settle(next, `boot ${++boot}`, models);
          } else {
            reached.add('killed');
            disk = disk.copyAfterKill(folderPath, next);
          }
          if (store.directBytes > 0) reached.add('direct');
          await store.close();
          folder.close();
          folderPath = next;
        }
      } finally {
        fs.rmSync(parent, { recursive: true, force: true });
      }
    });
  }

  test('a synced version that was appended to in its slot, then replaced, is still there', async () => {
    const file = fileId(1);
    const e1 = epoch(1);
    for (let seed = 1; seed <= 4; seed++) {
      await withLossyStore(async ({ store, copyAfterLoss }) => {
        let seq = 0;
        const write = (offset: number, bytes: Uint8Array) =>
          store.apply(file, e1, ++seq, { kind: 'write', offset, bytes, modifiedNs: 1n }, new Uint8Array(0));
        await begin(store, file, OBJECT_BYTES);
        await write(0, pattern(10, 1));
        await store.flush(file);
        await write(10, pattern(10, 2));
        for (let turn = 3; turn < 6; turn++) await write(0, pattern(OBJECT_BYTES, turn));
        // Another file's promise syncs the index, but not these contents.
        await begin(store, fileId(2), OBJECT_BYTES);
        await lookInto(copyAfterLoss(new Prng(seed)), 'two', async (left) => {
          const at = left.record(file)?.seq;
          const wanted = at === 1 ? pattern(10, 1) : pattern(OBJECT_BYTES, 5);
          assert.deepEqual(
            Buffer.from(await left.read(file, 0, 100)),
            Buffer.from(wanted),
            `SEED=${seed}, at ${at}`,
          );
          assert.equal(left.trust(file), 'suspect');
          await left.promise(file, epoch(2));
          assert.equal(left.trust(file), 'suspect', 'a promise does not make it whole');
          await left.install(file, epoch(2), at ?? 0, new Uint8Array(0), null);
          assert.equal(left.trust(file), 'intact');
        });
      });
    }
  });

  test('a file created with contents is never torn, and if all of it is lost that is known', async () => {
    const whole = Buffer.from(pattern(3 * OBJECT_BYTES, 1));
    const seen = new Set<number | 'missed'>();
    for (let seed = 1; seed <= 12; seed++) {
      await withLossyStore(async ({ store, folder, copyAfterLoss }) => {
        await bear(store, folder, whole);
        if (seed % 3 !== 0) await store.flushIndex();
        await lookInto(copyAfterLoss(new Prng(seed)), 'two', async (left, after) => {
          for (const file of FILES) {
            const record = left.record(file);
            if (record === null) {
              assert.equal(after.trustOfNew(file), 'suspect', `SEED=${seed}`);
              left.create(file, VIEW, OBJECT_BYTES, 'suspect');
              assert.equal(left.trust(file), 'suspect');
              seen.add('missed');
              continue;
            }
            const { promised, installed, seq } = record;
            assert.deepEqual([promised, installed], [epoch(1), epoch(1)]);
            assert.equal(left.trust(file), 'suspect');
            const bytes = Buffer.from(await left.read(file, 0, 999));
            assert.deepEqual(bytes, seq === 0 ? Buffer.alloc(0) : whole, `SEED=${seed}, at ${seq}`);
            seen.add(seq);
          }
        });
      });
    }
    assert.deepEqual([...seen].sort(), [0, 2, 'missed']);
  });

  test('a write after a creation with contents is there once it is synced, also if the server was killed in between', async () => {
    const whole = Buffer.from(pattern(3 * OBJECT_BYTES, 1));
    const behind = Buffer.from(pattern(OBJECT_BYTES + 10, 2));
    const changed = Buffer.concat([behind, whole.subarray(behind.length)]);
    const [synced, unsynced] = FILES as [FileId, FileId];
    const seen = new Set<number | 'missed'>();
    for (let seed = 1; seed <= 6; seed++) {
      const parent = temporaryFolder();
      let disk = new LossyDisk();
      let folderPath = path.join(parent, 'data');
      let folder = DataFolder.open(folderPath, { ...FOLDER, bootId: 'one' });
      let store = await DiskStore.open(folder, { fileOps: disk });
      try {
        await bear(store, folder, whole);
        if (seed % 2 === 0) {
          const next = path.join(parent, 'next');
          disk = disk.copyAfterKill(folderPath, next);
          await store.close();
          folder.close();
          folderPath = next;
          folder = DataFolder.open(folderPath, { ...FOLDER, bootId: 'one' });
          store = await DiskStore.open(folder, { fileOps: disk });
        }
        const write: FileOperation = { kind: 'write', offset: 0, bytes: behind, modifiedNs: 2n };
        for (const file of FILES) await store.apply(file, epoch(1), 3, write, new Uint8Array(0));
        await store.flush(synced);
        const copy = path.join(parent, 'copy');
        disk.copyAfterLoss(folderPath, copy, new Prng(seed));
        const after = DataFolder.open(copy, { ...FOLDER, bootId: 'two' });
        const left = await DiskStore.open(after);
        assert.equal(left.record(synced)?.seq, 3, `SEED=${seed}`);
        assert.deepEqual(Buffer.from(await left.read(synced, 0, 999)), changed, `SEED=${seed}`);
        const seq = left.record(unsynced)?.seq ?? 'missed';
        if (seq === 'missed') {
          assert.equal(after.trustOfNew(unsynced), 'suspect', `SEED=${seed}`);
        } else {
          assert.equal(left.trust(unsynced), 'suspect', `SEED=${seed}`);
          const bytes = Buffer.from(await left.read(unsynced, 0, 999));
          const wanted = seq === 0 ? Buffer.alloc(0) : seq === 2 ? whole : changed;
          assert.deepEqual(bytes, wanted, `SEED=${seed}, at ${seq}`);
        }
        seen.add(seq);
        await left.close();
        after.close();
      } finally {
        await store.close();
        folder.close();
        fs.rmSync(parent, { recursive: true, force: true });
      }
    }
    assert.ok(seen.size > 1, 'Not all of it survives each time');
  });

  test('data that a punch removed exists again if the state before it does', async () => {
    const file = fileId(1);
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const before = pattern(3 * OBJECT_BYTES, 1);
    const after = Buffer.from(before).fill(0, OBJECT_BYTES, 2 * OBJECT_BYTES + 10);
    after.set(pattern(OBJECT_BYTES, 2));
    await withLossyStore(async ({ store, disk, copyAfterLoss }) => {
      const apply = (seq: number, operation: FileOperation) =>
        store.apply(file, epoch(1), seq, operation, new Uint8Array(0));
      try {
        await begin(store, file, OBJECT_BYTES);
        await apply(1, { kind: 'write', offset: 0, bytes: before, modifiedNs: 1n });
        await store.flush(file);
        disk.contentsHeld = held;
        await apply(2, { kind: 'write', offset: 0, bytes: pattern(OBJECT_BYTES, 2), modifiedNs: 2n });
        const [from, to] = [OBJECT_BYTES, 2 * OBJECT_BYTES + 10];
        await apply(3, { kind: 'punch', from, to, grows: false, modifiedNs: 3n });
        // Another file's promise syncs the index, but not these contents.
        await begin(store, fileId(2), OBJECT_BYTES);
        const positions = new Set<number>();
        for (let seed = 1; seed <= 8; seed++) {
          await lookInto(copyAfterLoss(new Prng(seed)), 'two', async (left) => {
            const at = left.record(file)?.seq ?? 0;
            positions.add(at);
            const contents = Buffer.from(await left.read(file, 0, 1000));
            assert.deepEqual(contents, Buffer.from(at === 1 ? before : after), `SEED=${seed}, at ${at}`);
          });
        }
        assert.ok(positions.has(1), 'The state before was restored');
      } finally {
        release();
      }
    });
  });

  test('a process after kill -9 does not overwrite what the one before it had synced', async () => {
    const file = fileId(1);
    const write = (store: DiskStore, seq: number) =>
      store.apply(
        file,
        epoch(1),
        seq,
        { kind: 'write', offset: 0, bytes: pattern(OBJECT_BYTES, seq), modifiedNs: 1n },
        new Uint8Array(0),
      );
    const parent = temporaryFolder();
    const first = path.join(parent, 'first');
    const second = path.join(parent, 'second');
    try {
      const disk = new LossyDisk();
      const folder = DataFolder.open(first, { ...FOLDER, bootId: 'one' });
      const store = await DiskStore.open(folder, { fileOps: disk });
      await begin(store, file, OBJECT_BYTES);
      await write(store, 1);
      await store.flush(file);
      await write(store, 2);
      const nextDisk = disk.copyAfterKill(first, second);
      await store.close();
      folder.close();

      const nextFolder = DataFolder.open(second, { ...FOLDER, bootId: 'one' });
      const next = await DiskStore.open(nextFolder, { fileOps: nextDisk });
      for (let seq = 3; seq < 7; seq++) await write(next, seq);
      await begin(next, fileId(2), OBJECT_BYTES);
      for (let seed = 1; seed <= 5; seed++) {
        const copy = path.join(parent, `copy-${seed}`);
        nextDisk.copyAfterLoss(second, copy, new Prng(seed));
        await lookInto(copy, 'two', async (left) => {
          const at = left.record(file)?.seq ?? 0;
          const contents = Buffer.from(await left.read(file, 0, 100));
          assert.deepEqual(contents, Buffer.from(pattern(OBJECT_BYTES, at)), `SEED=${seed}, at ${at}`);
        });
      }
      await next.close();
      nextFolder.close();
    } finally {
      fs.rmSync(parent, { recursive: true, force: true });
    }
  });

  test('the seeds produced the critical cases', { skip: given !== undefined }, () => {
    const marks = ['rolled-back', 'tail-kept', 'checked', 'killed'];
    for (const mark of knowsDirectWrites() ? [...marks, 'direct'] : marks) assert.ok(reached.has(mark), mark);
  });
});

/** A new base, as after a replica reset: ends what was uncertain. */
/** Creates all files with these contents, and syncs nothing. */
async function bear(store: DiskStore, folder: DataFolder, contents: Uint8Array): Promise<void> {
  const operations = [
    { kind: 'write', offset: 0, bytes: contents, modifiedNs: 1n },
    { kind: 'settling' },
  ] as const;
  folder.setFirstFileId(ROOT_CATALOG, fileId(1));
  for (const file of FILES) folder.recordReplica(file);
  const births = FILES.map((file) => ({ file, operations }));
  assert.deepEqual(await store.createWithContents(births, epoch(1), VIEW, OBJECT_BYTES), [null, null]);
}

async function rejoin(store: DiskStore, file: ReturnType<typeof fileId>, model: Model): Promise<void> {
  const record = store.record(file);
  assert.ok(record);
  model.promised = Math.max(model.promised, record.promised.counter) + 1;
  model.installed = model.promised;
  await store.promise(file, epoch(model.promised));
  await store.install(file, epoch(model.installed), record.seq, record.sessions, null);
  model.syncedSeq = record.seq;
}

/** A burst of operations, some flushed, some not waited for until its end. */
async function work(store: DiskStore, models: readonly Model[], prng: Prng, times: number): Promise<void> {
  const works: Promise<void>[] = [];
  for (let turn = prng.integer(1, 25); turn > 0; turn--) {
    const at = prng.integer(0, 1);
    const file = FILES[at] as (typeof FILES)[number];
    const model = models[at] as Model;
    const before = model.states.at(-1) as Buffer;
    const seq = model.states.length;
    const now = epoch(model.installed);
    switch (
      prng.pick([
        'write',
        'write',
        'write',
        'append',
        'append',
        'truncate',
        'punch',
        'punch',
        'flush',
        'promise',
        'wait',
      ])
    ) {
      case 'write':
      case 'append': {
        const offset = prng.chance(0.5) ? before.length : prng.integer(0, 600) * times;
        const bytes = pattern(prng.integer(1, 200) * times, seq * 7 + at);
        const after = Buffer.alloc(Math.max(before.length, offset + bytes.length));
        before.copy(after);
        after.set(bytes, offset);
        model.states.push(after);
        works.push(
          store.apply(
            file,
            now,
            seq,
            { kind: 'write', offset, bytes, modifiedNs: 1n },
            Uint8Array.of(seq & 255),
          ),
        );
        break;
      }
      case 'truncate': {
        const after = Buffer.alloc(prng.integer(0, 700) * times);
        before.copy(after);
        model.states.push(after);
        works.push(
          store.apply(
            file,
            now,
            seq,
            { kind: 'truncate', sizeBytes: after.length, modifiedNs: 1n },
            Uint8Array.of(seq & 255),
          ),
        );
        break;
      }
      case 'punch': {
        const from = prng.integer(0, 600) * times;
        const to = from + prng.integer(1, 300) * times;
        const after = Buffer.from(before);
        after.fill(0, Math.min(from, after.length), Math.min(to, after.length));
        model.states.push(after);
        const operation = { kind: 'punch' as const, from, to, grows: false, modifiedNs: 1n };
        works.push(store.apply(file, now, seq, operation, Uint8Array.of(seq & 255)));
        break;
      }
      case 'flush': {
        const flushed = store.flush(file).then(() => {
          model.syncedSeq = Math.max(model.syncedSeq, seq - 1);
        });
        works.push(flushed);
        break;
      }
      case 'promise': {
        // Syncs the index while contents are not synced.
        const counter = Math.max(model.promised, ...models.map(({ promised }) => promised)) + 1;
        works.push(
          store.promise(file, epoch(counter)).then(() => {
            model.promised = Math.max(model.promised, counter);
          }),
        );
        break;
      }
      case 'wait':
        await Promise.all(works);
    }
  }
  await Promise.all(works);
}

async function check(copy: string, boot: string, models: readonly Model[]): Promise<void> {
  const folder = DataFolder.open(copy, { ...FOLDER, bootId: boot });
  assert.equal(folder.lostPower, true);
  const store = await DiskStore.open(folder);
  try {
    if (store.recovery.rolledBack.length > 0) reached.add('rolled-back');
    if (store.recovery.filesChecked > 0) reached.add('checked');
    for (const [at, file] of FILES.entries()) await checkFile(store, file, models[at] as Model);
  } finally {
    await store.close();
    folder.close();
  }
}

async function checkFile(store: DiskStore, file: ReturnType<typeof fileId>, model: Model): Promise<void> {
  const record = store.record(file);
  assert.ok(record);
  assert.ok(record.promised.counter >= model.promised, 'A promise is kept');
  assert.ok(record.seq >= model.syncedSeq, `At ${record.seq}, while ${model.syncedSeq} was synced`);
  assert.ok(record.seq < model.states.length);
  if (record.seq > model.syncedSeq) reached.add('tail-kept');
  const contents = await store.read(file, 0, 1_000_000);
  assert.deepEqual(Buffer.from(contents), model.states[record.seq], `File ${file} at ${record.seq}`);
  assert.equal(store.trust(file), 'suspect', 'Acknowledged operations may be lost');
  for (const { index, versionEpoch, versionSeq, length } of describeFile(store, file).objects) {
    const bytes = await store.readObject(file, index, versionEpoch, versionSeq);
    assert.equal(bytes?.length, length);
  }
}

/** Opens the folder after the loss of power, so that the models know where the next process begins. */
async function settle(folderPath: string, boot: string, models: readonly Model[]): Promise<void> {
  const folder = DataFolder.open(folderPath, { ...FOLDER, bootId: boot });
  const store = await DiskStore.open(folder);
  for (const [at, file] of FILES.entries()) {
    const model = models[at] as Model;
    await checkFile(store, file, model);
    model.states.length = (store.record(file)?.seq ?? 0) + 1;
    model.syncedSeq = model.states.length - 1;
  }
  await store.close();
  folder.close();
}
