import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MoveProgress } from '../../server/membership/move-progress.ts';

test('progress has files and bytes, the rate of the last minute, and when it will end', () => {
  let nowMs = 5_000;
  const progress = new MoveProgress({ nowMs: () => nowMs });
  assert.deepEqual(progress.show(0, []), {
    ...{ total: 0, done: 0, failed: 0, current: [], currentCount: 0, doneBytes: 0, leftBytes: null },
    ...{ filesPerS: 0, bytesPerS: 0, etaS: null },
  });
  const move = (count: number, everyMs: number): void => {
    for (let left = count; left > 0; left--) {
      progress.begun();
      nowMs += everyMs;
      progress.moved(1_000);
    }
  };
  move(100, 100);
  progress.failed();
  assert.deepEqual(progress.show(50, [1, 2]), {
    ...{ total: 150, done: 100, failed: 1, current: [1, 2], currentCount: 2 },
    ...{ doneBytes: 100_000, leftBytes: 50_000, filesPerS: 10, bytesPerS: 10_000, etaS: 5 },
  });
  // The first minute no longer counts.
  move(120, 1_000);
  const later = progress.show(60, []);
  assert.deepEqual([later.filesPerS, later.etaS, later.done], [1, 60, 220]);
  const many = Array.from({ length: 50 }, (_, file) => file);
  const listed = progress.show(0, many);
  assert.deepEqual([listed.current.length, listed.currentCount, listed.total], [20, 50, 270]);
});

test('after an idle moment the next move begins another count', () => {
  let nowMs = 0;
  const progress = new MoveProgress({ nowMs: () => nowMs });
  progress.begun();
  nowMs += 2_000;
  progress.moved(1);
  progress.idle();
  assert.equal(progress.show(0, []).done, 1, 'Until then the last count is shown');
  progress.begun();
  assert.deepEqual([progress.show(1, [7]).done, progress.show(1, [7]).total], [0, 1]);
});
