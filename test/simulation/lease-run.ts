/**
 * Random runs of the lease layer: a time with faults drawn from the seed, then one without, in which progress is
 * demanded.
 */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';
import { microsecond } from './clock-course.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, LeaseWorld, RECOVERY_MS } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import type { Faults } from './world.ts';

/** The length of the time with faults, unless it is given. */
const STORM_MS = 16 * LEASE_MS;

/** The options of a run; everything else depends on its seed. */
export interface LeaseRunOptions {
  /** Whether the members of cells change. Absent: in every fifth run. */
  readonly views?: boolean;
  /** Absent: PaxosLease for every second seed. */
  readonly algorithm?: LeaseAlgorithm;
  readonly servers?: number;
  readonly cells?: number;
  readonly stormMs?: number;
  readonly faults?: Partial<Faults>;
  /** `beyond`: clocks are out of bounds, so that exclusion is not demanded. */
  readonly skew?: 'within' | 'beyond';
  readonly verbose?: boolean;
}

export interface LeaseRun {
  readonly violation: string | null;
  readonly world: LeaseWorld;
  /** The parameters of the run, without what is random during it. */
  readonly shape: LeaseShape;
}

export interface LeaseShape {
  readonly algorithm: LeaseAlgorithm;
  readonly servers: number;
  readonly cells: number;
  readonly encoded: boolean;
  readonly thrifty: boolean;
  readonly news: boolean;
  readonly clocksBroken: boolean;
  /** The first number of members of cells, if members change. */
  readonly firstMembers?: number;
  /** The end of the time with faults, since the begin of the run. */
  readonly stormEndMs: number;
}

/** One random run: a time with faults, then one without. Equal seeds and options give equal runs. */
export function leaseRun(seed: number, options: LeaseRunOptions = {}): LeaseRun {
  // A generator of its own, so that the shape of the cluster does not affect other draws.
  const dice = new Prng(seed * 2 + 1);
  const algorithm = options.algorithm ?? (seed % 2 === 0 ? 'flease' : 'paxoslease');
  // PaxosLease demands only the rate of clocks, so only Flease has clocks that can be out of bounds.
  const beyond = options.skew === undefined ? seed % 16 === 0 : options.skew === 'beyond';
  const clocksBroken = algorithm === 'flease' && beyond;
  const drawn = {
    servers: dice.pick([1, 2, 3, 3, 3, 3, 4, 5]),
    cells: dice.pick([1, 1, 2]),
    faults: faultsDraw(dice, clocksBroken),
  };
  const views = options.views ?? (options.servers === undefined && seed % 5 === 0);
  const servers = options.servers ?? (views ? dice.pick([3, 4, 5, 6]) : drawn.servers);
  const shape: LeaseShape = {
    algorithm,
    servers,
    ...(views && { firstMembers: Math.max(1, servers - dice.integer(1, 2)) }),
    cells: options.cells ?? drawn.cells,
    // One run of eight, of both algorithms alike.
    encoded: seed % 16 === 1 || seed % 16 === 6,
    // Two runs of three, as in production; if all voters are asked, more happens at once.
    thrifty: seed % 6 > 1,
    news: seed % 3 !== 0,
    clocksBroken,
    stormEndMs: RECOVERY_MS - 100 + (options.stormMs ?? STORM_MS),
  };
  const world = new LeaseWorld({
    seed,
    ...shape,
    faults: {
      ...drawn.faults,
      ...(algorithm === 'paxoslease' && { offsetMaxMs: Infinity, slewMax: CLOCK_DRIFT_MAX }),
      ...options.faults,
    },
    verbose: options.verbose ?? false,
  });
  return { violation: violationOf(() => leaseStorm(world, shape)), world, shape };
}

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

function leaseStorm(lease: LeaseWorld, shape: LeaseShape): void {
  const { world } = lease;
  world.start();
  if (world.prng.chance(0.8)) {
    for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  }
  // The first recovery wait is the same in each run; the faults begin shortly before its end.
  world.runFor(RECOVERY_MS - 100);
  world.unleash();
  const stopMs = world.nowMs - world.elapsedMs + shape.stormEndMs;
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
  if (shape.firstMembers !== undefined) viewsChange(lease, stopMs);
  world.runUntil(stopMs);
  leasePeace(lease, shape.clocksBroken);
}

/** Informs random servers of a new view, or of the newest one, from time to time. */
function viewsChange(lease: LeaseWorld, stopMs: number): void {
  const { world } = lease;
  const next = () => {
    if (world.nowMs >= stopMs) return;
    world.at(world.nowMs + microsecond((world.prng.next() * LEASE_MS) / 4), next);
    const cell = world.prng.pick(lease.cells);
    const view = lease.views.cell(cell).draw(world.prng, world.ids);
    lease.tell(world.prng.pick(world.ids), cell, view);
  };
  next();
}

/** Without faults each cell gets a holder in time, keeps it, and costs few messages. @throws Violation */
export function leasePeace(lease: LeaseWorld, clocksBroken: boolean): void {
  const { world } = lease;
  world.heal();
  lease.startNews();
  if (lease.host(world.ids[0] as ServerId) === null) throw new Error('All servers are up');
  if (lease.views.changing) lease.settleViews();
  else for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  if (clocksBroken) {
    // With clocks out of bounds only safety is demanded; once they are repaired, everything. Messages from before must
    // have arrived first: they would accuse the new clocks.
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
  // Holders elected before the last server's recovery wait ended may be disturbed once more.
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
  // A holder renews three times per lease and asks each other server once each time.
  const readsMax = (periods + 1) * 4 * lease.cells.length * (world.ids.length - 1);
  if (lease.observers.counts.reads - reads > readsMax)
    throw new Violation('In peace too many READs are sent');
}
