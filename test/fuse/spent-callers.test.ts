import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TimedOutCallers } from '../../fuse/transport/spent-callers.ts';
import { systemWorld } from '../../world/system-world.ts';

test('who has waited for the root for the whole time has none left, and nobody else is meant', () => {
  const limitMs = 60_000;
  const callers = new TimedOutCallers(systemWorld, limitMs);
  const longAgoMs = systemWorld.nowMs() - limitMs;
  callers.rootAnswered(0, longAgoMs);
  callers.rootAnswered(7, longAgoMs);
  callers.rootAnswered(8, systemWorld.nowMs());
  assert.deepEqual(
    [0, 7, 8].filter((pid) => callers.has(pid)),
    [7],
  );
});
