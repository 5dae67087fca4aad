import { assert } from '../../base/assert.ts';

export interface PaceTime {
  nowMs(): number;
  at(atMs: number, wake: () => void): void;
}

/** After a pause, transfers may exceed the rate by what it permits in this time, in milliseconds. */
const BURST_MS = 100;

/**
 * Limits the rate of all state transfers together. A request is not delayed by its own bytes, but by those of earlier
 * ones, so that an object of any size passes.
 */
export class TransferPace {
  readonly #bytesPerS: number;
  readonly #time: PaceTime;
  #paidAtMs = 0;

  constructor(bytesPerS: number, time: PaceTime) {
    assert(bytesPerS >= 1, 'A transfer goes on');
    this.#bytesPerS = bytesPerS;
    this.#time = time;
  }

  /** Resolves when `bytes` more may be requested, in the order of the calls. */
  async take(bytes: number): Promise<void> {
    if (this.#bytesPerS === Infinity) return;
    const beginMs = Math.max(this.#paidAtMs, this.#time.nowMs() - BURST_MS);
    this.#paidAtMs = beginMs + (bytes * 1000) / this.#bytesPerS;
    if (beginMs <= this.#time.nowMs()) return;
    await new Promise<void>((resolve) => this.#time.at(beginMs, resolve));
  }
}

export const UNLIMITED: Pick<TransferPace, 'take'> = { take: () => Promise.resolve() };
