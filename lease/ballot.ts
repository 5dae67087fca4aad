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
  next(nowMs: number): Ballot {
    const interval = Math.max(this.#interval, ballotInterval(nowMs, this.#parameters));
    if (interval > this.#interval) this.#round = 0;
    this.#interval = interval;
    this.#round++;
    const { self, incarnation } = this.#parameters;
    return { interval, round: this.#round, server: self, incarnation };
  }

  /**
   * Somebody stands in the way with `standing`: the next ballot overtakes it if it is of the same
   * interval. A later interval is not adopted: it is some other clock's claim, and ours catches up.
   */
  overtake(standing: Ballot): void {
    if (standing.interval === this.#interval) this.#round = Math.max(this.#round, standing.round);
  }
}
