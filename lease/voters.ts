import { isServerId, type ServerId } from '../base/ids.ts';
import { CLOCK_DRIFT_MAX, type LeaseTiming } from './parameters.ts';

/** Voters of a cell, of two sets while they change, fit a tally. */
const PER_CELL_MAX = 7;

/** The servers among which each cell has its voters. */
export interface VoterSet {
  readonly servers: readonly ServerId[];
  /** So many of them vote on one cell, or all where there are fewer. */
  readonly perCell: number;
}

/**
 * Who votes on all cells that clients lease. `joint`: the voters change from `members` to these, and a majority is one
 * of each. Numbers grow by one with each view; what a number stands for is agreed upon elsewhere, and never changes.
 */
export interface VotersView {
  readonly number: number;
  readonly members: VoterSet;
  readonly joint?: VoterSet;
  /**
   * The latest reading of a lease clock, in milliseconds, at which a voter of a view before may have voted that is none
   * any more. A server that votes by this view remembers it like a reading at which it voted itself.
   */
  readonly clockMs: number;
}

/** For views from a disk or from a peer. */
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

/** @returns how many voters each cell has */
export function votersCount({ servers, perCell }: VoterSet): number {
  return Math.min(perCell, servers.length);
}

/** @returns all servers that vote on some cell, each once */
export function votersAll({ members, joint }: VotersView): readonly ServerId[] {
  return joint === undefined ? members.servers : [...new Set([...members.servers, ...joint.servers])];
}

/** Whether both have the same voters for each cell. */
export function votersEqual(a: VoterSet, b: VoterSet): boolean {
  const isSame =
    a.servers.length === b.servers.length && a.servers.every((server) => b.servers.includes(server));
  return isSame && votersCount(a) === votersCount(b);
}

/** Whether both are one view: for one number there is no other. */
export function votersViewsEqual(a: VotersView, b: VotersView): boolean {
  if (a.number !== b.number || a.clockMs !== b.clockMs || !votersEqual(a.members, b.members)) return false;
  if (a.joint === undefined || b.joint === undefined) return a.joint === b.joint;
  return votersEqual(a.joint, b.joint);
}

/** Whether a majority of the voters of each cell, whichever of the set they are, is among those that `has` names. */
export function votersMajorities(set: VoterSet, has: (server: ServerId) => boolean): boolean {
  const missing = set.servers.filter((server) => !has(server)).length;
  return missing <= Math.floor((votersCount(set) - 1) / 2);
}

/**
 * When a change of voters may take its next step. A value that the server keeps which proposes the steps; another one
 * that takes over begins the wait anew.
 *
 * Each server votes, and counts votes, by one view only, which is on its disk (`LeaseConfig.view`). Let v be the
 * settled view before the change, v + 1 the joint one, v + 2 the settled one after it. Majorities of v + 1 have a
 * voter in common with those of v and with those of v + 2, so between neighbours the register does the rest.
 * Majorities of v and v + 2 need have none. Therefore v + 2 is proposed only once
 *
 * 1. a majority of the members of each cell has v + 1 on disk and takes part: nothing more is decided by v, since each
 *    majority has one of these, which voted by v before that moment, or never;
 * 2. and after that the longest lease and 2ε have passed: a lease that was decided by v is counted from a reading of
 *    a clock of before that moment. It has ended on every clock, and ballots are of a later interval (`recovery.ts`
 *    has the sum).
 *
 * A server that is silent after its start is not counted: a lease that it has forgotten may be longer, and its clock
 * may be behind a reading at which it has voted. So every token of v is of a reading that `clockMs` of v + 2 exceeds.
 */
export class VotersChange {
  readonly #timing: LeaseTiming;
  #number = 0;
  /** Lease clocks of the servers that go by the present view and take part, when they said so. */
  readonly #clocks = new Map<ServerId, number>();
  /** Since when nothing is decided by the view before the present one. */
  #fencedMs: number | null = null;

  constructor(timing: LeaseTiming) {
    this.#timing = timing;
  }

  /**
   * A server has the view that was agreed upon last on its disk.
   *
   * @param clockMs its lease clock after it was there
   * @param isSilent whether it took part in no lease then, because of its start or of its clock
   */
  confirmed(server: ServerId, view: VotersView, clockMs: number, isSilent: boolean): void {
    this.#begin(view);
    if (isSilent) return;
    this.#clocks.set(server, Math.max(clockMs, this.#clocks.get(server) ?? -Infinity));
  }

  /**
   * @param view that was agreed upon last
   * @param wanted voters; null where they are to stay
   * @param nowMs monotonic
   * @returns the view to agree upon now, or null
   */
  next(view: VotersView, wanted: VoterSet | null, nowMs: number): VotersView | null {
    this.#begin(view);
    const { number, members, joint, clockMs } = view;
    if (joint === undefined) {
      if (wanted === null || wanted.servers.length === 0 || votersEqual(wanted, members)) return null;
      return { number: number + 1, members, joint: wanted, clockMs };
    }
    const has = (server: ServerId): boolean => this.#clocks.has(server);
    // Without the joint ones there would be no majority, and their registers tell what runs.
    if (!votersMajorities(members, has) || !votersMajorities(joint, has)) return null;
    this.#fencedMs ??= nowMs;
    if (nowMs - this.#fencedMs < votersJointMs(this.#timing)) return null;
    return { number: number + 1, members: joint, clockMs: Math.max(clockMs, ...this.#clocks.values()) };
  }

  #begin({ number }: VotersView): void {
    if (number === this.#number) return;
    this.#number = number;
    this.#clocks.clear();
    this.#fencedMs = null;
  }
}

/** How long a joint view lasts after the view before it is fenced, in milliseconds of any clock within the bounds. */
export function votersJointMs({ leaseMs, clockSkewMaxMs }: LeaseTiming): number {
  return (leaseMs + 2 * clockSkewMaxMs) * (1 + 2 * CLOCK_DRIFT_MAX);
}
