import { assert } from '../../base/assert.ts';

/** What a pace needs of time: the lease clock and the wake-ups by it. */
export interface PaceTime {
  nowMs(): number;
  at(atMs: number, wake: () => void): void;
}

/** A pace that was not used may go this far ahead of itself, in milliseconds. */
const BURST_MS = 100;

/**
 * How fast state transfers may go, all those that share it together: a token bucket. What is taken
 * is paid for afterwards, so that an object larger than the bucket passes as well.
 */
export class TransferPace {
  readonly #bytesPerS: number;
  readonly #time: PaceTime;
  /** When all that was taken so far is paid for. */
  #paidAtMs = 0;

  /** @param bytesPerS at least 1; `Infinity` for no bound */
  constructor(bytesPerS: number, time: PaceTime) {
    assert(bytesPerS >= 1, 'A transfer goes on');
    this.#bytesPerS = bytesPerS;
    this.#time = time;
  }

  /** Resolves when `bytes` more may be asked for. Those who wait go in the order in which they came. */
  async take(bytes: number): Promise<void> {
    if (this.#bytesPerS === Infinity) return;
    const beginMs = Math.max(this.#paidAtMs, this.#time.nowMs() - BURST_MS);
    this.#paidAtMs = beginMs + (bytes * 1000) / this.#bytesPerS;
    if (beginMs <= this.#time.nowMs()) return;
    await new Promise<void>((resolve) => this.#time.at(beginMs, resolve));
  }
}

/** For transfers that somebody waits for. */
export const UNLIMITED: Pick<TransferPace, 'take'> = { take: () => Promise.resolve() };
