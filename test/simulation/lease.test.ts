/**
 * Goal: at no moment do two servers hold one lease, and a healthy cluster soon has a holder.
 * Method: real lease hosts over a simulated network; clocks, losses, pauses, crashes and partitions
 * all come from the seed. `lease-observers.ts` names the oracles. A failure names its seed:
 * `SEED=17 node --test test/simulation/lease.test.ts` replays it and prints what happened, and
 * `npm run simulate -- --layer lease --seed 17` makes a short schedule of it. `SEEDS=100000` looks further.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { LEASE_MARKS, type LeaseMark } from '../../lease/actions.ts';
import { campaign } from './lease-campaign.ts';
import { leaseRun } from './lease-run.ts';
import { LEASE_SCENARIOS } from './lease-scenarios.ts';
import { seedsRun } from './seeds.ts';

const SEEDS = Number(process.env.SEEDS ?? campaign.seedsPlayed);

const given = process.env.SEED;

if (given !== undefined) {
  test(`one holder at most (SEED=${given})`, () => {
    const { violation, world } = leaseRun(Number(given), { verbose: true });
    if (violation !== null) console.log(world.world.lines.slice(-200).join('\n'));
    assert.equal(violation, null, `SEED=${given}`);
  });
} else {
  test(`one holder at most (seeds 1 to ${SEEDS})`, async (context) => {
    const { failure, sum, marks } = await seedsRun({
      layers: ['lease'],
      options: {},
      firstSeed: 1,
      count: SEEDS,
      jobs: availableParallelism(),
      progress: () => {},
    });
    assert.equal(failure, null);
    context.diagnostic(JSON.stringify(sum));
    // A simulation in which nothing happens proves nothing, and is green.
    assert.equal(sum.runs, SEEDS);
    assert.ok(sum.crashes > 2 * SEEDS && sum.pauses > 5 * SEEDS && sum.cuts > 5 * SEEDS);
    assert.ok(sum.takeovers > 2 * SEEDS, 'Leases change hands');
    assert.ok(sum.viewChanges > SEEDS / 10, 'Members change');
    assert.ok(sum.brokenClocks > SEEDS / 20, 'Clocks are out of bounds now and then');
    assert.ok(sum.peersConvicted > sum.brokenClocks, 'Clocks out of bounds are noticed by others');
    assert.ok(sum.clockFaults > 0, 'Clocks out of bounds are noticed by their servers');
    // All servers have the same parameters; the clock monitor comes before the acceptor.
    const elsewhere: LeaseMark[] = ['parameters-differ', 'refused-future'];
    const wanted = LEASE_MARKS.filter((mark) => !elsewhere.includes(mark));
    assert.deepEqual(
      wanted.filter((mark) => !marks.has(mark)),
      [],
    );
  });

  for (const [name, scenario] of Object.entries(LEASE_SCENARIOS)) {
    test(`scenario ${name}`, () => assert.equal(scenario(), null));
  }

  test('equal seeds give equal runs', () => {
    const lines = (seed: number) => leaseRun(seed, { verbose: true }).world.world.lines;
    assert.deepEqual(lines(5), lines(5));
    assert.deepEqual(lines(6), lines(6));
  });
}
