import assert from 'node:assert/strict';
import { test } from 'node:test';
import { giveBack, keepMemory, lend, lentMemory } from '../../base/lent-memory.ts';

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
