import { RecentMap } from '../../base/recent-map.ts';

/** Validity is shortened by this: an answer waits in the kernel until its caller runs. */
export const UPTAKE_SLACK_MS = 20;
/** After this time the kernel has taken up an answer, and its validity has begun. */
export const UPTAKE_MS_MAX = 200;

/** Recent answers that the kernel may not have taken up yet. @typeParam Key an inode, or a place (`placeKey`) */
export class InFlight<Key = number> {
  readonly #answeredMs = new RecentMap<Key, number>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  answered(key: Key): void {
    const nowMs = this.#nowMs();
    this.#answeredMs.set(key, nowMs);
    this.#answeredMs.takeWhile((answeredMs) => nowMs - answeredMs > UPTAKE_MS_MAX);
  }

  forget(key: Key): void {
    this.#answeredMs.delete(key);
  }

  has(key: Key): boolean {
    return this.leftMs(key) > 0;
  }

  /** In how many milliseconds the kernel has certainly taken up the latest answer; 0 if it has. */
  leftMs(key: Key): number {
    const answeredMs = this.#answeredMs.get(key);
    if (answeredMs === undefined) return 0;
    // Includes the whole last millisecond.
    return Math.max(0, answeredMs + UPTAKE_MS_MAX + 1 - this.#nowMs());
  }
}
