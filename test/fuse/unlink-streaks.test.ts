/**
 * Goal: the length of a streak depends on how long the program waits between two unlinks, not on how long the cluster
 * takes.
 * Method: a clock that the test moves.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnlinkStreaks } from '../../fuse/pending/unlink-streaks.ts';
import { systemWorld } from '../../world/system-world.ts';

const DIRECTORY = 7;
const ROW_MS = 100;

function started(streakMs = ROW_MS) {
  let nowMs = 1_000;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const rows = new UnlinkStreaks(world, streakMs);
  const pass = (ms: number) => {
    nowMs += ms;
  };
  const remove = (takesMs: number) => {
    rows.began(DIRECTORY);
    pass(takesMs);
    return rows.removed(DIRECTORY);
  };
  return { rows, pass, remove };
}

test('slow unlinks are a streak, which ends when the program waits too long between two', () => {
  const { rows, pass, remove } = started();
  const counts = [5, 5_000, 5_000].map((takesMs) => {
    pass(ROW_MS - 1);
    return remove(takesMs);
  });
  assert.deepEqual(counts, [1, 2, 3]);
  pass(ROW_MS - 1);
  assert.equal(rows.lengthOf(DIRECTORY), 3);
  pass(1);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
  assert.equal(remove(5_000), 1);
});

test('concurrent unlinks are a streak until the last one is answered', () => {
  const { rows, pass, remove } = started();
  rows.began(DIRECTORY);
  assert.equal(remove(500), 1);
  pass(500);
  assert.equal(rows.removed(DIRECTORY), 2);
  pass(ROW_MS);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});

test('a streak that ended during an unlink still ends after its pause', () => {
  const { rows, pass, remove } = started();
  rows.began(DIRECTORY);
  rows.end(DIRECTORY);
  assert.equal(rows.removed(DIRECTORY), 1);
  assert.equal(remove(5), 2);
  pass(ROW_MS);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});

test('if other clients may see no outdated names, there is no streak', () => {
  const { rows, remove } = started(0);
  rows.began(DIRECTORY);
  assert.equal(remove(0), 1);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});
