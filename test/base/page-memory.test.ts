import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AssertionFailure } from '../../base/assert.ts';
import { isPageAligned, PAGE_BYTES, pageMemory, releasePages } from '../../base/page-memory.ts';

test('released memory is lent again, and is no longer valid for its earlier borrower', () => {
  const first = pageMemory(PAGE_BYTES).fill(7);
  const view = first.subarray(10, 20);
  releasePages(first);
  assert.deepEqual([first.length, view.length, view[0]], [0, 0, undefined]);
  const second = pageMemory(3 * PAGE_BYTES);
  assert.equal(second[10], 7, 'the same memory');
  second.fill(8);
  assert.equal(view[0], undefined);
  releasePages(second);
});

test('lent memory is lent to no other borrower, however much is lent', () => {
  const all = Array.from({ length: 20 }, (_, at) => pageMemory(PAGE_BYTES).fill(at));
  for (const [at, bytes] of all.entries()) assert.ok(bytes.every((byte) => byte === at));
  for (const bytes of all) releasePages(bytes);
});

test('memory is released once, and only by its borrower', () => {
  const bytes = pageMemory(100);
  releasePages(bytes);
  assert.throws(() => releasePages(bytes), AssertionFailure);
  assert.throws(() => releasePages(Buffer.alloc(PAGE_BYTES)), AssertionFailure);
});

test('memory is lent for one write at most', () => {
  assert.throws(() => pageMemory(4 * 1024 * 1024 + PAGE_BYTES + 1), AssertionFailure);
  assert.throws(() => pageMemory(0), AssertionFailure);
});

test('only buffers that begin at a page of such memory count as pages', () => {
  const bytes = pageMemory(2 * PAGE_BYTES);
  assert.ok(isPageAligned(bytes));
  assert.ok(isPageAligned(bytes.subarray(PAGE_BYTES)));
  assert.ok(!isPageAligned(bytes.subarray(25)));
  assert.ok(!isPageAligned(Buffer.alloc(PAGE_BYTES)));
  releasePages(bytes);
  assert.ok(!isPageAligned(bytes));
});
