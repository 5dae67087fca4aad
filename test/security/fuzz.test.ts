/**
 * Goal: no input ends a server, is accepted by mistake, or leaves memory or handles.
 * Method: 10,000 inputs of one seed; `SEED=17 node --test test/security/fuzz.test.ts` plays another, `npm run fuzz`
 * many.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { fuzz } from './fuzz.ts';

const SEED = Number(process.env.SEED ?? 1);
const COUNT = 10_000;
/** To load all code, fill the bounded caches, and let the compiler settle. */
const WARM_UP = 3_000;
const GROWTH_BYTES_MAX = 12 * 2 ** 20;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function settled(): { readonly heapBytes: number; readonly handles: number } {
  collect();
  collect();
  return { heapBytes: process.memoryUsage().heapUsed, handles: process.getActiveResourcesInfo().length };
}

test(`${COUNT} inputs are refused in the specified way, and leave nothing (SEED=${SEED})`, async () => {
  await fuzz(SEED + COUNT, WARM_UP);
  const before = settled();
  const { inputs, byTarget } = await fuzz(SEED, COUNT);
  const after = settled();
  assert.equal(inputs, COUNT);
  for (const name of ['frames', 'handshakes', 'credentials', 'configurations', 'requests', 'garbage']) {
    assert.ok((byTarget[name] ?? 0) > 300, `${name} had its share`);
  }
  assert.ok(after.handles <= before.handles, `${before.handles} handles became ${after.handles}`);
  const grownBytes = after.heapBytes - before.heapBytes;
  assert.ok(grownBytes < GROWTH_BYTES_MAX, `the heap has grown by ${grownBytes} bytes`);
});
