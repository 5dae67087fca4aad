/**
 * Goal: mounts as they ship, with the caches `strict` and `leases`, are one file system: what was closed is seen by each later
 * open, names are linearizable, and of those who create or link one name one succeeds, also under faults.
 * Method: a short form of `npm run simulate:mounts`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CACHES, runMounts } from './mounts-run.ts';

const SECONDS = 8;
const SEED = 1;
const OPERATIONS_MIN = 100;

for (const cache of CACHES) {
  test(`two mounts under faults, ${cache}`, { timeout: 600_000 }, async () => {
    const { violations, operations, coverage } = await runMounts({
      ...{ seed: SEED, cache, mounts: 2, forMs: SECONDS * 1_000 },
    });
    assert.deepEqual(
      violations,
      [],
      `npm run simulate:mounts -- --seed ${SEED} --cache ${cache} --for ${SECONDS}s`,
    );
    assert.ok(operations > OPERATIONS_MIN, `Only ${operations} operations were done`);
    for (const what of ['kill server', 'locked /created', 'locked /linked'])
      assert.ok(coverage.has(what), `There was no "${what}": ${[...coverage.keys()].join(', ')}`);
  });
}

test('a seed gives the same trace', { timeout: 600_000 }, async () => {
  const hashes: string[] = [];
  for (let time = 0; time < 2; time++) {
    const { traceHash } = await runMounts({ seed: 5, cache: 'leases', mounts: 2, forMs: 1_000 });
    hashes.push(traceHash);
  }
  assert.equal(hashes[1], hashes[0]);
});
