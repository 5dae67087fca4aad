import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { serverIdCompare } from '../base/ids.ts';
import type { LeaseParameters } from './parameters.ts';

/**
 * k = (i, r, id, inc): identifies one attempt of one incarnation of a server, and orders all attempts on a cell.
 * [Flease] forms k from the clock reading and the server. Here the ballot carries the number of the clock's interval,
 * so that no receiver recomputes it, and counts the attempts inside the interval.
 *
 * Beyond the paper: the incarnation. Otherwise a clock that went back over a restart could repeat a ballot, and an
 * acceptor would give one promise to two attempts.
 */
export interface Ballot {
  readonly interval: number;
  readonly round: number;
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** Smaller than every attempt's ballot: nothing promised, nothing written. */
export const BALLOT_ZERO: Ballot = {
  interval: 0,
  round: 0,
  server: '' as ServerId,
  incarnation: 0 as Incarnation,
};

/** Lexicographic: interval, round, server, incarnation. The interval comes first: time outruns any counter. */
export function ballotCompare(a: Ballot, b: Ballot): number {
  if (a === b) return 0;
  if (a.interval !== b.interval) return a.interval - b.interval;
  if (a.round !== b.round) return a.round - b.round;
  return serverIdCompare(a.server, b.server) || a.incarnation - b.incarnation;
}

export function ballotMax(a: Ballot, b: Ballot): Ballot {
  return ballotCompare(a, b) >= 0 ? a : b;
}

const ROUNDS_MAX = 2 ** 21;
/** Intervals fit the four bytes of a row. */
export const INTERVALS_MAX = 2 ** 32;
/** Limit of other servers' intervals: no clock reaches it this century, and a larger one cannot be overtaken. */
const INTERVALS_SANE = INTERVALS_MAX / 2;
/** Time unit of a fencing token: finer than any interval of clients' leases; 32 bits of it last for decades. */
const TOKEN_GRAIN_MS = 512;

/**
 * A ballot as a fencing token below 2^53: the start of its interval, and its round. Rises with the ballot unless only
 * server or incarnation differ. Independent of the interval's length, so tokens rise even if that changes.
 */
export function ballotToken(k: Ballot, parameters: LeaseParameters): number {
  return Math.floor((k.interval * parameters.ballotIntervalMs) / TOKEN_GRAIN_MS) * ROUNDS_MAX + k.round;
}

/** Whether a real clock can show the ballot's interval. */
export function ballotIsSane(k: Ballot): boolean {
  return k.interval < INTERVALS_SANE;
}

/** For traces: `58/3@a`. */
export function ballotText(k: Ballot): string {
  return k.round === 0 ? '0' : `${k.interval}/${k.round}@${k.server}`;
}

/** Number of the interval that contains a clock reading: I(t) of [Flease], with one fixed rounding. */
export function ballotInterval(clockMs: number, parameters: LeaseParameters): number {
  return Math.floor(clockMs / parameters.ballotIntervalMs);
}

/** The ballots of one incarnation, strictly increasing over all cells; one counter costs a cell no memory. */
export class BallotSequence {
  readonly #parameters: LeaseParameters;
  #interval = 0;
  #round = 0;

  constructor(parameters: LeaseParameters) {
    this.#parameters = parameters;
  }

  /** Returns a ballot larger than every previous one, and usually than `known`. The interval never decreases. */
  next(nowMs: number, known: Ballot = BALLOT_ZERO): Ballot {
    const interval = Math.max(this.#interval, ballotInterval(nowMs, this.#parameters));
    if (interval > this.#interval) this.#round = 0;
    this.#interval = interval;
    // After the interval is set: `raiseAbove` compares `known` with the present interval.
    this.raiseAbove(known);
    this.#round++;
    if (this.#round === ROUNDS_MAX) {
      // Acceptors refuse it as future until its interval begins, which only costs time.
      this.#interval++;
      this.#round = 1;
    }
    return this.last;
  }

  /** The latest ballot; this incarnation wrote nothing with a larger one. */
  get last(): Ballot {
    const { self, incarnation } = this.#parameters;
    assert(this.#interval < INTERVALS_MAX, 'Intervals are numbered in 32 bits');
    return { interval: this.#interval, round: this.#round, server: self, incarnation };
  }

  /**
   * Makes the next ballot larger than `known` if that is of the same interval. Flease adopts no later interval: it
   * comes from another clock, and this one catches up. In PaxosLease intervals mean nothing: it adopts them.
   */
  raiseAbove(known: Ballot): void {
    if (known.round >= ROUNDS_MAX - 1) return;
    if (known.interval === this.#interval) this.#round = Math.max(this.#round, known.round);
    if (this.#parameters.algorithm === 'flease' || known.interval <= this.#interval) return;
    if (!ballotIsSane(known)) return;
    this.#interval = known.interval;
    this.#round = known.round;
  }
}
