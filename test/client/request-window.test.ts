/**
 * Goal: a request waits for its number no longer than its caller, and takes none from those that continue to wait.
 * Method: the window by itself.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { RequestWindow } from '../../client/transport/request-window.ts';
import { systemWorld } from '../../world/system-world.ts';

const UNLIMITED = { deadlineMs: () => Number.POSITIVE_INFINITY };

/** A full window: its first number is in use. */
async function full(): Promise<RequestWindow> {
  const window = new RequestWindow(systemWorld);
  const numbers: number[] = [];
  for (let count = 0; count < 64; count++) numbers.push(await window.acquire(UNLIMITED));
  for (const number of numbers.slice(1)) window.release(number);
  return window;
}

test("the wait for a number ends with the request's time limit", async () => {
  const window = await full();
  const untilMs = systemWorld.nowMs() + 10;
  await assert.rejects(
    window.acquire({ deadlineMs: () => untilMs }),
    (error) => error instanceof ServiceError && error.code === 'no-majority',
  );
  window.release(1);
  assert.equal(await window.acquire(UNLIMITED), 65);
});

test('a wait whose deadline has moved meanwhile continues', async () => {
  const window = await full();
  const passed = Promise.withResolvers<void>();
  const deadlinesMs = [systemWorld.nowMs() + 10];
  const deadlineMs = (): number => {
    const ms = deadlinesMs.shift();
    if (ms === undefined) passed.resolve();
    return ms ?? Number.POSITIVE_INFINITY;
  };
  const waiting = window.acquire({ deadlineMs });
  await passed.promise;
  window.release(1);
  assert.equal(await waiting, 65);
});

test("a signal ends only its own request's wait", async () => {
  const window = await full();
  const controller = new AbortController();
  const aborted = window.acquire({ ...UNLIMITED, signal: controller.signal });
  const waiting = window.acquire(UNLIMITED);
  controller.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  window.release(1);
  assert.equal(await waiting, 65);
});

test('a number that is given at the very moment at which the wait ends is returned', async () => {
  const window = await full();
  const controller = new AbortController();
  const aborted = window.acquire({ ...UNLIMITED, signal: controller.signal });
  controller.abort(new Error('enough'));
  window.release(1);
  await assert.rejects(aborted, /enough/);
  assert.equal(window.answered, 65);
});
