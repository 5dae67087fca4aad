/** On slower disks the page cache gains more for bursts than it costs the processor. */
const BYTES_PER_MS_MIN = 200_000;
const MEASURED_WRITES = 8;
const SLOW_MS = 60_000;

/** Finds out whether a disk is slow, by the fastest of `MEASURED_WRITES` writes: others may have waited for a core. */
export class DiskPace {
  readonly #nowMs: () => number;
  #underWay = 0;
  #count = 0;
  #bytesPerMsMax = 0;
  #slowUntilMs = -Infinity;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get inProgressCount(): number {
    return this.#underWay;
  }

  get isSlow(): boolean {
    return this.#nowMs() < this.#slowUntilMs;
  }

  /** Called before a write. @returns a function to call at its end, with the number of bytes written */
  begin(): (bytes: number) => void {
    const beginMs = this.#nowMs();
    const concurrentCount = ++this.#underWay;
    return (bytes) => {
      const now = this.#nowMs();
      this.#underWay--;
      this.#count++;
      // The concurrent writes share the disk.
      this.#bytesPerMsMax = Math.max(this.#bytesPerMsMax, (bytes * concurrentCount) / (now - beginMs));
      if (this.#count < MEASURED_WRITES) return;
      if (this.#bytesPerMsMax < BYTES_PER_MS_MIN) this.#slowUntilMs = now + SLOW_MS;
      this.#count = 0;
      this.#bytesPerMsMax = 0;
    };
  }
}
