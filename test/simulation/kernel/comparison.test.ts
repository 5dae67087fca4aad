/**
 * Goal: the model of the kernel answers programs as Linux does, and sends the mount the same requests.
 * Method: a short form of `npm run simulate:kernel`: calls drawn from a seed, made on both.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { noMount } from '../../fuse/mounted.ts';
import { noPrograms } from '../../posix/program.ts';
import { differenceOf } from './comparison.ts';

const STEPS = 150;
const FOR_EVER_MS = 3_600_000;
/** Names and attributes are never cached, or always: anything between depends on time. */
const FORMS = [
  { over: 'kernel', ageMaxMs: FOR_EVER_MS, seeds: [1, 2] },
  { over: 'kernel', ageMaxMs: 0, seeds: [3, 4] },
  // The requests of a path-based library are not compared.
  { over: 'native', ageMaxMs: 0, seeds: [5] },
] as const;

const noProgram = await noPrograms();

for (const { over, ageMaxMs, seeds } of FORMS) {
  const skip = noProgram || (over === 'kernel' ? (kernelTransportObstacle() ?? false) : noMount);
  for (const seed of seeds) {
    test(`the model and Linux, ${over}, ${ageMaxMs} ms (SEED=${seed})`, {
      skip,
      timeout: 300_000,
    }, async () => {
      assert.equal(await differenceOf({ seed, steps: STEPS, over, ageMaxMs }), null);
    });
  }
}
