import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachedNames } from '../../fuse/kernel-view/cached-names.ts';
import { UPTAKE_MS_MAX } from '../../fuse/kernel-view/in-flight.ts';
import { placeKey } from '../../fuse/place.ts';
import { systemWorld } from '../../world/system-world.ts';

const AGE_MS = 1_000;
const A = { parent: 1, name: 'a' };
const B = { parent: 1, name: 'b' };

/** @returns names that are kept, and the clock */
function started() {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  return { names: new CachedNames(world), clock };
}

test('an inode has all names that the kernel was told, until the kernel has forgotten each', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  clock.nowMs = 500;
  names.answered(B, 7, AGE_MS);
  assert.deepEqual(names.of(7), [A, B], 'Another mount may have renamed it');
  clock.nowMs = AGE_MS + UPTAKE_MS_MAX;
  assert.deepEqual(names.of(7), [A, B], 'The kernel counts from when it takes up what it is told');
  clock.nowMs++;
  assert.deepEqual(names.of(7), [B]);
  clock.nowMs += AGE_MS;
  names.answered(A, 8, 0);
  assert.deepEqual([names.of(7), names.of(8)], [[], [A]]);
  clock.nowMs += UPTAKE_MS_MAX + 1;
  assert.deepEqual(names.of(8), []);
});

test('what the kernel was told of a name before it may be about to open', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(B, 9, AGE_MS);
  clock.nowMs = 100;
  names.answered(A, 8, AGE_MS);
  names.notCached(B);
  assert.deepEqual([names.of(7), names.of(8), names.of(9)], [[A], [A], [B]]);
  assert.deepEqual(
    [names.isOnly(8, placeKey(A)), names.isOnly(9, placeKey(A)), names.isOnly(9, placeKey(B))],
    [false, false, true],
  );
  clock.nowMs += UPTAKE_MS_MAX + 1;
  assert.deepEqual([names.of(7), names.of(8), names.of(9)], [[], [A], []]);
  assert.equal(names.isOnly(9, undefined), true);
});

test('the kernel asks for what it believes where somebody has to know', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(B, 8, 0);
  assert.deepEqual([names.isCached(A), names.isCached(B)], [true, false]);
  clock.nowMs = AGE_MS;
  assert.equal(names.isCached(A), false, 'It counts from when it hears, and rounds');
  names.answered(A, 7, AGE_MS);
  names.notCached(A);
  assert.equal(names.isCached(A), false);
});

test('a name moves with what is renamed here, and goes with what is removed', () => {
  const { names } = started();
  names.answered(A, 8, AGE_MS);
  names.answered(B, 7, AGE_MS);
  names.moved(A, B, true);
  assert.deepEqual([names.of(7), names.of(8)], [[A], [B]]);
  names.moved(A, B, false);
  assert.deepEqual([names.of(7), names.of(8), names.isCached(B)], [[B], [], true]);
  names.removed(B);
  assert.deepEqual(names.of(7), []);
});

test('a name is one, however often it was told, and is kept for the longest time for which it was', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  clock.nowMs = 10;
  names.answered(A, 7, 0);
  assert.deepEqual(names.of(7), [A]);
  clock.nowMs = AGE_MS;
  assert.deepEqual(names.of(7), [A], 'The kernel may have taken up the earlier answer last');
});

test('what a name stands for now stays when what it stood for before is forgotten', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(A, 8, 10 * AGE_MS);
  clock.nowMs = 2 * AGE_MS;
  names.answered(B, 9, 0);
  assert.deepEqual([names.isCached(A), names.isOnly(8, placeKey(A))], [true, false]);
  names.moved(A, { parent: 2, name: 'c' }, false);
  assert.deepEqual(names.of(8), [{ parent: 2, name: 'c' }]);
});
