/**
 * Shares one fdatasync among many callers: a call during one waits for the next, because the current one may have begun
 * before the caller's bytes were written. A failed sync has lost bytes, which the kernel reports only once: so every
 * later request fails, too.
 */
export class SharedFlush {
  readonly #flush: () => Promise<void>;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  #failed: Promise<void> | null = null;

  constructor(flush: () => Promise<void>) {
    this.#flush = flush;
  }

  /** @returns a promise of a flush that begins after this call */
  request(): Promise<void> {
    if (this.#failed !== null) return this.#failed;
    // The next one may be about to begin, with none in progress any more.
    if (this.#next !== null) return this.#next;
    if (this.#running === null) return this.#start();
    this.#next = this.#running.then(() => this.#start());
    return this.#next;
  }

  #start(): Promise<void> {
    this.#next = null;
    const running: Promise<void> = this.#flush().then(
      () => {
        if (this.#running === running) this.#running = null;
      },
      (error) => {
        this.#failed = running;
        throw error;
      },
    );
    this.#running = running;
    return running;
  }
}
