import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatBytes, formatDuration, parseDurationMs, parseSize } from '../../client/terminal/quantities.ts';

test('sizes', () => {
  assert.equal(parseSize('4096'), 4096);
  assert.equal(parseSize('128KiB'), 131_072);
  assert.equal(parseSize('1.5 GiB'), 1_610_612_736);
  assert.equal(parseSize('1MB'), 1_000_000);
  for (const text of ['', '-1', '1.5', '1XB', 'KiB', '1e3', '0x10', '99999999TiB', '1constructor']) {
    assert.equal(parseSize(text), null, text);
  }
});

test('durations', () => {
  assert.equal(parseDurationMs('5s'), 5_000);
  assert.equal(parseDurationMs('250ms'), 250);
  assert.equal(parseDurationMs('1.5m'), 90_000);
  assert.equal(parseDurationMs('100'), 100);
  for (const text of ['', '-5s', '5x', 's', '5 s s']) assert.equal(parseDurationMs(text), null, text);
});

test('people read sizes and durations with units', () => {
  assert.equal(formatBytes(0), '0 B');
  assert.equal(formatBytes(1536), '1.5 KiB');
  assert.equal(formatBytes(1024 ** 3), '1.0 GiB');
  assert.equal(formatDuration(12), '12 ms');
  assert.equal(formatDuration(2_500), '2.5 s');
  assert.equal(formatDuration(200_000), '3 min 20 s');
  assert.equal(formatDuration(7_500_000), '2 h 5 min');
});
