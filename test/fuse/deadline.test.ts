/** Goal: a call whose volume moves to another catalog waits longer than its usual limit, and no other call does. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MoveWait } from '../../client/transport/move-wait.ts';
import { withDeadline } from '../../fuse/deadline.ts';
import { PendingCalls } from '../../fuse/kernel/pending-calls.ts';
import { systemWorld } from '../../world/system-world.ts';

const LIMIT_MS = 1_000;

function started(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const waits = new MoveWait(world);
  const pass = async (ms: number): Promise<void> => {
    for (const untilMs = nowMs + ms; nowMs < untilMs; nowMs += 100) t.mock.timers.tick(100);
    await turn();
  };
  return { world, waits, pass, deadlineOf: (beganMs: number, ms: number) => waits.deadlineMs(beganMs, ms) };
}

test('a wait ends its limit after the latest answer that the volume moves', async (t) => {
  const { world, waits, pass, deadlineOf } = started(t);
  const never = new Promise<void>(() => undefined);
  const ended: string[] = [];
  const failed = (who: string) => () => ended.push(who);
  withDeadline(world, never, LIMIT_MS, 'A call').catch(failed('usual'));
  withDeadline(world, never, LIMIT_MS, 'A call', deadlineOf).catch(failed('moving'));
  await pass(900);
  waits.answered();
  await pass(900);
  assert.deepEqual(ended, ['usual']);
  waits.answered();
  await pass(900);
  assert.deepEqual(ended, ['usual']);
  await pass(200);
  assert.deepEqual(ended, ['usual', 'moving']);
});

test('the kernel gets ETIMEDOUT no earlier', async (t) => {
  const { world, waits, pass, deadlineOf } = started(t);
  const aborted: number[] = [];
  const calls = new PendingCalls(
    world,
    ({ header }) => aborted.push(header.unique),
    () => 'stopping',
  );
  const header = { opcode: 0, node: 7, uid: 0, gid: 0, pid: 4711, unique: 2 };
  const lateAtMs = (): number => deadlineOf(0, LIMIT_MS);
  calls.begin({ header, request: { kind: 'attributes' }, lateAtMs });
  await pass(900);
  waits.answered();
  await pass(900);
  assert.deepEqual(aborted, []);
  await pass(300);
  assert.deepEqual(aborted, [2]);
  calls.stop();
});
