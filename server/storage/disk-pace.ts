/** On slower disks the page cache gains more for bursts than it costs the processor. */
const BYTES_PER_MS_MIN = 200_000;
const LOOK_COUNT = 8;
const SLOW_MS = 60_000;

/** By the fastest of some writes: slow ones may have waited for the processor. */
export class DiskPace {
  readonly #nowMs: () => number;
  #underWay = 0;
  #count = 0;
  #bytesPerMsMax = 0;
  #slowUntilMs = -Infinity;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get underWay(): number {
    return this.#underWay;
  }

  get isSlow(): boolean {
    return this.#nowMs() < this.#slowUntilMs;
  }

  begun(): (bytes: number) => void {
    const beginMs = this.#nowMs();
    const together = ++this.#underWay;
    return (bytes) => {
      const now = this.#nowMs();
      this.#underWay--;
      this.#count++;
      // The concurrent writes share the disk.
      this.#bytesPerMsMax = Math.max(this.#bytesPerMsMax, (bytes * together) / (now - beginMs));
      if (this.#count < LOOK_COUNT) return;
      if (this.#bytesPerMsMax < BYTES_PER_MS_MIN) this.#slowUntilMs = now + SLOW_MS;
      this.#count = 0;
      this.#bytesPerMsMax = 0;
    };
  }
}
