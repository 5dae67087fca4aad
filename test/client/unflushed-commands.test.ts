/**
 * Goal: a flush names as few commands as tell whether all are there.
 * Method: the list alone.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { REQUEST_WINDOW } from '../../client/request-window.ts';
import { UnflushedCommands } from '../../client/unflushed-commands.ts';
import { FLUSH_SESSIONS_MAX } from '../../wire/request-limits.ts';

test('of each session the latest numbers are named, and what is answered during a flush is left for the next one', () => {
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

test('a request takes no more sessions than it may, and a client without commands flushes, too', () => {
  const commands = new UnflushedCommands();
  assert.deepEqual(commands.pages(), [[]]);
  for (let session = 1; session <= FLUSH_SESSIONS_MAX + 1; session++) commands.answered(session, 1);
  assert.deepEqual(
    commands.pages().map(({ length }) => length),
    [FLUSH_SESSIONS_MAX, 1],
  );
});
