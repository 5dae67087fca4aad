/**
 * Goal: rows that wait for an attempt get their turn in the order of arrival.
 * Method: random commands on the limit and on a list.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AttemptLimit } from '../../lease/attempt-limit.ts';

const SLOW_MS = 1_000;
/** Above the limit, so that attempts wait. */
const ATTEMPTS = 3_000;

test('the row that has waited longest is next, whatever left the queue in between', () => {
  const command = fc.record({
    kind: fc.constantFrom('queue' as const, 'queue' as const, 'unqueue' as const, 'take' as const),
    row: fc.nat(20),
  });
  fc.assert(
    fc.property(fc.array(command, { maxLength: 300 }), (commands) => {
      const limit = new AttemptLimit(SLOW_MS);
      let waiting: number[] = [];
      for (const { kind, row } of commands) {
        if (kind === 'take') assert.equal(limit.takeQueued(), waiting.shift() ?? null);
        else if (kind === 'queue') {
          limit.queue(row);
          if (!waiting.includes(row)) waiting.push(row);
        } else {
          limit.unqueue(row);
          waiting = waiting.filter((other) => other !== row);
        }
      }
      for (const row of waiting) assert.equal(limit.takeQueued(), row);
      assert.equal(limit.takeQueued(), null);
    }),
    { numRuns: 500 },
  );
});

test('no row is taken while the limit is reached', () => {
  const limit = new AttemptLimit(SLOW_MS);
  let begun = 0;
  for (; begun < ATTEMPTS && !limit.isFull; begun++) limit.begin();
  assert.ok(limit.isFull);
  limit.queue(7);
  assert.equal(limit.takeQueued(), null);
  limit.end();
  assert.equal(limit.takeQueued(), 7);
});
