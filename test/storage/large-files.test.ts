import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROWS_PER_SLICE } from '../../server/storage/slices.ts';
import { largeOperations, withLargeReplica } from './large-operations.ts';
import { LARGE_OBJECT_BYTES, type TickCosts, tickCosts } from './large-replica.ts';

const GIB = 1024 ** 3;
const DENSE_BYTES = 20 * GIB;
/** A tick up to this is short, even if all of them are short together. */
const TICK_MS_MAX = 20;
/** Operations whose costs do not depend on the number of objects. */
const CONSTANT = ['install an epoch', 'find what all bytes depend on'];

/**
 * Goal: work on all objects of a file occupies the event loop in short slices, and holes cost nothing.
 * Method: replicas whose index has many rows. The CPU time of the longest tick is compared with that of all ticks,
 * because times alone say nothing on a busy machine. `npm run bench:large-files` prints them for 200 GiB.
 */
for (const { name, run } of largeOperations) {
  test(`${name}: a large file does not block a tick`, async () => {
    const costs = async (sizeBytes: number, denseBytes: number): Promise<TickCosts> => {
      let measured: TickCosts | null = null;
      await withLargeReplica(sizeBytes, denseBytes, async (replica) => {
        measured = await tickCosts(() => run(replica));
      });
      assert.ok(measured !== null);
      return measured;
    };
    const dense = await costs(DENSE_BYTES, DENSE_BYTES);
    const rows = DENSE_BYTES / LARGE_OBJECT_BYTES;
    if (!CONSTANT.includes(name)) {
      assert.ok(dense.ticks >= rows / ROWS_PER_SLICE / 5, `${dense.ticks} ticks for ${rows} objects`);
      const boundMs = Math.max(TICK_MS_MAX, dense.totalMs / 6);
      assert.ok(dense.longestMs < boundMs, `${dense.longestMs} of ${dense.totalMs} ms in one tick`);
    }
    const sparse = await costs(2048 * GIB, 0);
    assert.ok(
      sparse.totalMs < dense.totalMs / 3 || sparse.totalMs < TICK_MS_MAX,
      `${sparse.totalMs} ms for holes`,
    );
  });
}
