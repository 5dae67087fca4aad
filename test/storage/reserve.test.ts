import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DiskReserve } from '../../server/storage/reserve.ts';

const MIB = 2 ** 20;
const TOTAL_BYTES = 1_024 * MIB;

function reserveOf(freeBytes: number) {
  const disk = { freeBytes, nowMs: 0 };
  const reserve = new DiskReserve(
    () => ({ totalBytes: TOTAL_BYTES, freeBytes: disk.freeBytes }),
    () => disk.nowMs,
  );
  const said: boolean[] = [];
  reserve.changed = (isLow) => said.push(isLow);
  return { disk, reserve, said };
}

test('contents may use the first half of the reserve, which is reported, and never the second', () => {
  const { disk, reserve, said } = reserveOf(65 * MIB);
  reserve.assertFor(4_096);
  assert.deepEqual(said, []);
  disk.freeBytes = 63 * MIB;
  disk.nowMs += 1_000;
  reserve.assertFor(4_096);
  reserve.assertFor(4_096);
  assert.deepEqual([reserve.isLow, said], [true, [true]], 'Reported once');
  disk.freeBytes = 31 * MIB;
  assert.throws(() => reserve.assertFor(1), { code: 'no-space' });
  disk.freeBytes = 200 * MIB;
  reserve.assertFor(1);
  assert.deepEqual([reserve.isLow, said], [false, [true, false]]);
});

test('a large write measures the disk exactly, also if it was measured a moment ago', () => {
  const { disk, reserve } = reserveOf(128 * MIB);
  reserve.assertFor(1);
  disk.freeBytes = 0;
  assert.throws(
    () => {
      for (let count = 0; count < 64; count++) reserve.assertFor(MIB);
    },
    { code: 'no-space' },
  );
});
