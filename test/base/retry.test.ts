import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Retry, type RetryOptions, type RetryOutcome, type RetryStep } from '../../base/retry.ts';

const ASK: RetryStep = { kind: 'ask' };
const FINAL: RetryStep = { kind: 'fail', isFinal: true };
const LATE: RetryStep = { kind: 'fail', isFinal: false };
const wait = (ms: number): RetryStep => ({ kind: 'wait', ms });
const elsewhere = (movesMax: number, otherwise: 'final' | 'later' = 'later'): RetryOutcome => ({
  kind: 'elsewhere',
  movesMax,
  otherwise,
});

/** Pauses of 10 to 40 ms whose random factors are 0, 1/2, 0, 1/2 …, and a deadline at 1000 ms. */
type Turn = readonly [atMs: number, outcome: RetryOutcome, step: RetryStep];

const TABLE: Readonly<Record<string, readonly [lastWait: RetryOptions['lastWait'], ...turns: Turn[]]>> = {
  'a final answer ends it': ['fail', [0, { kind: 'final' }, FINAL]],
  'a request that was put right is sent again, in time': [
    'fail',
    [0, { kind: 'again' }, ASK],
    [999, { kind: 'again' }, ASK],
    [1000, { kind: 'again' }, LATE],
  ],
  'waits double up to the largest, times their factor': [
    'fail',
    [0, { kind: 'later' }, wait(5)],
    [10, { kind: 'later' }, wait(20)],
    [40, { kind: 'later' }, wait(20)],
    [90, { kind: 'later' }, wait(40)],
    [90, { kind: 'later' }, wait(20)],
  ],
  'a wait is at least as long as it was asked for': [
    'fail',
    [0, { kind: 'later', leastMs: 300 }, wait(300)],
    [300, { kind: 'later', leastMs: 1 }, wait(20)],
  ],
  'other servers are asked at once, so many in a row': [
    'fail',
    [0, elsewhere(2), ASK],
    [0, elsewhere(2), ASK],
    [0, elsewhere(2), wait(5)],
    [5, elsewhere(2), ASK],
  ],
  'moves of two kinds count together': [
    'fail',
    [0, elsewhere(3), ASK],
    [0, elsewhere(1), wait(5)],
    [5, elsewhere(1), ASK],
  ],
  'where no other server is left it may be over': [
    'fail',
    [0, elsewhere(1, 'final'), ASK],
    [0, elsewhere(1, 'final'), FINAL],
  ],
  'no server is asked after the deadline': ['fail', [1000, elsewhere(3), LATE]],
  'a wait up to the deadline is not begun': ['fail', [995, { kind: 'later' }, LATE]],
  'a last wait is cut at the deadline for a last attempt': [
    'cut',
    [990, { kind: 'later' }, wait(5)],
    [995, { kind: 'later' }, wait(5)],
    [1000, { kind: 'later' }, LATE],
  ],
};

for (const [title, [lastWait, ...turns]] of Object.entries(TABLE)) {
  test(title, () => {
    let draws = 0;
    const pace = { firstMs: 10, largestMs: 40, spread: [0.5, 1.5] } as const;
    const retry = new Retry({ deadlineMs: () => 1000, pace, lastWait }, () => (draws++ % 2) / 2);
    for (const [place, [atMs, outcome, step]] of turns.entries())
      assert.deepEqual(retry.next(outcome, atMs), step, `pause ${place + 1}`);
  });
}

test('a caller whose last pause is cut by the deadline draws no random number', () => {
  const pace = { firstMs: 10, largestMs: 40, spread: [0.5, 1] } as const;
  const retry = new Retry({ deadlineMs: () => 1, pace, lastWait: 'cut' }, () => assert.fail('drawn'));
  assert.deepEqual(retry.next({ kind: 'later' }, 1), LATE);
});
