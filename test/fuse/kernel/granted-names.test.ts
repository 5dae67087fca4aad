import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GRANTED_NAME_MS_MAX, GrantedNames } from '../../../fuse/kernel-view/granted-names.ts';
import { UPTAKE_MS_MAX } from '../../../fuse/kernel-view/in-flight.ts';
import { type Place, placeKey } from '../../../fuse/place.ts';

const D = 7;
const OTHER = 8;
const LONG_MS = 60_000;
const F = { parent: D, name: 'f' };

/** A view of granted names with a clock that the test moves. */
function names(expired: (place: Place) => Promise<void> = async () => undefined) {
  let nowMs = 1_000;
  const sleepers: { readonly atMs: number; readonly wake: () => void }[] = [];
  const granted = new Set([D]);
  const asked: string[] = [];
  const view = new GrantedNames({
    world: {
      nowMs: () => nowMs,
      sleep: (forMs) => new Promise((wake) => sleepers.push({ atMs: nowMs + forMs, wake })),
    },
    isGranted: (directory) => granted.has(directory),
    async expire(place, isWanted) {
      if (!isWanted()) return;
      asked.push(placeKey(place));
      await expired(place);
    },
  });
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const pass = async (ms: number): Promise<void> => {
    await settled();
    nowMs += ms;
    for (const { atMs, wake } of sleepers.splice(0))
      if (atMs <= nowMs) wake();
      else sleepers.push({ atMs, wake });
    await settled();
  };
  return { view, granted, asked, pass };
}

/** @returns whether `work` has resolved; updated later */
function state(work: Promise<void>): { isOver: boolean } {
  const seen = { isOver: false };
  void work.then(() => {
    seen.isOver = true;
  });
  return seen;
}

test('a name is cached no longer than its grant lasts, also if the kernel processes the answer late', () => {
  const { view } = names();
  assert.equal(view.answered(F, LONG_MS, true), GRANTED_NAME_MS_MAX);
  assert.equal(view.answered(F, UPTAKE_MS_MAX + 300.5, true), 300);
  assert.equal(view.answered(F, UPTAKE_MS_MAX, true), 0);
  assert.equal(view.answered(F, 0, true), 0);
});

test('a recall expires the names of its directories, and none of them is cached for a while', async () => {
  const { view, asked, pass } = names();
  view.answered(F, LONG_MS, false);
  view.answered({ parent: OTHER, name: 'g' }, LONG_MS, false);
  await view.recalled([D]);
  assert.deepEqual(asked, [placeKey(F)]);
  assert.equal(view.answered(F, LONG_MS, false), 0, 'Other clients change the directory');
  assert.ok(view.answered({ parent: OTHER, name: 'g' }, LONG_MS, false) > 0);
  await pass(6_000);
  assert.ok(view.answered(F, LONG_MS, false) > 0);
});

test('a name expires only after answers to look-ups of it have reached the kernel', async () => {
  const { view, asked, pass } = names();
  view.answered(F, LONG_MS, true);
  const recalled = state(view.recalled([D]));
  await pass(UPTAKE_MS_MAX);
  assert.deepEqual(asked, []);
  await pass(2);
  assert.deepEqual([asked, recalled.isOver], [[placeKey(F)], true]);
});

test('a recall waits for an expiry no longer than the kernel may cache the name', async () => {
  const { view, pass } = names(() => new Promise(() => undefined));
  view.answered(F, LONG_MS, false);
  const recalled = state(view.recalled([D]));
  await pass(GRANTED_NAME_MS_MAX);
  assert.equal(recalled.isOver, false, 'The kernel counts from when it processes the answer');
  await pass(UPTAKE_MS_MAX);
  assert.equal(recalled.isOver, true);
});

test('after a rename a recall expires the old and the new name', async () => {
  const { view, asked, pass } = names();
  const to = { parent: D, name: 'g' };
  view.answered(F, LONG_MS, true);
  await view.renaming(F, to, false);
  const recalled = state(view.recalled([D]));
  await pass(1);
  assert.deepEqual(asked, [], 'The answer may apply to the new name');
  await pass(UPTAKE_MS_MAX + 1);
  assert.deepEqual([asked.toSorted(), recalled.isOver], [[placeKey(F), placeKey(to)], true]);
});

test('a rename out of the granted directories waits until the kernel no longer caches the name', async () => {
  const { view, granted, pass } = names();
  view.answered(F, LONG_MS, false);
  const renamed = state(view.renaming(F, { parent: OTHER, name: 'f' }, false));
  await pass(GRANTED_NAME_MS_MAX);
  assert.equal(renamed.isOver, false);
  await pass(UPTAKE_MS_MAX);
  assert.equal(renamed.isOver, true);
  granted.add(OTHER);
  view.answered(F, LONG_MS, false);
  await view.renaming(F, { parent: OTHER, name: 'f' }, false);
});

test('a name whose grant ended before its answer expires', async () => {
  const { view, asked, pass } = names();
  view.answered(F, LONG_MS, false);
  const expired = state(view.answeredLate(F));
  await pass(UPTAKE_MS_MAX + 1);
  assert.deepEqual([asked, expired.isOver], [[placeKey(F)], true]);
});
