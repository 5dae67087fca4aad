import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SendWindow, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN } from '../../fuse/pending/send-window.ts';

const MEBIBYTE = 1024 * 1024;

test('more travels at a time where answers come soon, up to a bound', () => {
  const window = new SendWindow();
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN);
  window.answered(MEBIBYTE, 20);
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN + MEBIBYTE);
  for (let count = 0; count < 100; count++) window.answered(MEBIBYTE, 20);
  assert.equal(window.bytesMax, WINDOW_BYTES_MAX);
});

test('answers that take long leave only what comes in time on a slow link', () => {
  const window = new SendWindow();
  for (let count = 0; count < 100; count++) window.answered(MEBIBYTE, 20);
  window.answered(MEBIBYTE, 3_000);
  assert.equal(window.bytesMax, WINDOW_BYTES_MAX / 2);
  for (let count = 0; count < 10; count++) window.answered(MEBIBYTE, 3_000);
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN);
});
