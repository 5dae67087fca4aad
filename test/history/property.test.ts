import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Prng } from '../../base/prng.ts';
import { isLong } from '../long.ts';
import { isLinearizable } from './brute-force.ts';
import { keyCheck } from './checker.ts';
import { drawHistory, type HistoryShape, mutateAnswer, SHAPES } from './drawn-history.ts';
import { type Operation, operationFormat, operationParse } from './operation.ts';

const RUNS = isLong ? 1_500 : 400;

function agree(history: readonly Operation[]): boolean {
  const expected = isLinearizable(history);
  const { kind } = keyCheck(history);
  assert.equal(kind, expected ? 'linearizable' : 'violation', history.map(operationFormat).join('\n'));
  return expected;
}

for (const shape of SHAPES) {
  test(`agrees with the definition, ${shape}: histories of a correct store, and with one answer changed`, () => {
    const seen = { good: 0, bad: 0 };
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 7 }), (seed, count) => {
        const prng = new Prng(seed);
        const history = drawHistory(shape, { prng, count, clients: 3 });
        assert.equal(
          agree(history),
          true,
          'A store that executes one operation after the other is linearizable',
        );
        const changed = mutateAnswer(history, prng);
        if (changed !== null) seen[agree(changed) ? 'good' : 'bad']++;
      }),
      { numRuns: RUNS },
    );
    assert.ok(seen.bad > RUNS / 10 && seen.good > RUNS / 50, JSON.stringify(seen));
  });

  test(`agrees with the definition, ${shape}: random answers`, () => {
    const seen = { good: 0, bad: 0 };
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 5 }), (seed, count) => {
        const prng = new Prng(seed);
        let history: readonly Operation[] = drawHistory(shape, { prng, count, clients: 3 });
        for (let times = 0; times < 3; times++) history = mutateAnswer(history, prng) ?? history;
        seen[agree(history) ? 'good' : 'bad']++;
      }),
      { numRuns: RUNS },
    );
    assert.ok(seen.bad > 0 && seen.good > 0, JSON.stringify(seen));
  });
}

test('lines are parsed back to what was written', () => {
  fc.assert(
    fc.property(fc.integer(), fc.constantFrom<HistoryShape>(...SHAPES), (seed, shape) => {
      for (const operation of drawHistory(shape, { prng: new Prng(seed), count: 9, clients: 3 })) {
        assert.deepEqual(operationParse(operationFormat(operation)), operation);
      }
    }),
    { numRuns: 200 },
  );
});

test('a hundred thousand operations over many keys are judged, right and wrong ones', () => {
  const prng = new Prng(1);
  const histories = Array.from({ length: 200 }, (_, index) => {
    const shape = SHAPES[index % SHAPES.length] as HistoryShape;
    return drawHistory(shape, { prng, count: 500, clients: 5, unknownRate: 0.01, number: index });
  });
  assert.equal(histories.flat().length, 100_000);
  for (const history of histories) {
    assert.equal(keyCheck(history).kind, 'linearizable', history[0]?.key);
  }
  const kinds = histories.map((history) => keyCheck(mutateAnswer(history, prng) ?? history).kind);
  assert.ok(kinds.filter((kind) => kind === 'violation').length > 100, 'most changed answers are noticed');
  assert.ok(!kinds.includes('undecided'));
});
