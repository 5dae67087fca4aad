/** What this server did for clients since its start. Counted where it is done: a forwarded request counts once. */
export class Traffic {
  readonly #nowMs: () => number;
  #writes = 0;
  #reads = 0;
  #wroteAtMs: number | null = null;

  /** @param nowMs monotonic, in milliseconds */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get writes(): number {
    return this.#writes;
  }

  get reads(): number {
    return this.#reads;
  }

  /** Milliseconds since the last change; null before the first. */
  get sinceWriteMs(): number | null {
    return this.#wroteAtMs === null ? null : Math.round(this.#nowMs() - this.#wroteAtMs);
  }

  countWrite(): void {
    this.#writes++;
    this.#wroteAtMs = this.#nowMs();
  }

  countRead(): void {
    this.#reads++;
  }
}
