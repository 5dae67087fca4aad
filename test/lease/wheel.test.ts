/**
 * Goal: the wheel returns every row once it is due, never before, and at most one tick late.
 * Method: random insertions, moves, removals and steps of time, compared with a plain map that does the same.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { TimingWheel, type WheelLinks } from '../../lease/timing-wheel.ts';

const ROWS = 16;
const START_MS = 1_000_000.4;
const LATE_MS = 1.5;
/** The largest power of two that is at most `LATE_MS`. */
const TICK_MS = 1;

function wheelNew(): TimingWheel {
  const next = new Map<number, number>();
  const previous = new Map<number, number>();
  const due = new Map<number, number>();
  const links: WheelLinks = {
    next: (row) => next.get(row) ?? NaN,
    setNext: (row, to) => next.set(row, to),
    previous: (row) => previous.get(row) ?? NaN,
    setPrevious: (row, to) => previous.set(row, to),
    due: (row) => due.get(row) ?? NaN,
    setDue: (row, tick) => due.set(row, tick >>> 0),
  };
  return new TimingWheel(links, START_MS, LATE_MS);
}

const row = fc.nat(ROWS - 1);
/** Mostly near, sometimes further than the wheel reaches, and into the past. */
const ahead = fc.oneof(
  fc.integer({ min: -5, max: 40 }),
  fc.integer({ min: 0, max: 100_000 }),
  fc.double({ min: 0, max: 9, noNaN: true }),
);
const command = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), row, ahead }),
  fc.record({ kind: fc.constant('remove' as const), row }),
  fc.record({ kind: fc.constant('pass' as const), ms: fc.oneof(fc.nat(30), fc.nat(20_000)) }),
);

test('a row is returned when it is due, and once', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
      const wheel = wheelNew();
      const dueMs = new Map<number, number>();
      let nowMs = START_MS;
      for (const command of commands) {
        if (command.kind === 'put') {
          const atMs = nowMs + command.ahead;
          if (dueMs.has(command.row)) wheel.move(command.row, atMs);
          else wheel.insert(command.row, atMs, nowMs);
          dueMs.set(command.row, Math.max(nowMs, atMs));
        } else if (command.kind === 'remove') {
          if (dueMs.delete(command.row)) wheel.remove(command.row);
        } else {
          nowMs += command.ms;
          for (let taken = wheel.take(nowMs); taken !== null; taken = wheel.take(nowMs)) {
            const expected = dueMs.get(taken);
            assert.ok(expected !== undefined && expected <= nowMs, 'Only rows that are due and still there');
            dueMs.delete(taken);
          }
          for (const late of dueMs.values()) assert.ok(late > nowMs - 2 * TICK_MS, 'No row is forgotten');
        }
        const firstMs = wheel.firstMs();
        assert.equal(firstMs === null, dueMs.size === 0);
        if (firstMs !== null) {
          assert.ok(firstMs <= Math.min(...dueMs.values()) + 2 * TICK_MS, 'The wheel wakes in time');
        }
      }
    }),
    { numRuns: 500 },
  );
});

test('a wheel that is polled when it says so makes progress, and rarely wakes for what is far ahead', () => {
  const wheel = wheelNew();
  for (let at = 0; at < ROWS; at++) wheel.insert(at, START_MS + at * 1000.7, START_MS);
  let taken = 0;
  let woken = 0;
  let lastMs = START_MS;
  for (let firstMs = wheel.firstMs(); firstMs !== null; firstMs = wheel.firstMs()) {
    assert.ok(firstMs > lastMs, 'Time passes');
    lastMs = firstMs;
    woken++;
    while (wheel.take(firstMs) !== null) taken++;
  }
  assert.equal(taken, ROWS);
  assert.ok(woken < 2 * ROWS);
});

test('a postponed row stays until then', () => {
  const wheel = wheelNew();
  wheel.insert(3, START_MS + 10, START_MS);
  wheel.move(3, START_MS + 500);
  assert.equal(wheel.take(START_MS + 400), null);
  assert.equal(wheel.take(START_MS + 502), 3);
  assert.equal(wheel.firstMs(), null);
});

test('a wheel without rows for months is not behind', () => {
  const wheel = wheelNew();
  const laterMs = START_MS + 2 ** 40;
  wheel.insert(3, laterMs + 10, laterMs);
  assert.equal(wheel.take(laterMs + 5), null);
  assert.equal(wheel.take(laterMs + 12), 3);
});
