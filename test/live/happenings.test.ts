import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FileId, ServerId } from '../../base/ids.ts';
import { Observer } from '../../server/live/observer.ts';
import { ServerEvents } from '../../server/live/server-events.ts';
import { systemWorld } from '../../world/system-world.ts';

const S1 = 's1' as ServerId;
const S2 = 's2' as ServerId;
const S3 = 's3' as ServerId;
const FILE = 7 as FileId;

/** An observer in a world whose time a test moves. */
function world() {
  const time = { nowMs: 1_000 };
  const away = new Set<ServerId>();
  const happenings = new ServerEvents({
    self: S2,
    life: 'x',
    nowMs: () => time.nowMs,
    wallMs: () => 1_700_000_000_000 + time.nowMs,
  });
  const observer = new Observer({
    world: systemWorld,
    self: S2,
    leaseMs: 2_000,
    clockSkewMaxMs: 100,
    events: happenings,
    nowMs: () => time.nowMs,
    servers: () => [S1, S2, S3],
    isConnected: (server) => !away.has(server),
  });
  observer.close();
  const texts = () => happenings.after(0).map(({ text }) => text);
  return { time, away, happenings, observer, texts };
}

const replica = (counter: number, isFirstPrimary = false) => ({
  file: FILE,
  epoch: { counter },
  isFirstPrimary,
});

describe('events of a server', () => {
  test('a primary is elected after the earlier lease has ended', () => {
    const { time, observer, happenings } = world();
    observer.leaseLearned(FILE, S1, 3_000);
    time.nowMs = 3_104;
    observer.leaseChanged(FILE, 5_104);
    observer.marked(replica(3), 'reset-started', '3@s2');
    time.nowMs = 3_110;
    observer.marked(replica(3), 'active', '3@s2');
    const [told] = happenings.after(0);
    assert.equal(
      told?.text,
      's2 became primary of {file} in epoch 3: the lease of s1 had ended 104 ms before; the reset took 6 ms.',
    );
    assert.deepEqual(
      { kind: told?.kind, file: told?.file, epoch: told?.epoch, id: told?.id, atMs: told?.atMs },
      { kind: 'primary-elected', file: 7, epoch: 3, id: 's2.x.1', atMs: 1_700_000_003_110 },
    );
  });

  for (const [title, arrange, expected] of [
    ['given back', (o: Observer) => o.leaseLearned(FILE, S1, 9_000), /: s1 had released its lease;/],
    ['unknown', () => undefined, /: the lease had no holder;/],
    [
      'its own',
      (o: Observer) => {
        o.leaseChanged(FILE, 900);
        o.leaseChanged(FILE, 0);
      },
      /: its own earlier lease had expired;/,
    ],
  ] as const) {
    test(`the earlier lease was ${title}`, () => {
      const { observer, texts } = world();
      arrange(observer);
      observer.leaseChanged(FILE, 5_000);
      observer.marked(replica(2), 'active', '2@s2');
      assert.match(texts()[0] ?? '', expected);
    });
  }

  test('the first primary of a new file is no event', () => {
    const { observer, texts } = world();
    observer.marked(replica(1, true), 'active', '1@s2');
    assert.deepEqual(texts(), []);
  });

  test('a refused primary reports that it steps down; a server that was never primary reports nothing', () => {
    const { observer, happenings } = world();
    observer.marked(replica(3), 'deposed', 'by 4@s3');
    observer.marked(replica(3), 'lease-over', 'role preparing');
    assert.equal(happenings.last, 0);
    observer.marked(replica(3), 'active', '3@s2');
    observer.marked(replica(4), 'deposed', 's1 has promised 4@s3');
    const { kind, epoch, text } = happenings.after(1)[0] ?? {};
    assert.deepEqual({ kind, epoch }, { kind: 'fenced', epoch: 3 });
    assert.match(text ?? '', /\(s1 has promised 4@s3\); no write of epoch 3 is acknowledged any more/);
  });

  test('silence and return of a server, and loss and return of a majority, are each reported once', () => {
    const { away, observer, happenings } = world();
    observer.connected(S1);
    observer.connected(S3);
    assert.equal(happenings.last, 0, 'The first connections are no event');
    for (const server of [S1, S3]) {
      away.add(server);
      observer.disconnected(server);
      observer.disconnected(server);
    }
    for (const server of [S1, S3]) {
      away.delete(server);
      observer.connected(server);
    }
    assert.deepEqual(
      happenings.after(0).map(({ kind, about }) => [kind, about ?? null]),
      [
        ['silent', 's1'],
        ['silent', 's3'],
        ['no-majority', null],
        ['back', 's1'],
        ['majority', null],
        ['back', 's3'],
      ],
    );
  });

  test('of ten thousand events of a kind, a few are reported, and one for the rest', () => {
    const { time, observer, happenings } = world();
    for (let file = 1; file <= 10_000; file++) {
      observer.marked(
        { file: file as FileId, epoch: { counter: 2 }, isFirstPrimary: false },
        'active',
        '2@s2',
      );
    }
    assert.equal(happenings.last, 6);
    time.nowMs += 1_000;
    assert.equal(happenings.last, 7);
    assert.match(happenings.after(6)[0]?.text ?? '', /^9994 more events of this kind/);
  });

  test('a drained server is reported once, and once more when it has no replica left', () => {
    const { observer, texts } = world();
    for (const state of ['in', 'draining', 'draining', 'out', 'out'] as const)
      observer.membershipChanged(state);
    assert.deepEqual(texts(), [
      's2 is draining: each of its replicas stays until another server has a complete one.',
      's2 has no replica left and can be switched off.',
    ]);
  });

  test('the kept events are bounded, and a reader that asks for more gets those that are kept', () => {
    const { time, observer, happenings } = world();
    for (let round = 0; round < 1_000; round++) {
      time.nowMs += 2_000;
      observer.marked(replica(2), 'gap', `from operation ${round}`);
    }
    assert.equal(happenings.last, 1_000);
    assert.equal(happenings.after(0).length, 256);
    assert.equal(happenings.after(998).length, 2);
    assert.equal(happenings.after(1_000).length, 0);
  });
});
