import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sequencer } from '../../base/sequencer.ts';

test('an answer that was requested before a change of its subject is invalid; answers about other subjects are valid', () => {
  const sequencer = new Sequencer<number>();
  const before = sequencer.request();
  sequencer.changed(1);
  assert.deepEqual([sequencer.isValid(before, 1), sequencer.isValid(before, 2)], [false, true]);
  assert.equal(sequencer.isValid(sequencer.request(), 1), true);
  sequencer.changedAll();
  assert.equal(sequencer.isValid(before, 2), false);
});

test('an answer that was requested during a change is invalid, also after the change', () => {
  const sequencer = new Sequencer<string>();
  sequencer.begin('a');
  sequencer.begin('a');
  const during = sequencer.request();
  assert.deepEqual([sequencer.isValid(during, 'a'), sequencer.isUnchanged(during, 'a')], [false, true]);
  sequencer.end('a');
  assert.deepEqual([sequencer.changing('a'), sequencer.isValid(sequencer.request(), 'a')], [1, false]);
  sequencer.end('a');
  assert.deepEqual(
    [sequencer.isValid(during, 'a'), sequencer.isValid(sequencer.request(), 'a')],
    [false, true],
  );
});

test('if more subjects change than are remembered, no answer from before the forgotten changes is valid', () => {
  const sequencer = new Sequencer<number>(undefined, 2);
  const before = sequencer.request();
  sequencer.changed(1);
  const between = sequencer.request();
  for (const key of [2, 3]) sequencer.changed(key);
  assert.deepEqual([sequencer.isValid(before, 1), sequencer.isValid(before, 9)], [false, false]);
  assert.deepEqual([sequencer.isValid(between, 1), sequencer.isValid(between, 2)], [true, false]);
});

test('with a clock, sequence numbers are its milliseconds, and no two are equal', () => {
  let nowMs = 5;
  const sequencer = new Sequencer<number>(() => nowMs);
  assert.equal(sequencer.request(), 5);
  const second = sequencer.request();
  assert.ok(second > 5 && second < 5.001);
  nowMs = 6;
  assert.equal(sequencer.request(), 6);
});
