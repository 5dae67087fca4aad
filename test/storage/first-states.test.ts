/**
 * Goal: a replica that is created with a state is there completely or not at all, whenever the process ends, the
 * machine loses its power, or the disk is full; what is not there leaves nothing on the disk.
 * Method: a disk that knows what was synced, copied after each step; many small objects, so that the rows of one
 * replica take several transactions.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { View } from '../../replica/view.ts';
import { crc32Of } from '../../server/storage/checksum.ts';
import type { DiskStore } from '../../server/storage/disk-store.ts';
import { IndexDatabase } from '../../server/storage/index-database.ts';
import type { FetchedObject, FirstState } from '../../server/storage/store.ts';
import { CONTAINERS_FOLDER } from '../../wire/locations.ts';
import { fileId, pattern } from '../conformance/store.ts';
import { patientWorld } from '../patient-world.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';

const FILE = fileId(5);
const OBJECT_BYTES = 16;
const OBJECTS = 23;
const ROWS_PER_SLICE = 4;
const VIEW: View = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };
/** The last object is not full, and a hole is before it. */
const SIZE_BYTES = (OBJECTS + 2) * OBJECT_BYTES;

const STATE: FirstState = {
  view: VIEW,
  epoch: { counter: 1, server: 'a' as ServerId, incarnation: 0 as Incarnation },
  attributes: {
    ...{ sizeBytes: SIZE_BYTES, modifiedNs: 9n, versionEpoch: 1, versionSeq: 1 },
    ...{ objectBytes: OBJECT_BYTES, dead: false, seal: 'open' },
  },
};

function objectOf(index: number): FetchedObject {
  const bytes = pattern(index === OBJECTS ? 5 : OBJECT_BYTES, index);
  const entry = { index, versionEpoch: 1, versionSeq: 1, length: bytes.length, crc32: crc32Of([bytes]) };
  return { entry, bytes };
}

/** @param step called before each object, and at the end */
async function* objects(step: (index: number) => void | Promise<void>): AsyncGenerator<FetchedObject> {
  for (let index = 0; index <= OBJECTS; index++) {
    await step(index);
    if (index !== OBJECTS - 1) yield objectOf(index);
  }
  await step(OBJECTS + 1);
}

function expected(): Buffer {
  const bytes = Buffer.alloc(SIZE_BYTES);
  for (let index = 0; index <= OBJECTS; index++)
    if (index !== OBJECTS - 1) bytes.set(objectOf(index).bytes, index * OBJECT_BYTES);
  return bytes;
}

function containersOf(folderPath: string): string[] {
  const folder = path.join(folderPath, CONTAINERS_FOLDER);
  const names = fs.readdirSync(folder, { recursive: true, withFileTypes: true });
  return names.filter((entry) => entry.isFile()).map(({ name }) => name);
}

async function assertComplete(store: DiskStore): Promise<void> {
  assert.deepEqual(store.list(fileId(0), 9), [FILE]);
  const { promised, installed, seq } = store.record(FILE) ?? assert.fail('It is there');
  assert.deepEqual([promised, installed, seq], [STATE.epoch, STATE.epoch, 1]);
  assert.deepEqual(Buffer.from(await store.read(FILE, 0, 2 * SIZE_BYTES)), expected());
  assert.equal(store.entries(FILE, 0, Number.MAX_SAFE_INTEGER, 99).length, OBJECTS);
}

/** It is there completely, or not at all; then it can be created. */
async function assertWhole(folderPath: string, boot: 'one' | 'two'): Promise<'here' | 'nothing'> {
  let found: 'here' | 'nothing' = 'nothing';
  await lookInto(
    folderPath,
    boot,
    async (store) => {
      if (store.record(FILE) !== null) {
        found = 'here';
        await assertComplete(store);
        return;
      }
      assert.deepEqual(store.list(fileId(0), 9), []);
      assert.deepEqual(containersOf(folderPath), [], 'No container is left');
      await store.createWithState(
        FILE,
        STATE,
        objects(() => undefined),
      );
      await assertComplete(store);
    },
    { rowsPerSlice: ROWS_PER_SLICE },
  );
  return found;
}

test('after an end of the process or a loss of power in between, all of it is there, or nothing', async () => {
  const random = new Prng(11);
  const left: [path: string, boot: 'one' | 'two'][] = [];
  await withLossyStore(
    async ({ disk, store, copyAfterKill, copyAfterLoss }) => {
      const copy = (): void => void left.push([copyAfterKill(), 'one'], [copyAfterLoss(random), 'two']);
      const real = disk.datasync.bind(disk);
      Object.assign(disk, {
        datasync: async (fd: number) => {
          await real(fd);
          copy();
        },
      });
      await store.createWithState(
        FILE,
        STATE,
        objects((index) => void (index === 6 && copy())),
      );
      const atEnd = left.length;
      copy();
      await assertComplete(store);
      for (const [at, [folderPath, boot]] of left.entries()) {
        const found = await assertWhole(folderPath, boot);
        if (at >= atEnd) assert.equal(found, 'here', 'It is synced');
      }
      assert.ok(left.length > 8);
    },
    { rowsPerSlice: ROWS_PER_SLICE },
  );
});

test('what fails leaves nothing, and can be repeated at once', async () => {
  await withLossyStore(
    async ({ store, folder }) => {
      for (const end of [0, 9, OBJECTS + 1]) {
        const fails = objects((index) => {
          if (index === end) throw new ServiceError('no-majority', 'The snapshot has no primary');
        });
        await assert.rejects(store.createWithState(FILE, STATE, fails), { code: 'no-majority' });
        assert.equal(store.record(FILE), null);
        assert.deepEqual(store.list(fileId(0), 9), []);
        assert.deepEqual(containersOf(folder.path), []);
      }
      await store.createWithState(
        FILE,
        STATE,
        objects(() => undefined),
      );
      await assertComplete(store);
    },
    { rowsPerSlice: ROWS_PER_SLICE },
  );
});

test('what a full disk refuses to delete is deleted once a replica is to be created', async (t) => {
  await withLossyStore(async ({ store, folder }) => {
    const fails = objects((index) => {
      if (index !== 9) return;
      t.mock.method(IndexDatabase.prototype, 'commit', () =>
        Promise.reject(new ServiceError('no-space', 'The disk is full')),
      );
      throw new ServiceError('no-space', 'The disk is full');
    });
    await assert.rejects(store.createWithState(FILE, STATE, fails), { code: 'no-space' });
    assert.equal(store.record(FILE), null);
    assert.deepEqual(store.list(fileId(0), 9), []);
    assert.throws(() => store.create(FILE, VIEW, OBJECT_BYTES), { code: 'busy' });
    t.mock.restoreAll();
    for (let isBusy = true, tries = 1; isBusy; await patientWorld.sleep(5)) {
      assert.ok(tries++ < 2_000, 'It is deleted');
      try {
        store.create(FILE, VIEW, OBJECT_BYTES);
        isBusy = false;
      } catch (error) {
        assert.ok(error instanceof ServiceError && error.code === 'busy', String(error));
      }
    }
    await store.flush(FILE);
    assert.deepEqual(containersOf(folder.path), []);
    assert.equal(store.record(FILE)?.seq, 0);
  });
});
