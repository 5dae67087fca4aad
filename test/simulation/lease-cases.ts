/**
 * Directed cases of the lease layer that a script cannot express: a clock that goes back, and statistics of many cells
 * or elections. Each is the smallest case that detects one planted bug.
 */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { LeaseAction, LeaseEvent } from '../../lease/actions.ts';
import { LeaseHost } from '../../lease/host.ts';
import { fairnessMeasure } from './fairness.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, LeaseWorld, RECOVERY_MS, TIMING } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import { START_MS } from './world.ts';

/** More than a server begins at once. */
const MANY_CELLS = 2500;
/** The most that it may begin at once, with tolerance for another choice of the limit. */
const ATTEMPTS_MAX = 2250;

const ELECTIONS = 150;
const STARVED_LEASES = 100;
const STARVED_MS_MAX = LEASE_MS / 5;
const RUNS_MS_MAX = 20;
/** By chance the luckiest of three servers wins at most half as often again as the others. */
const RATIO_MAX = 2;

export const LEASE_CASES: Readonly<Record<string, () => string | null>> = {
  'clock-steps-back': () => violationOf(clockStepsBack),
  'everybody-gets-a-turn': () => violationOf(everybodyGetsATurn),
  'attempts-are-bounded': () => violationOf(attemptsAreBounded),
  'fast-clocks-win-no-more': () => violationOf(fastClocksWinNoMore),
  'starved-holder-stays': () => violationOf(starvedHolderStays),
};

/** A server whose clock goes back by 2ε renews at once. Its process must end, or its lease must not be shortened. */
function clockStepsBack(): void {
  const self = 'a' as ServerId;
  const cell = 1 as CellId;
  const host = new LeaseHost({ self, incarnation: 1 as Incarnation, ...TIMING }, START_MS);
  const beganMs = START_MS + RECOVERY_MS + LEASE_MS;
  const open = (view: number): LeaseEvent => ({ kind: 'open', cell, view, members: [self], handicapMs: 0 });
  const before = endMs(host.step(open(1), beganMs));
  let after = before;
  const ended = violationOf(() => {
    // Other members make it renew at once.
    after = endMs(host.step(open(2), beganMs + 1 - 2 * CLOCK_SKEW_MAX_MS));
  });
  if (ended === null && after < before)
    throw new Violation(`A renewal shortens a lease to ${after - before} ms`);
}

/** The end of the lease in the last report. */
function endMs(actions: readonly LeaseAction[]): number {
  const held = actions.findLast((action) => action.kind === 'held');
  return held?.untilMs ?? -Infinity;
}

/** All servers run for some milliseconds, then wait for a processor for up to a fifth of a lease, repeatedly. */
function starvedHolderStays(): void {
  const lease = new LeaseWorld({ seed: 1, servers: 3, cells: 1, thrifty: true });
  const { world } = lease;
  const cell = 1 as CellId;
  world.start();
  world.runFor(RECOVERY_MS + LEASE_MS);
  for (const id of world.ids) lease.open(id, cell);
  world.runFor(LEASE_MS);
  const [holder] = lease.holders(cell);
  if (holder === undefined) throw new Violation('The cell gets no holder');
  const dice = new Prng(3);
  const starve = (id: ServerId): void => {
    const waitMs = STARVED_MS_MAX * (0.4 + 0.6 * dice.next());
    world.pause(id, waitMs);
    world.at(world.nowMs + waitMs + 1 + dice.next() * RUNS_MS_MAX, () => starve(id));
  };
  for (const id of world.ids) starve(id);
  for (let lived = 1; lived <= STARVED_LEASES; lived++) {
    world.runFor(LEASE_MS);
    if (!lease.owns(holder, cell)) throw new Violation(`The holder loses its lease after ${lived} leases`);
  }
}

function manyCells(): LeaseWorld {
  const lease = new LeaseWorld({ seed: 1, servers: 3, cells: MANY_CELLS });
  lease.world.start();
  lease.world.runFor(RECOVERY_MS + LEASE_MS);
  return lease;
}

/** One server wants more cells than it begins at once. It gets them all. */
function everybodyGetsATurn(): void {
  const lease = manyCells();
  const server = 'a' as ServerId;
  for (const cell of lease.cells) lease.open(server, cell);
  lease.world.runFor(LEASE_MS);
  const missing = lease.cells.filter((cell) => !lease.owns(server, cell)).length;
  if (missing > 0) throw new Violation(`${missing} of ${MANY_CELLS} cells get no holder`);
}

/** One server wants more cells than it begins at once. The others get requests for some of them later. */
function attemptsAreBounded(): void {
  const lease = manyCells();
  for (const cell of lease.cells) lease.open('a' as ServerId, cell);
  const attempts = lease.observers.counts.reads / 2;
  if (attempts > ATTEMPTS_MAX) throw new Violation(`${attempts} attempts are under way at once`);
}

/** A server that competes for an expired lease must not win because its clock is ahead. */
function fastClocksWinNoMore(): void {
  const { second, tookPart } = fairnessMeasure(3, ELECTIONS);
  const shares = second.map((won, index) => won / (tookPart[index] as number));
  const ratio = Math.max(...shares) / Math.min(...shares);
  if (!(ratio < RATIO_MAX))
    throw new Violation(`The luckiest server wins ${ratio.toFixed(1)} times as often`);
}
