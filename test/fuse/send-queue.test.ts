/** Goal: operations are sent in batches as their sender says, and all kinds count in one budget. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Budget } from '../../fuse/pending/budget.ts';
import { type Sender, SendQueue } from '../../fuse/pending/send-queue.ts';
import { FORGETS_MAX } from '../../wire/request-limits.ts';
import { systemWorld } from '../../world/system-world.ts';

interface Op {
  readonly parent: number;
  readonly bytes: number;
}

/** A queue of one kind, and its requests; each is answered when the test calls `answer`. */
function started(row: Partial<Sender<Op>>) {
  const requests: { readonly batch: readonly Op[]; readonly answer: () => void }[] = [];
  const queue = new SendQueue<Op>({
    ...{ requestsMax: 1, countMax: 100, ...row },
    send: (batch) => new Promise((answer) => requests.push({ batch, answer })),
  });
  const add = (bytes: number, parent = 1): void => queue.add({ parent, bytes });
  const hurry = (): void => queue.sendNow();
  const sizes = (): number[][] => requests.map(({ batch }) => batch.map(({ bytes }) => bytes));
  return { add, hurry, requests, sizes };
}

test('the first operation is sent at once, and the next ones gather until it is answered', async () => {
  const { add, requests, sizes } = started({});
  for (const bytes of [1, 2, 3]) add(bytes);
  assert.deepEqual(sizes(), [[1]]);
  requests[0]?.answer();
  await turn();
  assert.deepEqual(sizes(), [[1], [2, 3]]);
});

test('a request is sent after a pause, unless many operations wait or a caller waits for one', async () => {
  let nowMs = 0;
  let due: { atMs: number; run: () => void } | null = null;
  const after = (delayMs: number, run: () => void) => {
    due = { atMs: nowMs + delayMs, run };
    return { cancel: () => (due = null), unref: assert.fail };
  };
  const world = { ...systemWorld, nowMs: () => nowMs, after };
  const advance = (byMs: number): void => {
    nowMs += byMs;
    if (due === null || due.atMs > nowMs) return;
    const { run } = due;
    due = null;
    run();
  };
  const { add, hurry, requests, sizes } = started({ pause: { world, ms: 10, countMax: 3 } });
  const answered = async (): Promise<void> => {
    requests.at(-1)?.answer();
    await turn();
  };
  add(1);
  assert.deepEqual(sizes(), [[1]], 'No request was sent before');
  add(2);
  await answered();
  assert.equal(sizes().length, 1);
  advance(9);
  assert.equal(sizes().length, 1);
  advance(1);
  assert.deepEqual(sizes()[1], [2]);
  await answered();
  for (const bytes of [3, 4, 5]) add(bytes);
  assert.deepEqual(sizes()[2], [3, 4, 5], 'Many operations wait');
  add(6);
  hurry();
  add(7);
  await answered();
  assert.deepEqual(sizes()[3], [6, 7], 'A caller waits, whatever is added later');
  add(8);
  await answered();
  assert.equal(sizes().length, 4, 'Only for operations that were added before');
  advance(10);
  assert.deepEqual(sizes()[4], [8]);
});

test('operations of one tick are one request, and many bytes do not wait for the answer to another', async () => {
  const { add, sizes } = started({ gathersTick: true, requestsMax: 2, gatheredBytes: 10 });
  for (const bytes of [1, 2]) add(bytes);
  assert.deepEqual(sizes(), []);
  await turn();
  add(9);
  await turn();
  assert.deepEqual(sizes(), [[1, 2]], 'They gather');
  add(1);
  await turn();
  assert.deepEqual(sizes(), [
    [1, 2],
    [9, 1],
  ]);
  add(100);
  await turn();
  assert.equal(sizes().length, 2, 'No more requests at a time');
});

test('a request has at most so many operations, bytes and directories, and only operations that are alike', async () => {
  const isAlike = (one: Op, other: Op): boolean => one.bytes % 2 === other.bytes % 2;
  const { add, requests, sizes } = started({ countMax: 3, bytesMax: 10, isAlike });
  add(1);
  for (const bytes of [2, 4, 3, 6, 2, 0]) add(bytes);
  for (let request = 0; request < 4; request++) {
    requests[request]?.answer();
    await turn();
  }
  assert.deepEqual(sizes(), [[1], [2, 4, 2], [3], [6, 0]]);
  const wide = started({});
  wide.add(1);
  for (let parent = 0; parent <= FORGETS_MAX; parent++) wide.add(1, parent);
  wide.requests[0]?.answer();
  await turn();
  assert.equal(wide.requests[1]?.batch.length, FORGETS_MAX);
});

test('the bytes of a share count in the whole budget, also those admitted after a release', async () => {
  const whole = new Budget(systemWorld, { bytesMax: 10 });
  const creates = whole.share({ countMax: 2, bytesMax: 8 });
  const writes = whole.share({ bytesMax: 10 });
  creates.add(1, 6);
  assert.deepEqual([creates.isFull, whole.bytes, writes.tryReserve(5)], [false, 6, false]);
  let isAdmitted = false;
  const waiting = writes.reserve(5, 60_000).then(() => {
    isAdmitted = true;
  });
  await turn();
  assert.deepEqual([isAdmitted, writes.bytes, whole.bytes], [false, 5, 6]);
  const released = creates.untilReleased();
  creates.release(6, 1);
  await Promise.all([waiting, released]);
  assert.deepEqual([writes.bytes, whole.bytes], [5, 5]);
  creates.add(2, 0);
  assert.ok(creates.isFull, 'By the number of operations');
  creates.release(0, 2);
  creates.add(0, 6);
  assert.ok(creates.isFull, 'The whole budget is over its limit');
});

test('bytes that are not admitted in time are released again', async () => {
  const whole = new Budget(systemWorld, { bytesMax: 10 });
  const file = whole.share({ bytesMax: 10 });
  whole.add(0, 10);
  await assert.rejects(file.reserve(5, 10), { errno: 'ETIMEDOUT' });
  assert.equal(file.bytes, 0);
  whole.release(10);
  assert.ok(file.tryReserve(10));
});
