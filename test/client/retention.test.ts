import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { keptSnapshots, parseRetention, type Retention } from '../../client/backup/retention.ts';
import { isNeededSnapshot } from '../../client/mirror/mirror-names.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';

function made(serial: number, time: string): SnapshotInfo {
  return { volume: 'main', name: time, serial, madeNs: `${Date.parse(time)}000000` };
}

function rules(text: string): Retention {
  const parsed = parseRetention(text);
  assert.ok(parsed !== null, text);
  return parsed;
}

function keptOf(times: readonly string[], text: string): string[] {
  const snapshots = times.map((time, index) => made(index + 1, time));
  const kept = keptSnapshots(snapshots, rules(text));
  return snapshots.filter((one) => kept.has(one)).map(({ name }) => name);
}

test('the latest snapshot stands for its period, and periods without any do not count', () => {
  const times = [
    '2026-01-31T23:00:00Z',
    '2026-02-01T01:00:00Z',
    '2026-02-28T23:59:59.999Z',
    '2026-03-01T00:00:00Z',
    '2026-03-01T00:30:00Z',
    '2026-03-09T12:00:00Z',
  ];
  assert.deepEqual(keptOf(times, 'last=2'), [times[4], times[5]]);
  assert.deepEqual(keptOf(times, '2'), [times[4], times[5]]);
  assert.deepEqual(keptOf(times, 'hourly=2'), [times[4], times[5]]);
  assert.deepEqual(keptOf(times, 'daily=3'), [times[2], times[4], times[5]]);
  assert.deepEqual(keptOf(times, 'monthly=2'), [times[2], times[5]]);
  assert.deepEqual(keptOf(times, 'monthly=12'), [times[0], times[2], times[5]]);
  assert.deepEqual(keptOf(times, 'yearly=1'), [times[5]]);
  assert.deepEqual(keptOf(times, 'last=0'), []);
});

test('weeks begin on Monday, in UTC', () => {
  // 2026-03-01 is a Sunday.
  const times = [
    '2026-02-28T12:00:00Z',
    '2026-03-01T23:59:59Z',
    '2026-03-02T00:00:00Z',
    '2026-03-08T23:00:00Z',
  ];
  assert.deepEqual(keptOf(times, 'weekly=9'), [times[1], times[3]]);
});

test('each rule keeps as many as it says, if there are periods, and together they keep what any of them keeps', () => {
  const hours = fc.uniqueArray(fc.integer({ min: 0, max: 20_000 }), { maxLength: 60 });
  const counts = fc.record({ hourly: fc.nat(5), daily: fc.nat(5), weekly: fc.nat(5), monthly: fc.nat(5) });
  fc.assert(
    fc.property(hours, counts, (offsets, wanted) => {
      const times = offsets
        .toSorted((a, b) => a - b)
        .map((hour) => new Date(Date.UTC(2024, 0, 1) + hour * 1_800_000).toISOString());
      const texts = Object.entries(wanted).map(([period, count]) => `${period}=${count}`);
      const all = new Set(texts.flatMap((text) => keptOf(times, text)));
      assert.deepEqual(
        keptOf(times, texts.join(',')),
        times.filter((time) => all.has(time)),
      );
      const days = new Set(times.map((time) => time.slice(0, 10)));
      assert.equal(keptOf(times, `daily=${wanted.daily}`).length, Math.min(wanted.daily, days.size));
      if (times.length > 0) assert.ok(keptOf(times, 'daily=1').includes(times.at(-1) as string));
    }),
  );
});

test('wrong rules are refused', () => {
  for (const text of [
    '',
    'daily',
    'daily=',
    'daily=-1',
    'daily=7,daily=8',
    'fortnightly=2',
    '4097',
    'constructor=1',
  ])
    assert.equal(parseRetention(text), null, text);
});

test('snapshots of backups and mirrors are not for retention', () => {
  for (const name of [
    'mirror-main-7',
    'mirror-main-target',
    'chain-20260301t000000z-0a1b',
    'backup.0123456789ab',
  ])
    assert.ok(isNeededSnapshot(name), name);
  for (const name of ['hourly-1', 'mirror', 'backup.old', 'replaced-main-7'])
    assert.ok(!isNeededSnapshot(name), name);
});
