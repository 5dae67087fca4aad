import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import { describeFile } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { flipByte } from './damage.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';
import { DiskFixture } from './stores.ts';

const OBJECT_BYTES = 256;
const file = fileId(1);
const whole = pattern(1000, 1);
const e1 = epoch(1);

const isIntegrity = (error: unknown) => error instanceof ServiceError && error.code === 'integrity';
const pieceOf = (bytes: Uint8Array, entry: ObjectEntry) =>
  bytes.slice(entry.index * OBJECT_BYTES, entry.index * OBJECT_BYTES + entry.length);
const operation = (offset: number, bytes: Uint8Array) =>
  ({ kind: 'write', offset, bytes, modifiedNs: 1n }) as const;

/**
 * Goal: damaged bytes on this disk are read from another replica that has the same version, and repaired here; if no
 * replica has them, nothing is read at all.
 */
describe('a damaged object', () => {
  let fixture: DiskFixture;
  let asked: ObjectEntry[];
  const container = () => path.join(fixture.path, 'objects', '01', '1.dat');
  const read = async () => Buffer.from(await fixture.store.read(file, 0, 2000));
  /** Another replica, which has these contents. */
  const another = (contents: Uint8Array) => {
    fixture.mender = async (_file, entry) => {
      asked.push(entry);
      return pieceOf(contents, entry);
    };
  };

  beforeEach(async () => {
    asked = [];
    fixture = await DiskFixture.make();
    await begin(fixture.store, file, OBJECT_BYTES);
    await fixture.store.apply(file, e1, 1, operation(0, whole), NO_SESSIONS);
    await fixture.store.flush(file);
  });
  afterEach(() => fixture.dispose());

  test('is read from another replica, and is intact afterwards', async () => {
    another(whole);
    flipByte(container(), 2 * OBJECT_BYTES + 7);
    assert.deepEqual(await read(), Buffer.from(whole));
    assert.deepEqual(
      asked.map(({ index }) => index),
      [2],
    );
    await fixture.reopen();
    assert.deepEqual(await read(), Buffer.from(whole), 'from this disk alone');
  });

  test('is repaired if the container was truncated, or is missing', async () => {
    another(whole);
    fs.truncateSync(container(), 300);
    assert.deepEqual(await read(), Buffer.from(whole));
    await fixture.close();
    fs.rmSync(container());
    await fixture.open();
    another(whole);
    assert.deepEqual(await read(), Buffer.from(whole));
    const entry = describeFile(fixture.store, file).objects[3] as ObjectEntry;
    assert.deepEqual(
      Buffer.from((await fixture.store.readObject(file, 3, 1, 1)) ?? []),
      Buffer.from(pieceOf(whole, entry)),
    );
    await fixture.reopen();
    assert.deepEqual(await read(), Buffer.from(whole), 'from this disk alone');
  });

  test('is never replaced by other bytes', async () => {
    flipByte(container(), 3);
    await assert.rejects(read(), isIntegrity, 'no replica has it');
    another(pattern(1000, 2));
    await assert.rejects(
      read(),
      isIntegrity,
      'the bytes that another replica sends are not those that were written',
    );
    const entry = describeFile(fixture.store, file).objects[0] as ObjectEntry;
    const bytes = pieceOf(pattern(1000, 2), entry);
    await assert.rejects(fixture.store.repair(file, { entry, bytes }), isIntegrity);
  });

  test('can be written in part: the rest is fetched from another replica', async () => {
    another(whole);
    flipByte(container(), OBJECT_BYTES + 200);
    await fixture.store.apply(file, e1, 2, operation(OBJECT_BYTES + 4, pattern(9, 7)), NO_SESSIONS);
    flipByte(container(), 3 * OBJECT_BYTES + 1);
    await fixture.store.apply(file, e1, 3, { kind: 'truncate', sizeBytes: 900, modifiedNs: 1n }, NO_SESSIONS);
    const wanted = Buffer.from(whole.subarray(0, 900));
    wanted.set(pattern(9, 7), OBJECT_BYTES + 4);
    await fixture.reopen();
    assert.deepEqual(await read(), wanted);
  });

  test('is not repaired if it has changed meanwhile', async () => {
    const entry = describeFile(fixture.store, file).objects[0] as ObjectEntry;
    await fixture.store.apply(file, e1, 2, operation(0, pattern(1000, 2)), NO_SESSIONS);
    await fixture.store.repair(file, { entry, bytes: pieceOf(whole, entry) });
    assert.deepEqual(await read(), Buffer.from(pattern(1000, 2)));
    assert.equal(await fixture.store.inspect(file, entry), 'absent');
  });

  test('is inspected without asking another replica', async () => {
    another(whole);
    const [first, second] = describeFile(fixture.store, file).objects as [ObjectEntry, ObjectEntry];
    flipByte(container(), 5);
    assert.equal(await fixture.store.inspect(file, first), 'damaged');
    assert.deepEqual(await fixture.store.inspect(file, second), Buffer.from(pieceOf(whole, second)));
    assert.equal(await fixture.store.inspect(fileId(9), first), 'absent');
    assert.deepEqual(asked, []);
  });
});

/**
 * Goal: a repair survives loss of power once it is done, and endangers nothing before.
 * Method: a lossy disk loses what was not synced; the object was synced, or appended to in place since, and replaced or
 * not after the repair.
 */
test('a repair survives loss of power', async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const prng = new Prng(seed);
    await withLossyStore(async ({ store, copyAfterLoss }) => {
      await begin(store, file, OBJECT_BYTES);
      const states = [Buffer.alloc(0), Buffer.from(whole.subarray(0, 700))];
      await store.apply(file, e1, 1, operation(0, whole.subarray(0, 700)), NO_SESSIONS);
      await store.flush(file);
      if (prng.chance(0.5)) {
        await store.apply(file, e1, 2, operation(700, whole.subarray(700)), NO_SESSIONS);
        states.push(Buffer.from(whole));
      }
      // The last object: synced whole, or in part.
      const entry = describeFile(store, file).objects.at(-1) as ObjectEntry;
      await store.repair(file, { entry, bytes: pieceOf(whole, entry) });
      const seq = states.length;
      if (prng.chance(0.5)) {
        await store.apply(file, e1, seq, operation(0, pattern(1000, 9)), NO_SESSIONS);
        states.push(Buffer.from(pattern(1000, 9)));
      }
      await lookInto(copyAfterLoss(prng), 'two', async (left) => {
        const at = left.record(file)?.seq ?? 0;
        assert.ok(at >= 1, `SEED=${seed}, at ${at}`);
        const contents = Buffer.from(await left.read(file, 0, 2000));
        assert.deepEqual(contents, states[at], `SEED=${seed}, at ${at}`);
      });
    });
  }
});
