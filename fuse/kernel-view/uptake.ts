/** What is told is believed for so much less: an answer lies in the kernel until its caller gets to run. */
export const UPTAKE_SLACK_MS = 20;
/** After that an answer has been taken up: until then it may lie in the kernel, which counts only from then on. */
export const UPTAKE_MS_MAX = 200;

/** Entries that the kernel was told a moment ago: it may not know their inodes yet, and take them up all the same. */
export class Uptake {
  /** When, by inode, the oldest first. */
  readonly #toldMs = new Map<number, number>();
  readonly #nowMs: () => number;

  /** @param nowMs a clock in milliseconds that never goes back */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  told(inode: number): void {
    const nowMs = this.#nowMs();
    for (const [oldest, toldMs] of this.#toldMs) {
      if (nowMs - toldMs <= UPTAKE_MS_MAX) break;
      this.#toldMs.delete(oldest);
    }
    this.#toldMs.delete(inode);
    this.#toldMs.set(inode, nowMs);
  }

  /** The kernel had it, and has it no more. */
  forget(inode: number): void {
    this.#toldMs.delete(inode);
  }

  /** Whether the kernel may still be about to take up what it was told of the inode, although it does not know it yet. */
  isUnderWay(inode: number): boolean {
    return this.#nowMs() - (this.#toldMs.get(inode) ?? Number.NEGATIVE_INFINITY) <= UPTAKE_MS_MAX;
  }
}
