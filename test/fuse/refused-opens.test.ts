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

/** @returns those who were refused, and the clock; one was refused inode 7, which the kernel has kept as `a` */
function started({ thread = THREAD, isLink = false } = {}) {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  const refused = new RefusedOpens(world);
  refused.refuse(thread, 7, [placeKey(A)], isLink);
  const look = (place: Place, inode: number, kind: NodeKind = 'file'): void => {
    assert.equal(refused.repeatsLookup(thread, place), true);
    refused.found(thread, place, inode === NOTHING ? null : ({ inode, kind } as Attributes));
  };
  return { refused, clock, look };
}

test('whoever was refused opens what it has looked up since, and only that, and once', () => {
  for (const [place, found, opened, isMeant] of [
    [A, 8, 8, true],
    [A, 8, 7, false],
    [B, 7, 7, true],
    [B, 8, 8, false],
  ] as const) {
    const { refused, look } = started();
    look(WAY, 2, 'directory');
    // The kernel asks for a second time where the first answer was another inode than it knew.
    for (let round = 0; round < 2; round++) look(place, found);
    assert.equal(refused.isRepetition(THREAD, opened), isMeant, `${place.name} is ${found}`);
    assert.equal(refused.isRepetition(THREAD, opened), false, 'Once');
  }
});

test('what has no name is opened when it comes back without a look-up, but not by those who have no number', () => {
  assert.equal(started().refused.isRepetition(THREAD, 7), true);
  assert.equal(started().refused.isRepetition(THREAD, 8), false);
  const unnumbered = started({ thread: 0 });
  assert.equal(unnumbered.refused.isRepetition(0, 7), false, 'Another one may open by the same name');
  unnumbered.refused.refuse(0, 7, [placeKey(A)]);
  unnumbered.look(A, 8);
  assert.equal(unnumbered.refused.isRepetition(0, 8), true);
});

test('what is looked up and not opened ends it: whatever the thread opens later is another matter', () => {
  const directory = started();
  directory.look(A, 8, 'directory');
  assert.equal(directory.refused.repeatsLookup(THREAD, B), false);
  const absent = started();
  absent.look(A, NOTHING);
  assert.equal(absent.refused.isRepetition(THREAD, 7), false);
  const forbidden = started();
  forbidden.look(A, 8);
  assert.equal(forbidden.refused.repeatsLookup(THREAD, B), false, 'It has gone on to something else');
  assert.equal(forbidden.refused.isRepetition(THREAD, 8), false);
});

test('a look-up that is not answered yet is none, and one that was answered long ago has been made use of', () => {
  const { refused, clock, look } = started();
  refused.repeatsLookup(THREAD, A);
  clock.nowMs = 60_000;
  assert.equal(refused.isRepetition(THREAD, 7), false);
  refused.refuse(THREAD, 7, [placeKey(A)]);
  look(A, 8);
  clock.nowMs += 1_001;
  assert.equal(refused.isRepetition(THREAD, 8), false);
});

test('a symbolic link in the place leads to what is opened', () => {
  const { refused, look } = started();
  look(A, 8, 'symlink');
  look(WAY, 2, 'directory');
  look(B, 9);
  assert.equal(refused.isRepetition(THREAD, 9), true);
});

test('behind the name of what is to get a second one that is looked up, and not there', () => {
  const { refused, look } = started({ isLink: true });
  look(A, 8);
  look(B, NOTHING);
  assert.equal(refused.isRepetition(THREAD, 8), true);
});

test('another thread has no part in it', () => {
  const { refused } = started();
  assert.deepEqual([refused.repeatsLookup(OTHER, A), refused.isRepetition(OTHER, 7)], [false, false]);
});

test('a symbolic link on the way says nothing of what is behind it', () => {
  const { refused, look } = started();
  look(WAY, 2, 'symlink');
  look(B, 8);
  assert.equal(refused.isRepetition(THREAD, 8), false);
});

test('whoever waits long for an answer is not forgotten for others meanwhile', () => {
  const { refused, clock } = started();
  refused.repeatsLookup(THREAD, A);
  clock.nowMs = 60_000;
  refused.refuse(OTHER, 9, []);
  refused.found(THREAD, A, { inode: 8, kind: 'file' } as Attributes);
  assert.equal(refused.isRepetition(THREAD, 8), true);
});
