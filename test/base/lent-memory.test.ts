import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPageAligned, PAGE_BYTES } from '../../base/page-memory.ts';
import { giveBack, keepMemory, lend, lentMemory, lentPages } from '../../base/releasable-memory.ts';

/** Goal: memory ends where it was lent and is given back, and nowhere else: nobody reads in it what is another's. */
const SIZE_BYTES = 64 * 1024;

test('what was lent ends when it is given back, and every view of it with it', () => {
  const bytes = lentMemory(SIZE_BYTES).fill(7);
  const part = bytes.subarray(100, 200);
  giveBack(part);
  assert.equal(bytes.length, 0);
  assert.equal(part.length, 0);
  assert.equal(part[0], undefined);
  assert.doesNotThrow(() => giveBack(bytes), 'a second time it is nobody’s');
});

test('what was not lent stays, and so does what is kept, and what is small', () => {
  const own = Buffer.alloc(SIZE_BYTES, 1);
  const kept = lentMemory(SIZE_BYTES).fill(2);
  const small = lentMemory(100).fill(3);
  const pooled = Buffer.from('a word');
  keepMemory(kept.subarray(10));
  for (const bytes of [own, kept, small, pooled]) giveBack(bytes);
  assert.deepEqual([own[9], kept[9], small[9], pooled.toString()], [1, 2, 3, 'a word']);
});

test('memory that came from elsewhere can be lent', () => {
  const bytes = new Uint8Array(SIZE_BYTES);
  lend(bytes);
  giveBack(bytes.subarray(1));
  assert.equal(bytes.length, 0);
});

test('pages that were lent end when they are given back, and are lent again', () => {
  const bytes = lentPages(2 * PAGE_BYTES, 25).fill(7);
  const page = bytes.subarray(25);
  assert.deepEqual([isPageAligned(page), isPageAligned(bytes), bytes.length], [true, false, 2 * PAGE_BYTES]);
  giveBack(page);
  assert.deepEqual([bytes.length, page.length], [0, 0]);
  assert.doesNotThrow(() => giveBack(bytes));
  const next = lentPages(2 * PAGE_BYTES, 25);
  assert.equal(next[0], 7, 'the same memory');
  keepMemory(next);
  giveBack(next);
  assert.equal(next[0], 7);
});
