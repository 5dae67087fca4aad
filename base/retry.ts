/** Retries of requests that one of several servers can answer: whether and when to try again. No clock, no network. */

/** Waits in milliseconds: from the first, doubling up to the largest, each times a random factor of `spread`. */
export interface Pace {
  readonly firstMs: number;
  readonly largestMs: number;
  /** Smallest and largest factor: callers that failed together must not retry together. */
  readonly spread: readonly [number, number];
}

export class Backoff {
  readonly #pace: Pace;
  readonly #random: () => number;
  #nextMs: number;

  /** @param random draws from 0 to before 1 */
  constructor(pace: Pace, random: () => number) {
    this.#pace = pace;
    this.#random = random;
    this.#nextMs = pace.firstMs;
  }

  nextDelayMs(): number {
    const [least, most] = this.#pace.spread;
    const delayMs = this.#nextMs * (least + this.#random() * (most - least));
    this.#nextMs = Math.min(this.#nextMs * 2, this.#pace.largestMs);
    return delayMs;
  }
}

/** What a failed attempt means for the next one. */
export type RetryOutcome =
  | { readonly kind: 'final' }
  /** The same request may be sent at once: the caller fixed the cause. */
  | { readonly kind: 'again' }
  /** Another server may be asked at once. After `movesMax` in a row `otherwise` applies, to end loops of hints. */
  | { readonly kind: 'elsewhere'; readonly movesMax: number; readonly otherwise: 'final' | 'later' }
  /** After a wait of at least `leastMs`. */
  | { readonly kind: 'later'; readonly leastMs?: number };

export type RetryStep =
  | { readonly kind: 'ask' }
  | { readonly kind: 'wait'; readonly ms: number }
  /** `isFinal`: not because of the deadline. */
  | { readonly kind: 'fail'; readonly isFinal: boolean };

export interface RetryOptions {
  /** It may move while the caller waits. */
  deadlineMs(): number;
  readonly pace: Pace;
  /** For a wait beyond the deadline: shorten it for a last attempt, or fail at once. */
  readonly lastWait: 'cut' | 'fail';
}

const ASK: RetryStep = { kind: 'ask' };
const LATER: RetryOutcome = { kind: 'later' };
const OUT_OF_TIME: RetryStep = { kind: 'fail', isFinal: false };
const FINAL: RetryStep = { kind: 'fail', isFinal: true };

export class Retry {
  readonly #options: RetryOptions;
  readonly #backoff: Backoff;
  /** Moves to other servers since the last wait. */
  #moves = 0;

  constructor(options: RetryOptions, random: () => number) {
    this.#options = options;
    this.#backoff = new Backoff(options.pace, random);
  }

  /** Called after each failed attempt. @returns whether to try again at once, after a wait, or not */
  next(outcome: RetryOutcome, nowMs: number): RetryStep {
    const deadlineMs = this.#options.deadlineMs();
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
