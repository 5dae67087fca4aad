/**
 * Goal: at no moment do two clients hold one lease, and fencing tokens rise.
 * Method: see `claim-run.ts`. `SEED=17 node --test test/simulation/claim.test.ts` plays one seed.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { campaign } from './claim-campaign.ts';
import { type ClaimCounts, claimRun } from './claim-run.ts';

const SEEDS = campaign.seedsPlayed ?? 0;
const PER_TEST = 100;

const given = process.env.SEED;
const counts: ClaimCounts = {
  granted: 0,
  refreshed: 0,
  taken: 0,
  lapsed: 0,
  released: 0,
  unknown: 0,
  seen: 0,
  begun: 0,
  ended: 0,
};
const faults = { crashes: 0, pauses: 0, cuts: 0 };

function play(seed: number): void {
  const run = claimRun(seed);
  assert.equal(run.violation, null, `SEED=${seed}`);
  for (const kind of Object.keys(counts) as (keyof ClaimCounts)[]) counts[kind] += run.counts[kind];
  for (const kind of Object.keys(faults) as (keyof typeof faults)[]) faults[kind] += run.world.counts[kind];
}

if (given !== undefined) {
  test(`one client at most (SEED=${given})`, () => play(Number(given)));
} else {
  for (let first = 1; first <= SEEDS; first += PER_TEST) {
    test(`one client at most (seeds ${first} to ${first + PER_TEST - 1})`, () => {
      for (let seed = first; seed < first + PER_TEST; seed++) play(seed);
    });
  }

  test('the seeds went where it hurts', (context) => {
    context.diagnostic(JSON.stringify({ ...counts, ...faults }));
    for (const [kind, count] of Object.entries(counts)) assert.ok(count > SEEDS / 4, `${kind}: ${count}`);
    for (const [kind, count] of Object.entries(faults)) assert.ok(count > SEEDS, `${kind}: ${count}`);
  });
}
