/** An answer is cached for so much less, in milliseconds: it lies in the kernel until its caller runs. */
export const UPTAKE_SLACK_MS = 20;
/** After that the kernel has taken up an answer, and its time has begun to count. */
export const UPTAKE_MS_MAX = 200;

/** Entries that the kernel was answered a moment ago: it may not know their inodes yet, and cache them all the same. */
export class InFlight {
  /** When, by inode, the oldest first. */
  readonly #answeredMs = new Map<number, number>();
  readonly #nowMs: () => number;

  /** @param nowMs a clock in milliseconds that never goes back */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  answered(inode: number): void {
    const nowMs = this.#nowMs();
    for (const [oldest, answeredMs] of this.#answeredMs) {
      if (nowMs - answeredMs <= UPTAKE_MS_MAX) break;
      this.#answeredMs.delete(oldest);
    }
    this.#answeredMs.delete(inode);
    this.#answeredMs.set(inode, nowMs);
  }

  /** The kernel knew the inode, and has freed it. */
  forget(inode: number): void {
    this.#answeredMs.delete(inode);
  }

  has(inode: number): boolean {
    return this.#nowMs() - (this.#answeredMs.get(inode) ?? Number.NEGATIVE_INFINITY) <= UPTAKE_MS_MAX;
  }
}
