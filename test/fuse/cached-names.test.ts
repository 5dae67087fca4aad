import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachedNames } from '../../fuse/kernel-view/cached-names.ts';
import { UPTAKE_MS_MAX } from '../../fuse/kernel-view/in-flight.ts';
import { placeKey } from '../../fuse/place.ts';
import { systemWorld } from '../../world/system-world.ts';

const AGE_MS = 1_000;
const A = { parent: 1, name: 'a' };
const B = { parent: 1, name: 'b' };

/** The names, and the clock that decides how long each counts. */
function started() {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  return { names: new CachedNames(world), clock };
}

test('an inode has each name that the kernel was answered, until the kernel no longer caches it', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  clock.nowMs = 500;
  names.answered(B, 7, AGE_MS);
  assert.deepEqual(names.of(7), [A, B], 'Another mount may have renamed it');
  clock.nowMs = AGE_MS + UPTAKE_MS_MAX;
  assert.deepEqual(names.of(7), [A, B], 'The kernel counts from when it processes the answer');
  clock.nowMs++;
  assert.deepEqual(names.of(7), [B]);
  clock.nowMs += AGE_MS;
  names.answered(A, 8, 0);
  assert.deepEqual([names.of(7), names.of(8)], [[], [A]]);
  clock.nowMs += UPTAKE_MS_MAX + 1;
  assert.deepEqual(names.of(8), []);
});

test('an earlier answer for a name counts a while longer, as an open by it may be on its way', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(B, 9, AGE_MS);
  clock.nowMs = 100;
  names.answered(A, 8, AGE_MS);
  names.answeredUncached(B);
  assert.deepEqual([names.of(7), names.of(8), names.of(9)], [[A], [A], [B]]);
  assert.deepEqual(
    [names.isOnly(8, placeKey(A)), names.isOnly(9, placeKey(A)), names.isOnly(9, placeKey(B))],
    [false, false, true],
  );
  clock.nowMs += UPTAKE_MS_MAX + 1;
  assert.deepEqual([names.of(7), names.of(8), names.of(9)], [[], [A], []]);
  assert.equal(names.isOnly(9, undefined), true);
});

test('a name is cached only if the latest answer allowed it, and shorter than the kernel caches it', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(B, 8, 0);
  assert.deepEqual([names.isCached(A), names.isCached(B)], [true, false]);
  clock.nowMs = AGE_MS;
  assert.equal(names.isCached(A), false, 'The kernel counts from when it processes the answer, and rounds');
  names.answered(A, 7, AGE_MS);
  names.answeredUncached(A);
  assert.equal(names.isCached(A), false);
});

test('a rename on this mount moves a name, and a removal removes it', () => {
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

test('several answers for one name and inode are one name, which lasts as long as the longest of them', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  clock.nowMs = 10;
  names.answered(A, 7, 0);
  assert.deepEqual(names.of(7), [A]);
  clock.nowMs = AGE_MS;
  assert.deepEqual(names.of(7), [A], 'The kernel may have processed the earlier answer last');
});

test('the end of an earlier answer for a name leaves the later inode of that name', () => {
  const { names, clock } = started();
  names.answered(A, 7, AGE_MS);
  names.answered(A, 8, 10 * AGE_MS);
  clock.nowMs = 2 * AGE_MS;
  names.answered(B, 9, 0);
  assert.deepEqual([names.isCached(A), names.isOnly(8, placeKey(A))], [true, false]);
  names.moved(A, { parent: 2, name: 'c' }, false);
  assert.deepEqual(names.of(8), [{ parent: 2, name: 'c' }]);
});
