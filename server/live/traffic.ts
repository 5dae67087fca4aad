/** What this server did for clients since its start. Counted where it is done, so that forwarded requests count once. */
export class Traffic {
  readonly #nowMs: () => number;
  #writes = 0;
  #reads = 0;
  #wroteAtMs: number | null = null;

  /** @param nowMs monotonic, in milliseconds */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Changes of contents that this server, as a primary, has acknowledged. */
  get writes(): number {
    return this.#writes;
  }

  /** Reads of contents that this server has answered from its own disk. */
  get reads(): number {
    return this.#reads;
  }

  /** Since the last change, in milliseconds; null before the first. */
  get sinceWriteMs(): number | null {
    return this.#wroteAtMs === null ? null : Math.round(this.#nowMs() - this.#wroteAtMs);
  }

  wrote(): void {
    this.#writes++;
    this.#wroteAtMs = this.#nowMs();
  }

  read(): void {
    this.#reads++;
  }
}
