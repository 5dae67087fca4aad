import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type LeaseEventSink, LeaseWatch } from '../../server/named/lease-watches.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { LEASE_FREE, leaseChanges, type TimedLeaseState, timedLeaseState } from '../../wire/lease-changes.ts';
import type { LeaseEvent } from '../../wire/named-lease-api.ts';
import { STREAM_COMMENT, StreamEventReader, streamEventText } from '../../wire/sse.ts';

const NOW_MS = 10_000;
const held = (token: number, untilMs: number, keys = {}): TimedLeaseState => ({
  held: true,
  owner: `owner of ${token}`,
  token,
  untilMs,
  keys,
});
const kinds = (before: TimedLeaseState, after: TimedLeaseState): string[] =>
  leaseChanges('n', before, after, NOW_MS).map(({ kind, token }) => `${kind} ${token}`);

test('what changed between two states', () => {
  const free = (token: number) => ({ ...LEASE_FREE, token });
  assert.deepEqual(kinds(free(0), free(0)), []);
  assert.deepEqual(kinds(free(0), held(5, 12_000)), ['acquired 5']);
  assert.deepEqual(kinds(held(5, 12_000), free(5)), ['released 5']);
  assert.deepEqual(kinds(held(5, 9_999), free(5)), ['expired 5']);
  assert.deepEqual(kinds(held(5, 12_000), held(5, 15_000)), ['refreshed 5']);
  assert.deepEqual(kinds(held(5, 12_000), held(5, 12_010)), [], 'The same end, reported twice');
  assert.deepEqual(kinds(held(5, 12_000), held(5, 15_000, { a: '1' })), ['keys 5']);
  assert.deepEqual(kinds(held(5, 12_000), held(7, 15_000)), ['released 5', 'acquired 7']);
  assert.deepEqual(kinds(held(5, 9_000), held(7, 15_000)), ['expired 5', 'acquired 7']);
  assert.deepEqual(kinds(held(7, 12_000), held(5, 15_000)), [], 'An older state');
  assert.deepEqual(kinds(free(5), held(5, 15_000)), [], 'A late state of a holder whose end was reported');
});

test('the end of a lease is reported as a nearer server said, however late its beginning was reported', () => {
  let nowMs = NOW_MS;
  const told: LeaseEvent[] = [];
  const watch = new LeaseWatch('n', { write: (event) => told.push(event) > 0, end: () => {} }, () => nowMs);
  const relayed = (kind: LeaseEvent['kind'], token: number, remainingMs: number): void => {
    const isHeld = remainingMs > 0;
    const event = { kind, name: 'n', held: isHeld, owner: isHeld ? 'o' : null, token, keys: {}, remainingMs };
    watch.changed(timedLeaseState(event, nowMs));
  };
  relayed('acquired', 5, 2_000);
  // The first report was under way for longer than the second.
  nowMs += 1_900;
  relayed('expired', 5, 0);
  relayed('acquired', 7, 1_000);
  nowMs += 1_500;
  relayed('released', 7, 0);
  assert.deepEqual(
    told.map(({ kind, token }) => `${kind} ${token}`),
    ['state 5', 'expired 5', 'acquired 7', 'released 7'],
  );
  assert.ok(told.every((event) => !('end' in event)));
});

test('tokens that a watcher receives as acquired rise, in whatever order states arrive', () => {
  const state = fc.record({ token: fc.integer({ min: 1, max: 6 }), held: fc.boolean() });
  fc.assert(
    fc.property(fc.array(state), (states) => {
      const acquired: number[] = [];
      const sink: LeaseEventSink = {
        write: (event) => {
          if (event.kind === 'acquired') acquired.push(event.token);
          return true;
        },
        end: () => assert.fail('Nothing ends here'),
      };
      const watch = new LeaseWatch('n', sink, () => NOW_MS);
      for (const { token, held: isHeld } of states) {
        watch.changed(isHeld ? held(token, 12_000) : { ...LEASE_FREE, token });
      }
      assert.deepEqual(
        acquired,
        [...new Set(acquired)].toSorted((a, b) => a - b),
      );
    }),
  );
});

test('a slow watcher keeps two states in memory, and receives the newest when it reads again', () => {
  const told: LeaseEvent[] = [];
  let room = true;
  const watch = new LeaseWatch(
    'n',
    { write: (event) => told.push(event) > 0 && room, end: () => {} },
    () => NOW_MS,
  );
  room = false;
  watch.changed(held(1, 12_000));
  for (let token = 2; token <= 1_000; token++) watch.changed(held(token, 12_000));
  assert.deepEqual(
    told.map(({ kind, token }) => `${kind} ${token}`),
    ['state 1'],
  );
  room = true;
  watch.resume();
  assert.deepEqual(
    told.map(({ kind, token }) => `${kind} ${token}`),
    ['state 1', 'released 1', 'acquired 1000'],
  );
});

test('events of a stream are parsed, however the network cuts them', () => {
  const fields = { event: fc.constantFrom('state', 'keys'), data: fc.json() };
  const event = fc.record(fields, { noNullPrototype: true });
  fc.assert(
    fc.property(fc.array(event), fc.integer({ min: 1, max: 7 }), (events, piece) => {
      const text = events
        .map(({ event: kind, data }) => STREAM_COMMENT + streamEventText(kind, data))
        .join('');
      const reader = new StreamEventReader();
      const read = [];
      for (let at = 0; at < text.length; at += piece) read.push(...reader.push(text.slice(at, at + piece)));
      assert.deepEqual(read, events);
    }),
  );
  const endless = new StreamEventReader();
  assert.throws(() => {
    for (;;) endless.push('data: '.padEnd(10_000, 'x'));
  }, MalformedError);
});
