/** Below it, what a burst of writes gains from the page cache is more than what it costs the processor: disks that turn, and many that are rented. */
const BYTES_PER_MS_MIN = 200_000;
/** So many writes are looked at before the disk is judged by them. */
const LOOK_COUNT = 8;
const SLOW_MS = 60_000;

/**
 * Whether a disk takes direct writes fast enough, by the fastest of some: others may have waited for the processor, and that is
 * no reason to have it copy as well.
 */
export class DiskPace {
  readonly #nowMs: () => number;
  #underWay = 0;
  #count = 0;
  #bytesPerMsMax = 0;
  #slowUntilMs = -Infinity;

  /** @param nowMs monotonic, in milliseconds */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get underWay(): number {
    return this.#underWay;
  }

  /** It was too slow a moment ago. */
  get isSlow(): boolean {
    return this.#nowMs() < this.#slowUntilMs;
  }

  /** @returns is called at the end of the write, with the bytes that the disk has taken */
  begun(): (bytes: number) => void {
    const beginMs = this.#nowMs();
    const together = ++this.#underWay;
    return (bytes) => {
      const now = this.#nowMs();
      this.#underWay--;
      this.#count++;
      // The disk is shared by those that are under way.
      this.#bytesPerMsMax = Math.max(this.#bytesPerMsMax, (bytes * together) / (now - beginMs));
      if (this.#count < LOOK_COUNT) return;
      if (this.#bytesPerMsMax < BYTES_PER_MS_MIN) this.#slowUntilMs = now + SLOW_MS;
      this.#count = 0;
      this.#bytesPerMsMax = 0;
    };
  }
}
