import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TimedOutCallers } from '../../fuse/transport/timed-out-callers.ts';
import { systemWorld } from '../../world/system-world.ts';

test('a caller that has waited for the root for its whole time limit is noted, and no other caller', () => {
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
