import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { contentsName } from '../../fuse/answered.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { PathView } from '../../fuse/kernel-view/kernel-view.ts';
import { systemWorld } from '../../world/system-world.ts';

const [ONE, TWO] = [11, 12];
const LONG_MS = 60_000;

function file(seq: number, inode = 7): Attributes {
  return { inode, kind: 'file', contents: { epoch: 1, seq } } as Attributes;
}

function version(seq: number, inode = 7): string {
  return contentsName(inode, { epoch: 1, seq });
}

test('what the kernel was told of other contents is outdated, and what it was told of these, or not at all, is not', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  view.answered('/other', file(1, 8), ONE);
  assert.equal(view.refuses('/f', version(5), ONE), false);
  assert.equal(view.refuses('/f', version(6), ONE), true);
  assert.equal(view.refuses('/f', version(5, 9), TWO), true, 'The name is another file’s');
  assert.equal(view.refuses('/never', version(6), ONE), false);
  view.answered('/f', file(6), ONE);
  assert.equal(view.refuses('/f', version(6), ONE), false, 'What it was told last counts');
});

test('nobody is refused twice in a row, whatever others do meanwhile', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  assert.equal(view.refuses('/f', version(6), ONE), true);
  assert.equal(view.refuses('/f', version(6), TWO), true);
  view.answered('/f', file(6), ONE);
  assert.equal(view.refuses('/f', version(7), ONE), false, 'It changed while it was looked up');
  assert.equal(view.refuses('/f', version(7), TWO), false);
  assert.equal(view.refuses('/f', version(8), ONE), true, 'The next open is another one');
  view.answered('/g', file(1, 8), ONE);
  assert.equal(view.refuses('/g', version(2, 8), ONE), true, 'So is one of another path');
  // Those who have no number are many.
  assert.equal(view.refuses('/f', version(8), 0), true);
  assert.equal(view.refuses('/f', version(8), 0), false);
  assert.equal(view.refuses('/f', version(8), 0), false);
});

test('what the kernel believes no more is not outdated; where it believes nothing, nothing is', async () => {
  const view = new PathView(systemWorld, 10);
  view.answered('/f', file(5), ONE);
  await delay(20);
  assert.equal(view.refuses('/f', version(6), ONE), true, 'It may have heard of it later');
  await delay(220);
  assert.equal(view.refuses('/f', version(6), TWO), false);
  const strict = new PathView(systemWorld, 0);
  strict.answered('/f', file(5), ONE);
  assert.equal(strict.refuses('/f', version(6), ONE), false);
});

test('what others were told of other contents at the same time may be what the kernel believes', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  view.answered('/f', file(6), ONE);
  assert.equal(view.refuses('/f', version(6), ONE), false, 'It has asked one after the other');
  view.answered('/f', file(7), TWO);
  assert.equal(view.refuses('/f', version(7), TWO), true);
  view.answered('/f', file(7), TWO);
  assert.equal(view.refuses('/f', version(7), TWO), false, 'It was looked up once more');
  assert.equal(view.refuses('/f', version(7), ONE), true);
});
