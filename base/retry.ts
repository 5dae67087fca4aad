/** Retries of requests that one server of several can answer: whether and when another attempt follows. No clock, no network. */

/** Waits between attempts, in milliseconds: the first, doubling up to the largest, each times a factor that is drawn from `spread`. */
export interface Pace {
  readonly firstMs: number;
  readonly largestMs: number;
  /** Least and largest factor: callers that failed together do not try again together. */
  readonly spread: readonly [number, number];
}

/** Draws the waits of one sequence of attempts. */
export class Backoff {
  readonly #pace: Pace;
  readonly #random: () => number;
  #nextMs: number;

  /** @param random draws a number from 0 to before 1 */
  constructor(pace: Pace, random: () => number) {
    this.#pace = pace;
    this.#random = random;
    this.#nextMs = pace.firstMs;
  }

  /** @returns how long to wait before the next attempt */
  nextDelayMs(): number {
    const [least, most] = this.#pace.spread;
    const delayMs = this.#nextMs * (least + this.#random() * (most - least));
    this.#nextMs = Math.min(this.#nextMs * 2, this.#pace.largestMs);
    return delayMs;
  }
}

/** What an attempt without a result says of the next one. */
export type RetryOutcome =
  /** Each attempt would end like this one. */
  | { readonly kind: 'final' }
  /** The same request may be sent again at once, as the caller has changed what was wrong with it. */
  | { readonly kind: 'again' }
  /** Another server may be asked at once. After `movesMax` such moves in a row it is as `otherwise` says, so that a loop of hints ends. */
  | { readonly kind: 'elsewhere'; readonly movesMax: number; readonly otherwise: 'final' | 'later' }
  /** After a wait, of `leastMs` at the least. */
  | { readonly kind: 'later'; readonly leastMs?: number };

export type RetryStep =
  | { readonly kind: 'ask' }
  | { readonly kind: 'wait'; readonly ms: number }
  /** `isFinal`: not because time is up. */
  | { readonly kind: 'fail'; readonly isFinal: boolean };

export interface RetryOptions {
  readonly deadlineMs: number;
  readonly pace: Pace;
  /** A wait that would reach the deadline: is cut short for a last attempt, or fails at once. */
  readonly lastWait: 'cut' | 'fail';
}

const ASK: RetryStep = { kind: 'ask' };
const LATER: RetryOutcome = { kind: 'later' };
const OUT_OF_TIME: RetryStep = { kind: 'fail', isFinal: false };
const FINAL: RetryStep = { kind: 'fail', isFinal: true };

/** One request's attempts. */
export class Retry {
  readonly #options: RetryOptions;
  readonly #backoff: Backoff;
  /** Moves to another server since the last wait. */
  #moves = 0;

  constructor(options: RetryOptions, random: () => number) {
    this.#options = options;
    this.#backoff = new Backoff(options.pace, random);
  }

  next(outcome: RetryOutcome, nowMs: number): RetryStep {
    const { deadlineMs } = this.#options;
    switch (outcome.kind) {
      case 'final':
        return FINAL;
      case 'again':
        return nowMs < deadlineMs ? ASK : OUT_OF_TIME;
      case 'elsewhere':
        if (this.#moves >= outcome.movesMax)
          return outcome.otherwise === 'final' ? FINAL : this.next(LATER, nowMs);
        this.#moves++;
        return nowMs < deadlineMs ? ASK : OUT_OF_TIME;
      case 'later':
        return this.#wait(outcome.leastMs ?? 0, deadlineMs - nowMs);
    }
  }

  #wait(leastMs: number, leftMs: number): RetryStep {
    this.#moves = 0;
    const isCut = this.#options.lastWait === 'cut';
    if (isCut && leftMs <= 0) return OUT_OF_TIME;
    const ms = Math.max(this.#backoff.nextDelayMs(), leastMs);
    if (ms < leftMs) return { kind: 'wait', ms };
    return isCut ? { kind: 'wait', ms: leftMs } : OUT_OF_TIME;
  }
}
