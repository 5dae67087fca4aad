const FIRST_MS = 10;
const LARGEST_MS = 250;

/**
 * Waits between attempts: 10 ms doubling up to 250 ms, each shortened at random by up to a half, so
 * that clients that failed together do not come back together.
 */
export class Backoff {
  #nextMs = FIRST_MS;

  /** @returns how long to wait before the next attempt, in milliseconds */
  nextDelayMs(): number {
    const delayMs = this.#nextMs * (0.5 + Math.random() / 2);
    this.#nextMs = Math.min(this.#nextMs * 2, LARGEST_MS);
    return delayMs;
  }
}
