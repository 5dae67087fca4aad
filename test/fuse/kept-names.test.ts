import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { KeptNames } from '../../fuse/kept-names.ts';
import { UPTAKE_MS_MAX } from '../../fuse/kernel/uptake.ts';

const AGE_MS = 1_000;
const A = { parent: 1, name: 'a' };
const B = { parent: 1, name: 'b' };

/** @returns names that are kept, and the clock */
function started(t: TestContext) {
  const clock = { nowMs: 0 };
  t.mock.method(performance, 'now', () => clock.nowMs);
  return { names: new KeptNames(AGE_MS), clock };
}

test('an inode has all names that the kernel was told, until the kernel has forgotten each', (t) => {
  const { names, clock } = started(t);
  names.told(A, 7);
  clock.nowMs = 500;
  names.told(B, 7);
  assert.deepEqual(names.of(7), [A, B], 'Another mount may have renamed it');
  clock.nowMs = AGE_MS + UPTAKE_MS_MAX;
  assert.deepEqual(names.of(7), [A, B], 'The kernel counts from when it takes up what it is told');
  clock.nowMs++;
  assert.deepEqual(names.of(7), [B]);
  clock.nowMs += AGE_MS;
  names.told(A, 8);
  assert.deepEqual([names.of(7), names.of(8)], [[], [A]]);
});

test('what the kernel asks for again it has not kept, unless it may be about to take that up', (t) => {
  const { names, clock } = started(t);
  names.told(A, 7);
  clock.nowMs = UPTAKE_MS_MAX;
  names.notKept(A);
  assert.deepEqual(names.of(7), [A]);
  clock.nowMs++;
  names.notKept(B);
  names.notKept(A);
  assert.deepEqual(names.of(7), []);
});

test('a name stands for what the kernel was told last, and moves with what is renamed here', (t) => {
  const { names } = started(t);
  names.told(A, 7);
  names.told(A, 8);
  assert.deepEqual([names.of(7), names.of(8)], [[], [A]]);
  names.told(B, 7);
  names.moved(A, B, true);
  assert.deepEqual([names.of(7), names.of(8)], [[A], [B]]);
  names.moved(A, B, false);
  assert.deepEqual([names.of(7), names.of(8)], [[B], []]);
  names.gone(B);
  assert.deepEqual(names.of(7), []);
});
