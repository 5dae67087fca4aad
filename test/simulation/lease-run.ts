/** Random runs of the lease layer: a storm drawn from the seed, then peace, in which progress is owed. */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { microsecond } from './chronicle.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, LeaseWorld, RECOVERY_MS } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import type { Faults } from './world.ts';

/** Length of the storm. */
const STORM_MS = 16 * LEASE_MS;

function faultsDraw(prng: Prng, broken: boolean): Faults {
  const pick = prng.pick.bind(prng);
  return {
    loss: pick([0, 0.02, 0.1, 0.3]),
    duplication: pick([0, 0.05, 0.3]),
    delayMinMs: 0.1,
    delayMaxMs: pick([2, 20, 60]),
    delayRare: pick([0, 0.01, 0.05]),
    delayRareMaxMs: 3 * LEASE_MS,
    timerLateMaxMs: pick([1, 20]),
    pauseEveryMs: pick([Infinity, 2000, 700]),
    pauseMaxMs: 3 * LEASE_MS,
    crashEveryMs: pick([Infinity, 4000, 1500]),
    downMaxMs: 2 * RECOVERY_MS,
    cutEveryMs: pick([Infinity, 2000, 700]),
    cutMaxMs: 3 * LEASE_MS,
    offsetMaxMs: (CLOCK_SKEW_MAX_MS / 2) * (broken ? pick([2, 6]) : pick([0.2, 1, 1])),
    slewMax: pick([0.005, 0.05, 0.3]),
  };
}

export interface LeaseRun {
  readonly violation: string | null;
  readonly world: LeaseWorld;
}

/** One random run: a storm, then peace, in which progress is owed. */
export function leaseRun(seed: number, verbose = false): LeaseRun {
  const world = leaseWorldDraw(seed, verbose);
  return { violation: violationOf(() => leaseStorm(world)), world };
}

function leaseWorldDraw(seed: number, verbose: boolean): LeaseWorld {
  // A draw of its own, so that the shape of the cluster says nothing about its fate.
  const shape = new Prng(seed * 2 + 1);
  const clocksBroken = seed % 16 === 0;
  return new LeaseWorld({
    seed,
    servers: shape.pick([1, 2, 3, 3, 3, 3, 4, 5]),
    cells: shape.pick([1, 1, 2]),
    faults: faultsDraw(shape, clocksBroken),
    encoded: seed % 8 === 1,
    news: seed % 3 !== 0,
    clocksBroken,
    verbose,
  });
}

function leaseStorm(lease: LeaseWorld): void {
  const { world } = lease;
  world.start();
  if (world.prng.chance(0.8)) {
    for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  }
  // The first silence is the same in every run; the storm begins when it is nearly over.
  world.runFor(RECOVERY_MS - 100);
  world.unleash();
  const stopMs = world.nowMs + STORM_MS;
  const clients = () => {
    if (world.nowMs >= stopMs) return;
    world.at(world.nowMs + microsecond(world.prng.next() * LEASE_MS), clients);
    const id = world.prng.pick(world.ids);
    const cell = world.prng.pick(lease.cells);
    const draw = world.prng.next();
    if (draw < 0.6) lease.open(id, cell, world.prng.pick([0, 0, 50]));
    else if (draw < 0.7) lease.close(id, cell);
    else if (lease.owns(id, cell)) {
      if (draw < 0.95) lease.close(id, cell);
      lease.release(id, cell);
      if (draw > 0.8) lease.open(id, cell);
    }
  };
  clients();
  world.runUntil(stopMs);
  leasePeace(lease);
}

/** Everything works again: every cell gets a holder in time, keeps it, and costs little. */
function leasePeace(lease: LeaseWorld): void {
  const { world } = lease;
  world.heal();
  lease.startNews();
  if (lease.host(world.ids[0] as ServerId) === null) throw new Error('All servers are up');
  for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  const clocksBroken = world.faults.offsetMaxMs > CLOCK_SKEW_MAX_MS / 2;
  if (clocksBroken) {
    // Clocks out of bounds owe nothing but restraint; once repaired, everything. What was said by the
    // old clocks must have arrived first: it would convict the new ones.
    for (const id of world.ids) {
      world.crash(id);
      world.setClock(id, 0);
    }
    world.runFor(3 * LEASE_MS);
    world.start();
  }
  const boundMs = RECOVERY_MS + 2 * (LEASE_MS + CLOCK_SKEW_MAX_MS) + LEASE_MS;
  const allHeld = () => lease.cells.every((cell) => lease.holders(cell).length === 1);
  if (!world.runFor(boundMs, allHeld)) throw new Violation('A healthy cluster elects no holder in time');
  // Holders elected before the last server came out of its silence may be disturbed once more.
  world.runFor(boundMs);
  const { reads } = lease.observers.counts;
  const holders = lease.cells.map((cell) => lease.holders(cell).join());
  const periods = 4;
  for (let i = 0; i < periods; i++) {
    world.runFor(LEASE_MS);
    lease.cells.forEach((cell, at) => {
      if (lease.holders(cell).join() === holders[at] && holders[at] !== '') return;
      throw new Violation(`In peace cell ${cell} goes from ${holders[at]} to ${lease.holders(cell)}`);
    });
  }
  // A holder renews three times per lease and asks every other server once each time.
  const readsMax = (periods + 1) * 4 * lease.cells.length * (world.ids.length - 1);
  if (lease.observers.counts.reads - reads > readsMax)
    throw new Violation('In peace too many READs are sent');
}
