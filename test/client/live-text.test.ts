import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LiveScreen } from '../../client/live/live-screen.ts';
import { eventLine, stateLines } from '../../client/live/live-text.ts';
import type { LiveServer, LiveState } from '../../wire/live-api.ts';

const SERVER: LiveServer = {
  id: 's1',
  url: 'http://127.0.0.1:1',
  state: 'serving',
  recoveringMs: 0,
  membership: 'in',
  uptimeMs: 1,
  primaries: 2,
  backups: 1,
  freeBytes: 1024 ** 3,
  totalBytes: 2 * 1024 ** 3,
  diskFull: false,
  clock: { offsetMs: -1.25, errorMs: 0.5 },
  writesPerS: 12.4,
  readsPerS: 99.6,
};

test('an event on one line, with the name of its file', () => {
  const line = eventLine({
    id: 's2.a.1',
    atMs: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
    server: 's2',
    kind: 'primary-elected',
    mood: 'good',
    text: 's2 is the primary of {file} now.',
    file: 7,
    path: 'main:/a',
  });
  assert.equal(line, '03:04:05.006Z + s2 is the primary of main:/a now.');
});

test('servers, and a file between two primaries', () => {
  const state: LiveState = {
    atMs: 0,
    sinceWriteMs: null,
    servers: [
      SERVER,
      { ...SERVER, id: 's2', state: 'recovering', recoveringMs: 1_500, membership: 'draining', clock: null },
      { ...SERVER, id: 's3', state: 'unreachable' },
    ],
    file: {
      path: 'main:/a',
      file: 7,
      primary: null,
      epoch: 3,
      lease: { holder: 's3', remainingMs: 500 },
      replicas: [
        { server: 's2', role: 'backup', state: 'at-rest', version: 9, lagOperations: null },
        { server: 's1', role: 'backup', state: 'catching-up', version: 5, lagOperations: 4 },
      ],
    },
  };
  assert.deepEqual(stateLines(state, 2_000), [
    'SERVER  STATE                             PRIMARY OF  BACKUP OF  WRITES/S  READS/S  CLOCK    FREE',
    's1      serving                           2           1          12        100      -1.3 ms  1.0 GiB',
    's2      recovering, 1.5 s left, draining  2           1          12        100      -        1.0 GiB',
    's3      unreachable                       -           -          -         -        -1.3 ms  -',
    '',
    'main:/a: primary none, epoch 3, lease of s3 [#####...............] 500 ms',
    '  s1  backup  catching-up  version 5  4 behind',
    '  s2  backup  at-rest      version 9',
  ]);
});

describe('lines at the bottom of a terminal', () => {
  const screenOf = (isTTY: boolean) => {
    const written: string[] = [];
    const output = { isTTY, columns: 12, rows: 6, write: (text: string) => written.push(text) > 0 };
    const screen = new LiveScreen(output as unknown as NodeJS.WriteStream);
    return { screen, taken: () => written.splice(0).join('') };
  };

  test('new text scrolls above them, and they are cut to the width', () => {
    const { screen, taken } = screenOf(true);
    screen.show(['one', 'a line that is too long']);
    assert.equal(taken(), 'one\x1b[K\na line that\x1b[K\n');
    screen.print('news');
    assert.equal(taken(), '\x1b[2A\rnews\x1b[K\none\x1b[K\na line that\x1b[K\n');
    screen.show(['1', '2', '3', '4', '5', '6']);
    assert.equal(taken(), '\x1b[2A\r1\x1b[K\n2\x1b[K\n3\x1b[K\n4\x1b[K\n', 'There are six lines');
    screen.end();
    assert.equal(taken(), '\x1b[4A\r\x1b[J');
  });

  test('without a terminal, nothing stays at the bottom', () => {
    const { screen, taken } = screenOf(false);
    screen.show(['one']);
    screen.print('news');
    screen.end();
    assert.equal(taken(), 'news\n');
  });
});
