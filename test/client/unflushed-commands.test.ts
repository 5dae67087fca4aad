/**
 * Goal: a flush names as few commands as suffice to know whether all are durable.
 * Method: the list alone.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnflushedCommands } from '../../client/cluster/unflushed-commands.ts';
import { REQUEST_WINDOW } from '../../client/transport/request-window.ts';
import { FLUSH_SESSIONS_MAX } from '../../wire/request-limits.ts';

test("a flush names each session's highest numbers; those answered during a flush wait for the next one", () => {
  const commands = new UnflushedCommands();
  for (let number = 1; number <= 1_000; number++) commands.answered(7, number);
  const [named] = commands.pages();
  assert.ok(named !== undefined);
  const numbers = Array.from({ length: REQUEST_WINDOW }, (_, place) => 1_001 - REQUEST_WINDOW + place);
  assert.deepEqual(
    named.map(({ session, numbers }) => [session, [...numbers].sort((one, other) => one - other)]),
    [[7, numbers]],
  );
  commands.answered(7, 1_001);
  commands.flushed(named);
  assert.deepEqual(commands.pages(), [[{ session: 7, numbers: [1_001] }]]);
  assert.equal(commands.isEmpty, false);
  commands.flushed([{ session: 7, numbers: [1_001] }]);
  assert.equal(commands.isEmpty, true);
});

test('a request names no more sessions than it may; a client without commands flushes, too', () => {
  const commands = new UnflushedCommands();
  assert.deepEqual(commands.pages(), [[]]);
  for (let session = 1; session <= FLUSH_SESSIONS_MAX + 1; session++) commands.answered(session, 1);
  assert.deepEqual(
    commands.pages().map(({ length }) => length),
    [FLUSH_SESSIONS_MAX, 1],
  );
});

/** Answers as the catalog does, which remembers twice the window below the highest number that it has executed. */
function missingOf(commands: UnflushedCommands, highest: number, lostFrom = Number.POSITIVE_INFINITY) {
  const [named = []] = commands.pages();
  const missing = named.flatMap(({ session, numbers }) => {
    const lacks = numbers.filter((number) => number <= highest - 2 * REQUEST_WINDOW || number >= lostFrom);
    return lacks.length === 0 ? [] : [{ session, numbers: lacks }];
  });
  return { named, missing };
}

test('commands that were forgotten while a flush was on its way are covered by those answered meanwhile', () => {
  const commands = new UnflushedCommands();
  for (let number = 1; number <= 10; number++) commands.answered(7, number);
  const early = missingOf(commands, 1_000);
  for (let number = 11; number <= 1_000; number++) commands.answered(7, number);
  const { areLost, again } = commands.flushed(early.named, early.missing);
  assert.equal(areLost, false);
  assert.deepEqual(again, commands.pages()[0]);
  const late = missingOf(commands, 1_000);
  assert.deepEqual(commands.flushed(late.named, late.missing), { areLost: false, again: [] });
  assert.equal(commands.isEmpty, true);
});

test('lost commands are reported also if newer ones were answered meanwhile', () => {
  const commands = new UnflushedCommands();
  for (let number = 1; number <= 10; number++) commands.answered(7, number);
  const early = missingOf(commands, 20, 5);
  for (let number = 11; number <= 20; number++) commands.answered(7, number);
  assert.equal(commands.flushed(early.named, early.missing).areLost, false);
  const late = missingOf(commands, 20, 5);
  assert.deepEqual(commands.flushed(late.named, late.missing), { areLost: true, again: [] });
});

test('of two concurrent flushes both find lost commands, and neither reports as lost what the other has covered', () => {
  for (const isLost of [false, true]) {
    const commands = new UnflushedCommands();
    commands.answered(7, 1);
    const slow = missingOf(commands, 1_000);
    for (let number = 2; number <= 1_000; number++) commands.answered(7, number);
    const fast = missingOf(commands, 1_000, isLost ? 1 : undefined);
    assert.equal(commands.flushed(fast.named, fast.missing).areLost, isLost);
    assert.deepEqual(commands.flushed(slow.named, slow.missing), { areLost: isLost, again: [] });
  }
});

test('no number is sent that makes the catalog forget what a flush names', () => {
  const commands = new UnflushedCommands();
  assert.equal(commands.numberMaxOf(7), Number.POSITIVE_INFINITY);
  for (const number of [3, 1, 2]) commands.answered(7, number);
  const { missing } = missingOf(commands, commands.numberMaxOf(7));
  assert.deepEqual(missing, []);
});
