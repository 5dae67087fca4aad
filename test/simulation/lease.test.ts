/**
 * Goal: at no moment do two servers hold one lease, and a cluster without faults soon has a holder.
 * Method: real lease hosts over a simulated network; clocks, losses, pauses, crashes and partitions all depend on the
 * seed. `lease-observers.ts` has the rules. A failure names its seed: `SEED=17 node --test
 * test/simulation/lease.test.ts` replays it and prints the trace, and `npm run simulate -- --layer lease --seed 17`
 * searches for a simpler run. `SEEDS=100000` runs more.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { LEASE_MARKS, type LeaseMark } from '../../lease/actions.ts';
import { isLong } from '../long.ts';
import { leaseRun } from './lease-run.ts';
import { seedsRun } from './seeds.ts';

const SEEDS = Number(process.env.SEEDS ?? (isLong ? 2_500 : 400));

const given = process.env.SEED;

if (given !== undefined) {
  test(`one holder at most (SEED=${given})`, () => {
    const { violation, world } = leaseRun(Number(given), { verbose: true });
    if (violation !== null) console.log(world.world.lines.slice(-200).join('\n'));
    assert.equal(violation, null, `SEED=${given}`);
  });
} else {
  test(`one holder at most (seeds 1 to ${SEEDS})`, async (context) => {
    const { failure, counts } = await seedsRun({
      layers: ['lease'],
      firstSeed: 1,
      count: SEEDS,
      jobs: availableParallelism(),
    });
    assert.equal(failure, null);
    const { runs, crashes = 0, pauses = 0, cuts = 0, takeovers = 0, viewChanges = 0 } = counts.lease;
    const {
      clocksBroken = 0,
      'clock-out-of-bounds': convicted = 0,
      'clock-fault': faults = 0,
    } = counts.lease;
    context.diagnostic(JSON.stringify(counts.lease));
    // A simulation in which nothing happens proves nothing.
    assert.equal(runs, SEEDS);
    assert.ok(crashes > 2 * SEEDS && pauses > 5 * SEEDS && cuts > 5 * SEEDS);
    assert.ok(takeovers > 2 * SEEDS, 'Leases change their holder');
    assert.ok(viewChanges > SEEDS / 10, 'Members change');
    assert.ok(clocksBroken > SEEDS / 20, 'Clocks are out of bounds in some runs');
    assert.ok(convicted > clocksBroken, 'Other servers notice clocks out of bounds');
    assert.ok(faults > 0, 'Servers notice that their own clocks are out of bounds');
    // All servers have the same parameters; the clock monitor refuses before the acceptor.
    const elsewhere: LeaseMark[] = ['parameters-differ', 'refused-future'];
    const wanted = LEASE_MARKS.filter((mark) => !elsewhere.includes(mark));
    assert.deepEqual(
      wanted.filter((mark) => !counts.lease[mark]),
      [],
    );
  });

  test('equal seeds give equal runs', () => {
    const lines = (seed: number) => leaseRun(seed, { verbose: true }).world.world.lines;
    assert.deepEqual(lines(5), lines(5));
    assert.deepEqual(lines(6), lines(6));
  });
}
