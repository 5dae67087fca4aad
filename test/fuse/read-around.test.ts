import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReadAround } from '../../fuse/contents/read-around.ts';

/** @returns the number of misses after which the block is fetched */
function missesUntilFetched(around: ReadAround, key: string): number {
  for (let count = 1; count <= 10_000; count++) if (around.countMiss(key)) return count;
  throw new Error('It is never fetched');
}

test('a block is fetched when single reads have taken as long as a fetch would', () => {
  const around = new ReadAround();
  around.singleTook(2);
  around.blockTook(20);
  assert.equal(missesUntilFetched(around, 'a'), 10);
  assert.equal(missesUntilFetched(around, 'b'), 10, 'Each block is counted separately');
  around.singleTook(200);
  assert.equal(missesUntilFetched(around, 'c'), 2, 'One miss is never enough');
});

test('a block that the kernel has dropped needs twice as many misses', () => {
  const around = new ReadAround();
  const first = missesUntilFetched(around, 'a');
  const counts = [];
  for (let round = 0; round < 3; round++) {
    around.storedInKernel('a');
    counts.push(missesUntilFetched(around, 'a') / first);
  }
  assert.deepEqual(counts, [2, 4, 8]);
});

test('blocks that are missed once each are not fetched, and the oldest counts are dropped', () => {
  const around = new ReadAround();
  for (let index = 0; index < 100_000; index++) assert.equal(around.countMiss(`${index}`), false);
  assert.equal(missesUntilFetched(around, '0'), missesUntilFetched(new ReadAround(), '0'));
});
