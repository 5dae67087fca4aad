/**
 * Goal: at no moment do two clients hold one lease, and fencing tokens rise.
 * Method: see `claim-run.ts`. `SEED=17 node --test test/simulation/claim.test.ts` plays one seed.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { isLong } from '../long.ts';
import { seedsRun } from './seeds.ts';

const { SEED: given } = process.env;
const firstSeed = Number(given ?? 1);
const count = given === undefined ? (isLong ? 1_000 : 200) : 1;

/** On average once per run at least. */
const FAULTS = ['crashes', 'pauses', 'cuts'];
/** On average once per four runs at least. */
const EVENTS = ['granted', 'refreshed', 'taken', 'lapsed', 'released', 'unknown', 'seen', 'begun', 'ended'];

test(`one client at most (${count} seeds from ${firstSeed} on)`, async (context) => {
  const jobs = Math.min(2, availableParallelism());
  const { failure, counts } = await seedsRun({ layers: ['claim'], firstSeed, count, jobs });
  assert.equal(failure, null);
  if (given !== undefined) return;
  context.diagnostic(JSON.stringify(counts.claim));
  for (const name of EVENTS) assert.ok((counts.claim[name] ?? 0) > count / 4, name);
  for (const name of FAULTS) assert.ok((counts.claim[name] ?? 0) > count, name);
});
