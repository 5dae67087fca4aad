import assert from 'node:assert/strict';
import { test } from 'node:test';
import { liveFileOf } from '../../server/live/live-file.ts';
import { Rates } from '../../server/live/rates.ts';
import type { LivePart, LiveReplica } from '../../wire/live-api.ts';

const MEMBERS = ['s1', 's2', 's3'];
const NO_LEASE = { holder: null, remainingMs: 0 };

function heard(server: string, standing: Partial<LiveReplica>, ageMs = 50, isThere = true) {
  const file: LiveReplica = {
    file: 7,
    role: 'backup',
    epoch: 2,
    version: 10,
    members: MEMBERS,
    lease: NO_LEASE,
    replicas: [],
    ...standing,
  };
  return { part: { server, files: [file] } as unknown as LivePart, ageMs, isThere };
}

const AT_PRIMARY = {
  role: 'primary',
  lease: { holder: 's1', remainingMs: 1_500 },
  replicas: [
    { server: 's2', role: 'backup', state: 'current', version: 10, lagOperations: 0 },
    { server: 's3', role: 'backup', state: 'catching-up', version: 4, lagOperations: 6 },
  ],
} as const;

test('if there is a primary, its report is used', () => {
  const file = liveFileOf('main:/a', 7, [
    heard('s1', AT_PRIMARY),
    heard('s2', {}),
    heard('s3', { version: 4 }),
  ]);
  assert.deepEqual(
    [file.primary, file.epoch, file.lease],
    ['s1', 2, { holder: 's1', remainingMs: 1_450 }],
    'The remaining time has decreased since',
  );
  assert.deepEqual(
    file.replicas.map(({ server, role, state, version, lagOperations }) => [
      server,
      role,
      state,
      version,
      lagOperations,
    ]),
    [
      ['s1', 'primary', 'current', 10, 0],
      ['s2', 'backup', 'current', 10, 0],
      ['s3', 'backup', 'catching-up', 4, 6],
    ],
  );
});

test('without a primary, the others report how long its lease lasts', () => {
  const file = liveFileOf('main:/a', 7, [
    heard('s1', AT_PRIMARY, 400, false),
    heard('s2', { lease: { holder: 's1', remainingMs: 900 } }),
    heard('s3', {}),
  ]);
  assert.deepEqual([file.primary, file.lease], [null, { holder: 's1', remainingMs: 1_100 }]);
  assert.deepEqual(
    file.replicas.map(({ server, state }) => [server, state]),
    [
      ['s1', 'unreachable'],
      ['s2', 'at-rest'],
      ['s3', 'at-rest'],
    ],
  );
});

test('of two servers that report to be primary, the one with the larger epoch counts', () => {
  const file = liveFileOf('main:/a', 7, [
    heard('s1', AT_PRIMARY),
    heard('s2', { ...AT_PRIMARY, epoch: 3, lease: { holder: 's2', remainingMs: 700 } }),
  ]);
  assert.deepEqual([file.primary, file.epoch, file.lease.holder], ['s2', 3, 's2']);
});

test('a file that no server knows', () => {
  assert.deepEqual(liveFileOf('main:/a', null, [heard('s1', AT_PRIMARY)]), {
    path: 'main:/a',
    file: null,
    primary: null,
    epoch: 0,
    lease: NO_LEASE,
    replicas: [],
  });
});

test('rates cover the last interval, and start again with a new process', () => {
  const rates = new Rates();
  const say = (life: string, atMs: number, writes: number) =>
    rates.addSample('s1', { life, writes, reads: 2 * writes }, atMs);
  assert.deepEqual(rates.ratesOf('s1'), { writesPerS: 0, readsPerS: 0 });
  for (let atMs = 0; atMs <= 5_000; atMs += 250) say('a', atMs, atMs);
  assert.deepEqual(rates.ratesOf('s1'), { writesPerS: 1_000, readsPerS: 2_000 });
  for (let atMs = 5_250; atMs <= 6_000; atMs += 250) say('a', atMs, 5_000);
  assert.deepEqual(rates.ratesOf('s1'), { writesPerS: 0, readsPerS: 0 }, 'A pause shows');
  say('b', 6_250, 3);
  assert.deepEqual(rates.ratesOf('s1'), { writesPerS: 0, readsPerS: 0 }, 'Not below zero');
});
