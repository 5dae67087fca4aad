import { systemWorld } from '../../world/system-world.ts';
/** Measures the time between acknowledged writes, on the clock of this process. */
export class GapMeter {
  #lastMs = systemWorld.nowMs();
  #largestMs = 0;
  readonly #waiting: { count: number; resolve: () => void }[] = [];

  /** Notes that a write was acknowledged now. */
  mark(): void {
    const nowMs = systemWorld.nowMs();
    this.#largestMs = Math.max(this.#largestMs, nowMs - this.#lastMs);
    this.#lastMs = nowMs;
    for (const waiter of this.#waiting.splice(0)) {
      if (--waiter.count === 0) waiter.resolve();
      else this.#waiting.push(waiter);
    }
  }

  /** Forgets the gaps so far; an open one counts from its beginning. */
  reset(): void {
    this.#largestMs = 0;
  }

  largestMs(): number {
    return Math.max(this.#largestMs, systemWorld.nowMs() - this.#lastMs);
  }

  /** Resolves after `count` further writes. */
  afterMarks(count: number): Promise<void> {
    return new Promise((resolve) => this.#waiting.push({ count, resolve }));
  }
}
