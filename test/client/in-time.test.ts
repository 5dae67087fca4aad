/** Goal: a wait ends at its limits, and what it waits for may fail later without harm. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { inTime } from '../../client/transport/in-time.ts';
import { patientWorld } from '../patient-world.ts';

const late = (): Error => new Error('late');

test('a wait ends by its signal, also by one that was aborted before', async () => {
  const limits = { deadlineMs: () => Infinity, signal: AbortSignal.abort(new Error('stopped')) };
  const { promise, reject } = Promise.withResolvers<void>();
  await assert.rejects(inTime(patientWorld, promise, limits, late), /stopped/);
  const done = Promise.resolve('done');
  await assert.rejects(inTime(patientWorld, done, limits, late), /stopped/);
  // This test fails if nothing has handled the rejection.
  reject(new Error('failed later'));
  await turn();
});
