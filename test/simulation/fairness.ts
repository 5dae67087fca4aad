/**
 * Which of several servers gets one lease that all want. Their clocks are spread evenly over ε, and they begin within
 * a few milliseconds of each other, at random. Then the winner stops for good, and the others compete for its lease,
 * whose end they know by their own clocks only.
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, LeaseWorld, RECOVERY_MS } from './lease-world.ts';
import { CALM } from './world.ts';

export interface Fairness {
  /** Elections won by each server when all begin together. */
  readonly first: readonly number[];
  /** Elections won after the end of another server's lease, and the number in which each server took part. */
  readonly second: readonly number[];
  readonly tookPart: readonly number[];
}

/** The servers begin within this time of each other. */
const SPREAD_MS = 5;

export function fairnessMeasure(servers: number, elections: number, skewMs = CLOCK_SKEW_MAX_MS): Fairness {
  const first = new Array<number>(servers).fill(0);
  const second = new Array<number>(servers).fill(0);
  const tookPart = new Array<number>(servers).fill(0);
  const lease = new LeaseWorld({
    seed: servers,
    servers,
    cells: elections,
    faults: { ...CALM, delayMinMs: 0.3, delayMaxMs: 1.5 },
  });
  const { world } = lease;
  world.ids.forEach((id, index) => {
    world.setClock(id, skewMs * (index / (servers - 1) - 0.5));
  });
  world.start();
  world.runFor(RECOVERY_MS + LEASE_MS);
  for (let number = 1; number <= elections; number++) {
    const cell = number as CellId;
    for (const id of world.ids) {
      world.at(world.nowMs + world.prng.next() * SPREAD_MS, () => lease.open(id, cell));
    }
    const winner = electionAwait(lease, cell);
    first[winner] = (first[winner] as number) + 1;
    // It neither renews nor releases: its lease runs out.
    lease.close(world.ids[winner] as ServerId, cell);
    world.runFor(LEASE_MS, () => lease.holders(cell).length === 0);
    const heir = electionAwait(lease, cell);
    second[heir] = (second[heir] as number) + 1;
    tookPart.forEach((count, index) => {
      if (index !== winner) tookPart[index] = count + 1;
    });
    for (const id of world.ids) {
      lease.close(id, cell);
      lease.release(id, cell);
    }
    world.runFor(20);
  }
  return { first, second, tookPart };
}

function electionAwait(lease: LeaseWorld, cell: CellId): number {
  const { world } = lease;
  const elected = world.runFor(5 * LEASE_MS, () => lease.holders(cell).length > 0);
  if (!elected) throw new Error(`Cell ${cell} gets no holder`);
  return world.ids.indexOf(lease.holders(cell)[0] as ServerId);
}
