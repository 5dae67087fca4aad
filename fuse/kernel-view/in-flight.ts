import { RecentMap } from '../../base/recent-map.ts';

/** An answer is cached for so much less, in milliseconds: it lies in the kernel until its caller runs. */
export const UPTAKE_SLACK_MS = 20;
/** After that the kernel has taken up an answer, and its time has begun to count. */
export const UPTAKE_MS_MAX = 200;

/**
 * Entries that the kernel was answered a moment ago: it may not know their inodes yet, and cache them all the same.
 *
 * @typeParam Key an inode, or a place (`placeKey`)
 */
export class InFlight<Key = number> {
  /** When. */
  readonly #answeredMs = new RecentMap<Key, number>();
  readonly #nowMs: () => number;

  /** @param nowMs a clock in milliseconds that never goes back */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  answered(key: Key): void {
    const nowMs = this.#nowMs();
    this.#answeredMs.set(key, nowMs);
    this.#answeredMs.takeWhile((answeredMs) => nowMs - answeredMs > UPTAKE_MS_MAX);
  }

  /** The kernel knew the inode, and has freed it. */
  forget(key: Key): void {
    this.#answeredMs.delete(key);
  }

  has(key: Key): boolean {
    return this.leftMs(key) > 0;
  }

  /** @returns after how many milliseconds the kernel has taken up the latest answer; 0 if it has */
  leftMs(key: Key): number {
    const answeredMs = this.#answeredMs.get(key);
    if (answeredMs === undefined) return 0;
    // The whole of the last millisecond counts.
    return Math.max(0, answeredMs + UPTAKE_MS_MAX + 1 - this.#nowMs());
  }
}
