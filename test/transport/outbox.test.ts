import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { decodeFrame } from '../../server/transport/frame.ts';
import { DEFERRED_MS_MAX, Outbox } from '../../server/transport/outbox.ts';
import { CHANNEL_REPLICA } from '../../server/transport/transport.ts';
import { systemWorld } from '../../world/system-world.ts';

/** An outbox whose time does not pass, and the frames that have left it, as the first bytes of their messages. */
function stilled(context: TestContext): {
  outbox: Outbox;
  frames: number[][];
  push(number: number, deferrable?: boolean, bytes?: number): void;
} {
  context.mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] });
  const frames: number[][] = [];
  const sink = {
    queuedBytes: () => 0,
    sendFrame(fragments: readonly Uint8Array[]): void {
      frames.push(decodeFrame(fragments).map(({ payload }) => payload[0] as number));
    },
  };
  const outbox = new Outbox(systemWorld, sink, 1 << 20);
  return {
    outbox,
    frames,
    push(number, deferrable = false, bytes = 4) {
      const payload = new Uint8Array(bytes).fill(number);
      assert.equal(outbox.push({ channel: CHANNEL_REPLICA, payload }, deferrable), 'queued');
    },
  };
}

test('a message that can be delayed leaves with the next that cannot, and keeps its place', (context) => {
  const { frames, push } = stilled(context);
  push(1, true);
  context.mock.timers.tick(DEFERRED_MS_MAX - 1);
  push(2, true);
  push(3);
  push(4, true);
  assert.deepEqual(frames, []);
  context.mock.timers.tick(0);
  assert.deepEqual(frames, [[1, 2, 3, 4]]);
  // Nothing is left that would become due.
  context.mock.timers.tick(DEFERRED_MS_MAX);
  assert.deepEqual(frames, [[1, 2, 3, 4]]);
});

test('a delayed message alone leaves after its time, counted from the first that waits', (context) => {
  const { frames, push } = stilled(context);
  push(1, true);
  context.mock.timers.tick(DEFERRED_MS_MAX - 1);
  push(2, true);
  assert.deepEqual(frames, []);
  context.mock.timers.tick(1);
  assert.deepEqual(frames, [[1, 2]]);
  push(3, true);
  context.mock.timers.tick(DEFERRED_MS_MAX);
  assert.deepEqual(frames, [[1, 2], [3]]);
});

test('a large message takes along what waits before it', (context) => {
  const { frames, push } = stilled(context);
  push(1, true);
  push(2, true, 64 * 1024);
  assert.deepEqual(frames, [[1], [2]]);
});

test('what waits when the connection ends is lost with it', (context) => {
  const { outbox, frames, push } = stilled(context);
  push(1, true);
  outbox.close();
  context.mock.timers.tick(DEFERRED_MS_MAX);
  assert.deepEqual(frames, []);
});

test('what waits when the server ends in order is sent', (context) => {
  const { outbox, frames, push } = stilled(context);
  push(1, true);
  outbox.flush();
  assert.deepEqual(frames, [[1]]);
});
