import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { ReplicaCount } from '../../server/status/replica-count.ts';

/** Counts `files` files, in a time that the test sets; `pages` has the sizes of what the store has listed. */
function counting(files: number) {
  const world = { nowMs: 0, ticks: 0 };
  const pages: number[] = [];
  const store = { files, error: null as Error | null };
  const list = (after: FileId, countMax: number): FileId[] => {
    if (store.error !== null) throw store.error;
    const page = Array.from(
      { length: Math.min(countMax, store.files - after) },
      (_, index) => (after + index + 1) as FileId,
    );
    pages.push(page.length);
    return page;
  };
  const nextTick = async (): Promise<void> => {
    world.ticks += 1;
  };
  return { world, pages, store, count: new ReplicaCount({ nowMs: () => world.nowMs, nextTick }, { list }) };
}

test('few replicas are counted exactly each time', async () => {
  const { store, count } = counting(0);
  assert.equal(await count.current(), 0);
  store.files = 7;
  assert.equal(await count.current(), 7);
});

test('many replicas are counted a page in each tick, once a minute; meanwhile the last count is returned', async () => {
  const { world, pages, store, count } = counting(10_000);
  const first = await count.current();
  assert.ok(first > 0 && first < 10_000, `The first status does not wait either: ${first}`);
  await new Promise(setImmediate);
  assert.deepEqual(await Promise.all([count.current(), count.current()]), [10_000, 10_000]);
  assert.ok(pages.every((size) => size <= 2_048) && world.ticks === 4, `${pages}, ${world.ticks} ticks`);
  store.files = 20_000;
  world.nowMs = 59_999;
  assert.equal(await count.current(), 10_000);
  world.nowMs = 60_000;
  assert.equal(await count.current(), 10_000, 'The next count has begun');
  await new Promise(setImmediate);
  assert.equal(await count.current(), 20_000);
});

test('a count that fails is begun again', async () => {
  const { world, store, count } = counting(10_000);
  await count.current();
  await new Promise(setImmediate);
  world.nowMs = 60_000;
  assert.equal(await count.current(), 10_000);
  store.error = new Error('The disk has failed');
  await new Promise(setImmediate);
  await assert.rejects(count.current(), /The disk has failed/);
  store.error = null;
  store.files = 10_001;
  assert.equal(await count.current(), 10_000);
  await new Promise(setImmediate);
  assert.equal(await count.current(), 10_001);
});
