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

test('an open is refused if the kernel was answered other contents for its path, and not otherwise', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  view.answered('/other', file(1, 8), ONE);
  assert.equal(view.refuses('/f', version(5), ONE), false);
  assert.equal(view.refuses('/f', version(6), ONE), true);
  assert.equal(view.refuses('/f', version(5, 9), TWO), true, 'The path now has another file');
  assert.equal(view.refuses('/never', version(6), ONE), false);
  view.answered('/f', file(6), ONE);
  assert.equal(view.refuses('/f', version(6), ONE), false, 'The latest answer counts');
});

test('a thread is not refused twice for one open, whatever changes meanwhile', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  assert.equal(view.refuses('/f', version(6), ONE), true);
  assert.equal(view.refuses('/f', version(6), TWO), true);
  view.answered('/f', file(6), ONE);
  assert.equal(view.refuses('/f', version(7), ONE), false, 'The file changed during the look-up');
  assert.equal(view.refuses('/f', version(7), TWO), false);
  assert.equal(view.refuses('/f', version(8), ONE), true, 'The next open is a separate one');
  view.answered('/g', file(1, 8), ONE);
  assert.equal(view.refuses('/g', version(2, 8), ONE), true, 'An open of another path is a separate one');
  // Several threads may have the number 0.
  assert.equal(view.refuses('/f', version(8), 0), true);
  assert.equal(view.refuses('/f', version(8), 0), false);
  assert.equal(view.refuses('/f', version(8), 0), false);
});

test('an answer that the kernel caches no longer causes no refusal, and neither does one that it never cached', async () => {
  const view = new PathView(systemWorld, 10);
  view.answered('/f', file(5), ONE);
  await delay(20);
  assert.equal(view.refuses('/f', version(6), ONE), true, 'The kernel may have processed the answer later');
  await delay(220);
  assert.equal(view.refuses('/f', version(6), TWO), false);
  const strict = new PathView(systemWorld, 0);
  strict.answered('/f', file(5), ONE);
  assert.equal(strict.refuses('/f', version(6), ONE), false);
});

test('after answers with different contents to several threads the kernel may have either', () => {
  const view = new PathView(systemWorld, LONG_MS);
  view.answered('/f', file(5), ONE);
  view.answered('/f', file(6), ONE);
  assert.equal(
    view.refuses('/f', version(6), ONE),
    false,
    'One thread has asked twice, so the latest answer counts',
  );
  view.answered('/f', file(7), TWO);
  assert.equal(view.refuses('/f', version(7), TWO), true);
  view.answered('/f', file(7), TWO);
  assert.equal(view.refuses('/f', version(7), TWO), false, 'The path was looked up once more');
  assert.equal(view.refuses('/f', version(7), ONE), true);
});
