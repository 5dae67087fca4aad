import { isServerId, type ServerId } from '../base/ids.ts';
import { CLOCK_DRIFT_MAX, type LeaseTiming } from './parameters.ts';

/** Most voters per cell: two such sets, while they change, fit a tally. */
const PER_CELL_MAX = 7;

/** The servers from which each cell's voters are chosen. */
export interface VoterSet {
  readonly servers: readonly ServerId[];
  /** Voters per cell; all servers if there are fewer. */
  readonly perCell: number;
}

/**
 * The voters of all cells that clients lease. `joint`: voters change from `members` to it, and a majority needs both.
 * Numbers grow by one; another layer agrees on what a number stands for, and that never changes.
 */
export interface VotersView {
  readonly number: number;
  readonly members: VoterSet;
  readonly joint?: VoterSet;
  /**
   * The latest lease clock reading, in milliseconds, at which a server that is no longer a voter may have voted by an
   * earlier view. A voter of this view treats it like a reading of its own vote.
   */
  readonly clockMs: number;
}

/** Validates a view from a disk or a peer. */
export function isVotersView(value: unknown): value is VotersView {
  if (typeof value !== 'object' || value === null) return false;
  const { number, members, joint, clockMs } = value as Record<string, unknown>;
  if (!Number.isSafeInteger(number) || (number as number) < 1 || !Number.isFinite(clockMs)) return false;
  return isVoterSet(members) && (joint === undefined || isVoterSet(joint));
}

function isVoterSet(value: unknown): value is VoterSet {
  if (typeof value !== 'object' || value === null) return false;
  const { servers, perCell } = value as Record<string, unknown>;
  if (!Number.isSafeInteger(perCell) || (perCell as number) < 1 || (perCell as number) > PER_CELL_MAX)
    return false;
  if (!Array.isArray(servers) || servers.length === 0 || new Set(servers).size !== servers.length)
    return false;
  return servers.every((server) => typeof server === 'string' && isServerId(server));
}

export function votersCount({ servers, perCell }: VoterSet): number {
  return Math.min(perCell, servers.length);
}

export function votersAll({ members, joint }: VotersView): readonly ServerId[] {
  return joint === undefined ? members.servers : [...new Set([...members.servers, ...joint.servers])];
}

export function votersEqual(a: VoterSet, b: VoterSet): boolean {
  const isSame =
    a.servers.length === b.servers.length && a.servers.every((server) => b.servers.includes(server));
  return isSame && votersCount(a) === votersCount(b);
}

/** Whether both are the same view; a number stands for one view only. */
export function votersViewsEqual(a: VotersView, b: VotersView): boolean {
  if (a.number !== b.number || a.clockMs !== b.clockMs || !votersEqual(a.members, b.members)) return false;
  if (a.joint === undefined || b.joint === undefined) return a.joint === b.joint;
  return votersEqual(a.joint, b.joint);
}

/** Whether `has` covers a majority of the voters of every cell, whichever servers they are. */
export function votersMajorities(set: VoterSet, has: (server: ServerId) => boolean): boolean {
  const missing = set.servers.filter((server) => !has(server)).length;
  return missing <= Math.floor((votersCount(set) - 1) / 2);
}

/**
 * When a change of voters may take its next step. The server that proposes the steps keeps this value; a server that
 * takes over starts the wait again.
 *
 * Each server votes, and counts votes, by one view only, the one on its disk (`LeaseConfig.view`). Let v be the
 * settled view before the change, v + 1 the joint one, v + 2 the settled one after it. Majorities of v + 1 share a
 * voter with those of v and with those of v + 2, so the register protects neighbouring views. Majorities of v and v +
 * 2 need not share a voter. Therefore v + 2 is proposed only after both of these:
 *
 * 1. A majority of each cell's members has v + 1 on disk and takes part. Nothing more is decided by v: each majority
 *    contains one of these servers, which voted by v before that moment or never.
 * 2. After that, the longest lease and 2ε have passed. A lease decided by v counts from a clock reading before that
 *    moment, so it has ended on every clock, and ballots are of a later interval (`recovery.ts` has the sum).
 *
 * A server in its recovery wait is not counted: a lease that it forgot may be longer, and its clock may be behind a
 * reading at which it voted. So every token of v is from a reading that `clockMs` of v + 2 exceeds.
 */
export class VotersChange {
  readonly #timing: LeaseTiming;
  #number = 0;
  readonly #clocks = new Map<ServerId, number>();
  /** When it became certain that the previous view decides nothing more. */
  #previousEndedMs: number | null = null;

  constructor(timing: LeaseTiming) {
    this.#timing = timing;
  }

  /**
   * A server has the latest agreed view on its disk.
   * @param clockMs its lease clock after it stored the view
   * @param isSilent whether it was in its recovery wait or had a clock fault
   */
  confirmed(server: ServerId, view: VotersView, clockMs: number, isSilent: boolean): void {
    this.#restartIfNewView(view);
    if (isSilent) return;
    this.#clocks.set(server, Math.max(clockMs, this.#clocks.get(server) ?? -Infinity));
  }

  /**
   * Decides the next step of a change: to joint voters, and from them, once both sets are ready, to the new ones alone.
   * @param view the latest agreed view
   * @param wanted voters; null to keep them
   * @param nowMs monotonic clock
   * @returns the view to agree on now, or null
   */
  next(view: VotersView, wanted: VoterSet | null, nowMs: number): VotersView | null {
    this.#restartIfNewView(view);
    const { number, members, joint, clockMs } = view;
    if (joint === undefined) {
      if (wanted === null || wanted.servers.length === 0 || votersEqual(wanted, members)) return null;
      return { number: number + 1, members, joint: wanted, clockMs };
    }
    const has = (server: ServerId): boolean => this.#clocks.has(server);
    // The joint voters are needed for a majority, and their registers must contain the running leases.
    if (!votersMajorities(members, has) || !votersMajorities(joint, has)) return null;
    this.#previousEndedMs ??= nowMs;
    if (nowMs - this.#previousEndedMs < votersJointMs(this.#timing)) return null;
    return { number: number + 1, members: joint, clockMs: Math.max(clockMs, ...this.#clocks.values()) };
  }

  #restartIfNewView({ number }: VotersView): void {
    if (number === this.#number) return;
    this.#number = number;
    this.#clocks.clear();
    this.#previousEndedMs = null;
  }
}

/** Duration of a joint view after the previous one is fenced, in milliseconds of any clock within bounds. */
export function votersJointMs({ leaseMs, clockSkewMaxMs }: LeaseTiming): number {
  return (leaseMs + 2 * clockSkewMaxMs) * (1 + 2 * CLOCK_DRIFT_MAX);
}
