/**
 * Goal: at no moment do two servers hold one lease, and a healthy cluster soon has a holder.
 * Method: real lease hosts over a simulated network; clocks, losses, pauses, crashes and partitions
 * all come from the seed. `lease-world.ts` names the oracles. A failure names its seed:
 * `SEED=17 node --test test/simulation/lease.test.ts` replays it and prints what happened.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LEASE_MARKS, type LeaseMark } from '../../lease/actions.ts';
import { leaseRun } from './lease-run.ts';
import { LEASE_SCENARIOS } from './lease-scenarios.ts';

const SEEDS = 1000;
const PER_TEST = 100;

const given = process.env.SEED;
const reached = new Set<LeaseMark>();
const counts = { crashes: 0, pauses: 0, cuts: 0, takeovers: 0 };

function play(seed: number, verbose: boolean): void {
  const { violation, world } = leaseRun(seed, { verbose });
  if (violation !== null && verbose) console.log(world.world.lines.slice(-200).join('\n'));
  assert.equal(violation, null, `SEED=${seed}`);
  for (const mark of world.marks) reached.add(mark);
  counts.crashes += world.world.counts.crashes;
  counts.pauses += world.world.counts.pauses;
  counts.cuts += world.world.counts.cuts;
  counts.takeovers += world.observers.counts.takeovers;
}

if (given !== undefined) {
  test(`one holder at most (SEED=${given})`, () => play(Number(given), true));
} else {
  for (let first = 1; first <= SEEDS; first += PER_TEST) {
    test(`one holder at most (seeds ${first} to ${first + PER_TEST - 1})`, () => {
      for (let seed = first; seed < first + PER_TEST; seed++) play(seed, false);
    });
  }

  for (const [name, scenario] of Object.entries(LEASE_SCENARIOS)) {
    test(`scenario ${name}`, () => assert.equal(scenario(), null));
  }

  // A simulation in which nothing happens proves nothing, and is green.
  test('the seeds went where it hurts', (context) => {
    // All servers have the same parameters and view; the clock monitor comes before the acceptor.
    const elsewhere: LeaseMark[] = ['parameters-differ', 'wrong-view', 'refused-future'];
    const wanted = LEASE_MARKS.filter((mark) => !elsewhere.includes(mark));
    assert.deepEqual([...reached].sort(), [...wanted].sort());
    context.diagnostic(JSON.stringify(counts));
    assert.ok(counts.crashes > 2 * SEEDS && counts.pauses > 5 * SEEDS && counts.cuts > 5 * SEEDS);
    assert.ok(counts.takeovers > 2 * SEEDS, 'Leases change hands');
  });

  test('equal seeds give equal runs', () => {
    assert.deepEqual(
      leaseRun(5, { verbose: true }).world.world.lines,
      leaseRun(5, { verbose: true }).world.world.lines,
    );
  });
}
