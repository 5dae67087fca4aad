import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPageAligned, PAGE_BYTES } from '../../base/page-memory.ts';
import {
  makeReleasable,
  makeUnreleasable,
  releasableMemory,
  releasablePages,
  releaseMemory,
} from '../../base/releasable-memory.ts';

/** Goal: the contents of lent memory are erased when it is released, and only then: no other borrower reads them. */
const SIZE_BYTES = 64 * 1024;

test('a release ends the lent memory and every view of it', () => {
  const bytes = releasableMemory(SIZE_BYTES).fill(7);
  const part = bytes.subarray(100, 200);
  releaseMemory(part);
  assert.equal(bytes.length, 0);
  assert.equal(part.length, 0);
  assert.equal(part[0], undefined);
  assert.doesNotThrow(() => releaseMemory(bytes), 'a second release has no effect');
});

test('memory that was not lent, that is kept, or that is small stays valid', () => {
  const own = Buffer.alloc(SIZE_BYTES, 1);
  const kept = releasableMemory(SIZE_BYTES).fill(2);
  const small = releasableMemory(100).fill(3);
  const pooled = Buffer.from('a word');
  makeUnreleasable(kept.subarray(10));
  for (const bytes of [own, kept, small, pooled]) releaseMemory(bytes);
  assert.deepEqual([own[9], kept[9], small[9], pooled.toString()], [1, 2, 3, 'a word']);
});

test('memory that was allocated elsewhere can be lent', () => {
  const bytes = new Uint8Array(SIZE_BYTES);
  makeReleasable(bytes);
  releaseMemory(bytes.subarray(1));
  assert.equal(bytes.length, 0);
});

test('lent pages end when they are released, and are lent again', () => {
  const bytes = releasablePages(2 * PAGE_BYTES, 25).fill(7);
  const page = bytes.subarray(25);
  assert.deepEqual([isPageAligned(page), isPageAligned(bytes), bytes.length], [true, false, 2 * PAGE_BYTES]);
  releaseMemory(page);
  assert.deepEqual([bytes.length, page.length], [0, 0]);
  assert.doesNotThrow(() => releaseMemory(bytes));
  const next = releasablePages(2 * PAGE_BYTES, 25);
  assert.equal(next[0], 7, 'the same memory');
  makeUnreleasable(next);
  releaseMemory(next);
  assert.equal(next[0], 7);
});
