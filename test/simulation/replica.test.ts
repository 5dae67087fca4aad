/**
 * Goal: groups of replicas, with the real cores of leases and replicas, lose no acknowledged operation, execute none
 * twice, and show the newest state in every read; after the faults they serve again and become equal.
 * Method: see `replica-group.ts` and `replica-run.ts`. `SEED=17` replays one seed with all events; `SEEDS=100000` runs
 * more than each commit does.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { isLong } from '../long.ts';
import type { Counts } from './layer-runs.ts';
import { coverageMissing, coverageTable } from './replica-coverage.ts';
import { replicaRun } from './replica-run.ts';
import { seedsRun } from './seeds.ts';

const LINES_SHOWN = 400;

const { SEED: given, SEEDS: many } = process.env;
const first = given === undefined ? 1 : Number(given);
const last = given === undefined ? Number(many ?? (isLong ? 600 : 200)) : first;

let met: Counts = {};

test(`replica groups keep their rules with failing servers and retrying clients (SEED=${first} to ${last})`, async () => {
  const { failure, counts } = await seedsRun({
    layers: ['replica'],
    firstSeed: first,
    count: last - first + 1,
    jobs: Math.min(2, availableParallelism()),
  });
  if (failure !== null) {
    const { lines } = replicaRun(failure.seed, true);
    assert.fail(`SEED=${failure.seed}: ${failure.violation}\n${lines.slice(-LINES_SHOWN).join('\n')}`);
  }
  met = counts.replica;
});

// A simulation in which nothing happens proves nothing.
test('the seeds together have all events that they must have', { skip: given !== undefined }, (context) => {
  for (const line of coverageTable(met).split('\n')) context.diagnostic(line);
  assert.deepEqual(coverageMissing(met), []);
});
