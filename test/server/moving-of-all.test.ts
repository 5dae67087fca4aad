import assert from 'node:assert/strict';
import { test } from 'node:test';
import { movingOfAll } from '../../server/status/moving-of-all.ts';
import type { Moving } from '../../wire/http-api.ts';

const IDLE: Moving = {
  ...{ total: 4, done: 4, failed: 1, current: [], currentCount: 0 },
  ...{ doneBytes: 40, leftBytes: 0, filesPerS: 1, bytesPerS: 10, etaS: null },
};
const BUSY: Moving = {
  ...{ total: 10, done: 4, failed: 2, current: [7], currentCount: 1 },
  ...{ doneBytes: 400, leftBytes: 600, filesPerS: 2, bytesPerS: 200, etaS: 3 },
};

test('moves of several catalogs are summed, and end with the last of them', () => {
  assert.equal(movingOfAll([]), null);
  assert.equal(movingOfAll([BUSY]), BUSY);
  assert.deepEqual(movingOfAll([IDLE, BUSY, { ...BUSY, current: [8], etaS: 9 }]), {
    ...{ total: 24, done: 12, failed: 5, current: [7, 8], currentCount: 2 },
    ...{ doneBytes: 840, leftBytes: 1_200, filesPerS: 5, bytesPerS: 410, etaS: 9 },
  });
});

test('what is unknown for one catalog with files left is unknown for all', () => {
  const unknown = movingOfAll([BUSY, { ...BUSY, leftBytes: null, etaS: null }]);
  assert.deepEqual([unknown?.leftBytes, unknown?.etaS], [null, null]);
  const early = { total: 3, done: 1, failed: 0, current: [1, 2] };
  const mixed = movingOfAll([early, IDLE]);
  assert.deepEqual([mixed?.total, mixed?.currentCount, mixed?.leftBytes, mixed?.etaS], [7, 2, null, null]);
});

test('a file list is bounded', () => {
  const current = Array.from({ length: 15 }, (_, file) => file);
  const all = movingOfAll([
    { ...BUSY, current, currentCount: 15 },
    { ...BUSY, current, currentCount: 30 },
  ]);
  assert.deepEqual([all?.current.length, all?.currentCount], [20, 45]);
});
