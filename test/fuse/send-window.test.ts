import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SendWindow, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN } from '../../fuse/pending/send-window.ts';

const MEBIBYTE = 1024 * 1024;

test('fast answers allow more bytes at a time, up to a maximum', () => {
  const window = new SendWindow();
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN);
  window.answered(MEBIBYTE, 20);
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN + MEBIBYTE);
  for (let count = 0; count < 100; count++) window.answered(MEBIBYTE, 20);
  assert.equal(window.bytesMax, WINDOW_BYTES_MAX);
});

test('slow answers halve the window, down to what a slow link can answer in time', () => {
  const window = new SendWindow();
  for (let count = 0; count < 100; count++) window.answered(MEBIBYTE, 20);
  window.answered(MEBIBYTE, 3_000);
  assert.equal(window.bytesMax, WINDOW_BYTES_MAX / 2);
  for (let count = 0; count < 10; count++) window.answered(MEBIBYTE, 3_000);
  assert.equal(window.bytesMax, WINDOW_BYTES_MIN);
});
