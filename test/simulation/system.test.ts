/**
 * Goal: whole servers, with real lease and replica cores, lose no acknowledged operation, do none
 * twice, and show every client a history that one order of operations explains; and once the faults
 * are over, they serve again and become equal.
 * Method: see `system-world.ts` and `system-run.ts`. A failure names its seed: `SEED=17` replays it
 * alone, event for event, and `SEEDS=100000` looks further than every commit does.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { campaign } from './replica-world.ts';
import { seedsRun } from './seeds.ts';
import { SystemCoverage } from './system-coverage.ts';
import { runSystem } from './system-run.ts';

const LINES_SHOWN = 400;

const { SEED: given, SEEDS: many } = process.env;
const first = given === undefined ? 1 : Number(given);
const last = given === undefined ? Number(many ?? campaign.seedsPlayed) : first;

for (const [name, scenario] of Object.entries(campaign.scenarios)) {
  test(`directed: ${name}`, () => assert.equal(scenario(), null));
}

const coverage = new SystemCoverage();

test(`servers that fail, clients that retry (SEED=${first} to ${last})`, async () => {
  const { failure, sum, counts } = await seedsRun({
    layers: ['replica'],
    options: {},
    firstSeed: first,
    count: last - first + 1,
    jobs: Math.min(2, availableParallelism()),
    progress: () => {},
  });
  if (failure !== null) {
    const { lines } = runSystem(failure.seed, true);
    assert.fail(`SEED=${failure.seed}: ${failure.violation}\n${lines.slice(-LINES_SHOWN).join('\n')}`);
  }
  coverage.addAll(sum.runs, counts);
});

// A simulation in which nothing happens proves nothing, and is green.
test('the seeds went where it hurts', { skip: given !== undefined }, (context) => {
  for (const line of coverage.table().split('\n')) context.diagnostic(line);
  assert.deepEqual(coverage.missing(), []);
});
