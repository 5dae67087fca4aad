/**
 * Goal: removals are in a row by how long the program waits between two of them, not by how long the cluster takes for one.
 * Method: a clock that the test sets.
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

test('removals that take long are a row, and a program that waits long between two ends it', () => {
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

test('what is removed at the same time is a row until the last is answered', () => {
  const { rows, pass, remove } = started();
  rows.began(DIRECTORY);
  assert.equal(remove(500), 1);
  pass(500);
  assert.equal(rows.removed(DIRECTORY), 2);
  pass(ROW_MS);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});

test('a row that has ended while removals were under way does not go on for ever', () => {
  const { rows, pass, remove } = started();
  rows.began(DIRECTORY);
  rows.end(DIRECTORY);
  assert.equal(rows.removed(DIRECTORY), 1);
  assert.equal(remove(5), 2);
  pass(ROW_MS);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});

test('where others may not see what is a moment old, there is no row', () => {
  const { rows, remove } = started(0);
  rows.began(DIRECTORY);
  assert.equal(remove(0), 1);
  assert.equal(rows.lengthOf(DIRECTORY), 0);
});
