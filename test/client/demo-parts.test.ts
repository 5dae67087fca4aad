import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeGapBound } from '../../client/demo/bound.ts';
import { GapMeter } from '../../client/demo/gap-meter.ts';
import { Ledger } from '../../client/demo/ledger.ts';
import { decodeRecord, decodeRecords, encodeRecord, RECORD_BYTES } from '../../client/demo/records.ts';

test('a record is recognized, and a changed one is not', () => {
  const record = encodeRecord(1, 42);
  assert.equal(record.length, RECORD_BYTES);
  assert.equal(decodeRecord(1, record), 42);
  assert.equal(decodeRecord(2, record), null, 'It is of another writer');
  for (const at of [0, 5, 8, 100, RECORD_BYTES - 1]) {
    const changed = Buffer.from(record);
    changed[at] = (changed[at] as number) ^ 1;
    assert.equal(decodeRecord(1, changed), null, `Byte ${at}`);
  }
  const file = Buffer.concat([record, Buffer.alloc(RECORD_BYTES), encodeRecord(1, 43), Buffer.alloc(3)]);
  assert.deepEqual(decodeRecords(1, file), [42, null, 43, null]);
});

function ledger(acknowledged: number, doubtful: number): Ledger {
  const made = new Ledger();
  for (let i = 0; i < acknowledged; i++) made.acknowledge(made.begin());
  for (let i = 0; i < doubtful; i++) made.markUnknown(made.begin());
  return made;
}

test('lost, duplicated and damaged records are counted', () => {
  const three = ledger(3, 0);
  assert.deepEqual(three.compare([1, 2, 3], false), { lost: 0, duplicated: 0, corrupt: 0 });
  assert.deepEqual(three.compare([1, 3], false), { lost: 1, duplicated: 0, corrupt: 0 });
  assert.deepEqual(three.compare([1, 2, 2, 2, 3], false), { lost: 0, duplicated: 2, corrupt: 0 });
  assert.deepEqual(three.compare([1, null, 3], false), { lost: 1, duplicated: 0, corrupt: 1 });
  assert.deepEqual(
    three.compare([1, 2, 3, 4], false),
    { lost: 0, duplicated: 0, corrupt: 1 },
    'No writer wrote 4',
  );
});

test('a write with unknown outcome may be there once or not at all', () => {
  const doubtful = ledger(1, 1);
  assert.deepEqual(doubtful.compare([1], false), { lost: 0, duplicated: 0, corrupt: 0 });
  assert.deepEqual(doubtful.compare([1, 2], false), { lost: 0, duplicated: 0, corrupt: 0 });
  assert.deepEqual(doubtful.compare([1, 2, 2], false), { lost: 0, duplicated: 1, corrupt: 0 });
  assert.deepEqual(doubtful.compare([1, null], true), { lost: 0, duplicated: 0, corrupt: 0 });
  assert.deepEqual(doubtful.compare([1, null, null], true), { lost: 0, duplicated: 0, corrupt: 1 });
});

test('the largest gap includes the one that is still open', async () => {
  const meter = new GapMeter();
  meter.mark();
  meter.reset();
  const marks = meter.afterMarks(2);
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.ok(meter.largestMs() >= 55, 'No mark since');
  meter.mark();
  meter.mark();
  await marks;
  assert.ok(meter.largestMs() >= 55, 'It stays the largest one');
  meter.reset();
  assert.ok(meter.largestMs() < 55);
});

test('the bound is the sum of its parts', () => {
  const { totalMs, ...parts } = writeGapBound(2_000, 100);
  assert.equal(
    totalMs,
    Object.values(parts).reduce((sum, part) => sum + part),
  );
  assert.ok(totalMs > 2_100 && totalMs < 4_500);
});
