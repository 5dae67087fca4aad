/**
 * Many waiters, one fdatasync: whoever asks while one is under way shares the next, because the one
 * under way may have begun before the asker's bytes were written.
 *
 * A flush that failed has lost bytes, and the kernel reports that once: the next fdatasync would
 * succeed without them. So a failure is for good, and every later request gets it again.
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
    // The next one may be about to begin, with none under way any more.
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
