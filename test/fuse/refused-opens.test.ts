import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attributes, NodeKind } from '../../fuse/backend.ts';
import { RefusedOpens } from '../../fuse/kernel-view/refused-opens.ts';
import { placeKey } from '../../fuse/place.ts';
import { systemWorld } from '../../world/system-world.ts';

const [THREAD, OTHER] = [100, 200];
const NOTHING = 0;
const [WAY, A, B] = ['way', 'a', 'b'].map((name) => ({ parent: 1, name })) as [Place, Place, Place];
type Place = { readonly parent: number; readonly name: string };

/**
 * `refused` has one refused open, of inode 7, whose name `a` the kernel caches. @returns that, its clock, and `look`,
 * which looks a name up
 */
function started({ thread = THREAD, isLink = false } = {}) {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  const refused = new RefusedOpens(world);
  refused.refuse(thread, 7, [placeKey(A)], isLink);
  const look = (place: Place, inode: number, kind: NodeKind = 'file'): void => {
    assert.equal(refused.repeatsLookup(thread, place), true);
    refused.lookupAnswered(thread, place, inode === NOTHING ? null : ({ inode, kind } as Attributes));
  };
  return { refused, clock, look };
}

test('after a refusal a thread may open the inode that it has looked up since, only that, and once', () => {
  for (const [place, found, opened, isMeant] of [
    [A, 8, 8, true],
    [A, 8, 7, false],
    [B, 7, 7, true],
    [B, 8, 8, false],
  ] as const) {
    const { refused, look } = started();
    look(WAY, 2, 'directory');
    // The kernel looks up a second time if the first answer is another inode than it had.
    for (let round = 0; round < 2; round++) look(place, found);
    assert.equal(refused.isRepetition(THREAD, opened), isMeant, `${place.name} is ${found}`);
    assert.equal(refused.isRepetition(THREAD, opened), false, 'Only once');
  }
});

test('an open without a look-up is the repetition of a refused one, unless the thread has no number', () => {
  assert.equal(started().refused.isRepetition(THREAD, 7), true);
  assert.equal(started().refused.isRepetition(THREAD, 8), false);
  const unnumbered = started({ thread: 0 });
  assert.equal(unnumbered.refused.isRepetition(0, 7), false, 'Another thread may open by the same name');
  unnumbered.refused.refuse(0, 7, [placeKey(A)]);
  unnumbered.look(A, 8);
  assert.equal(unnumbered.refused.isRepetition(0, 8), true);
});

test('a look-up that no open follows ends the repetition: later opens are separate', () => {
  const directory = started();
  directory.look(A, 8, 'directory');
  assert.equal(directory.refused.repeatsLookup(THREAD, B), false);
  const absent = started();
  absent.look(A, NOTHING);
  assert.equal(absent.refused.isRepetition(THREAD, 7), false);
  const forbidden = started();
  forbidden.look(A, 8);
  assert.equal(forbidden.refused.repeatsLookup(THREAD, B), false, 'The thread does something else');
  assert.equal(forbidden.refused.isRepetition(THREAD, 8), false);
});

test('an open before the answer to the look-up, or long after it, is no repetition', () => {
  const { refused, clock, look } = started();
  refused.repeatsLookup(THREAD, A);
  clock.nowMs = 60_000;
  assert.equal(refused.isRepetition(THREAD, 7), false);
  refused.refuse(THREAD, 7, [placeKey(A)]);
  look(A, 8);
  clock.nowMs += 1_001;
  assert.equal(refused.isRepetition(THREAD, 8), false);
});

test('after a look-up of a symbolic link the next names are part of the repetition', () => {
  const { refused, look } = started();
  look(A, 8, 'symlink');
  look(WAY, 2, 'directory');
  look(B, 9);
  assert.equal(refused.isRepetition(THREAD, 9), true);
});

test('a look-up that finds no file for the second name of a link keeps the repetition', () => {
  const { refused, look } = started({ isLink: true });
  look(A, 8);
  look(B, NOTHING);
  assert.equal(refused.isRepetition(THREAD, 8), true);
});

test('other threads are not affected', () => {
  const { refused } = started();
  assert.deepEqual([refused.repeatsLookup(OTHER, A), refused.isRepetition(OTHER, 7)], [false, false]);
});

test('after a symbolic link to a directory the next names are not part of the repetition', () => {
  const { refused, look } = started();
  look(WAY, 2, 'symlink');
  look(B, 8);
  assert.equal(refused.isRepetition(THREAD, 8), false);
});

test('a refusal whose look-up is pending is not dropped, also if others are refused meanwhile', () => {
  const { refused, clock } = started();
  refused.repeatsLookup(THREAD, A);
  clock.nowMs = 60_000;
  refused.refuse(OTHER, 9, []);
  refused.lookupAnswered(THREAD, A, { inode: 8, kind: 'file' } as Attributes);
  assert.equal(refused.isRepetition(THREAD, 8), true);
});
