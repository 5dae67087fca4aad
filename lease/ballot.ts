import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { serverIdCompare } from '../base/ids.ts';
import type { LeaseParameters } from './parameters.ts';

/**
 * k = (i, r, id, inc): names one attempt of one life of one server, and orders all attempts on a cell.
 * [Flease] forms k from the clock reading and the server; we send the number of the clock's interval
 * instead of the reading, so that nobody recomputes it, and count the attempts inside it.
 *
 * Beyond the paper: the incarnation. A clock that went back over a restart could otherwise repeat a
 * ballot, and two attempts with one name are how one promise gets given twice.
 */
export interface Ballot {
  readonly interval: number;
  readonly round: number;
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** Smaller than every ballot of an attempt: nothing promised, nothing written. */
export const BALLOT_ZERO: Ballot = {
  interval: 0,
  round: 0,
  server: '' as ServerId,
  incarnation: 0 as Incarnation,
};

/** Lexicographic: interval, round, server, incarnation. The interval first, so that time outruns any counter. */
export function ballotCompare(a: Ballot, b: Ballot): number {
  if (a === b) return 0;
  if (a.interval !== b.interval) return a.interval - b.interval;
  if (a.round !== b.round) return a.round - b.round;
  return serverIdCompare(a.server, b.server) || a.incarnation - b.incarnation;
}

export function ballotMax(a: Ballot, b: Ballot): Ballot {
  return ballotCompare(a, b) >= 0 ? a : b;
}

/** Rounds of one interval. */
const ROUNDS_MAX = 2 ** 21;
/** Intervals fit the four bytes of a row. */
export const INTERVALS_MAX = 2 ** 32;
/** No clock of this century draws a larger one, and whoever names one is not to be overtaken. */
const INTERVALS_SANE = INTERVALS_MAX / 2;
/** Grain of the time in a fencing token: finer than any interval of clients' leases, and 32 bits last for decades. */
const TOKEN_GRAIN_MS = 512;

/**
 * A ballot as a fencing token below 2^53: when its interval began, and its round. It never falls from
 * one ballot to a larger one, and rises where not only the server differs. It does not depend on the
 * length of an interval, so that tokens go on rising when that is changed.
 */
export function ballotToken(k: Ballot, parameters: LeaseParameters): number {
  return Math.floor((k.interval * parameters.intervalMs) / TOKEN_GRAIN_MS) * ROUNDS_MAX + k.round;
}

/** Whether a ballot's interval is one that a clock can show. */
export function ballotIsSane(k: Ballot): boolean {
  return k.interval < INTERVALS_SANE;
}

/** For traces: `58/3@a`. */
export function ballotText(k: Ballot): string {
  return k.round === 0 ? '0' : `${k.interval}/${k.round}@${k.server}`;
}

/** Number of the interval a clock reading falls in, I(t) of [Flease] with one fixed rounding. */
export function ballotInterval(clockMs: number, parameters: LeaseParameters): number {
  return Math.floor(clockMs / parameters.intervalMs);
}

/**
 * The ballots of one life of one server, strictly increasing over all its cells: one counter for all
 * costs a cell no memory, and a gap in a cell's numbers harms nobody.
 */
export class BallotSequence {
  readonly #parameters: LeaseParameters;
  #interval = 0;
  #round = 0;

  constructor(parameters: LeaseParameters) {
    this.#parameters = parameters;
  }

  /** A ballot larger than every one before. The interval never goes back, even if the clock did. */
  next(nowMs: number, standing: Ballot = BALLOT_ZERO): Ballot {
    const interval = Math.max(this.#interval, ballotInterval(nowMs, this.#parameters));
    if (interval > this.#interval) this.#round = 0;
    this.#interval = interval;
    // Only now: the sequence may have been in an earlier interval, of which what stands in the way is not.
    this.overtake(standing);
    this.#round++;
    if (this.#round === ROUNDS_MAX) {
      // Refused as too early until its time has come, which only costs time.
      this.#interval++;
      this.#round = 1;
    }
    return this.last;
  }

  /** The latest ballot: nothing that this life has written has a larger one. */
  get last(): Ballot {
    const { self, incarnation } = this.#parameters;
    assert(this.#interval < INTERVALS_MAX, 'Intervals are numbered in 32 bits');
    return { interval: this.#interval, round: this.#round, server: self, incarnation };
  }

  /**
   * Somebody stands in the way with `standing`: the next ballot overtakes it if it is of the same
   * interval. A later interval is not adopted: it is some other clock's claim, and ours catches up.
   * In PaxosLease intervals are numbers without a meaning, so it is.
   */
  overtake(standing: Ballot): void {
    if (standing.round >= ROUNDS_MAX - 1) return;
    if (standing.interval === this.#interval) this.#round = Math.max(this.#round, standing.round);
    if (this.#parameters.algorithm === 'flease' || standing.interval <= this.#interval) return;
    if (!ballotIsSane(standing)) return;
    this.#interval = standing.interval;
    this.#round = standing.round;
  }
}
