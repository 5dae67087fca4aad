/** A mutex whose waiters are served in the order of arrival. */
export class Mutex {
  readonly #waiting: (() => void)[] = [];
  #isLocked = false;

  async lock(): Promise<void> {
    if (!this.tryLock()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  async hold<Value>(run: () => Promise<Value>): Promise<Value> {
    await this.lock();
    try {
      return await run();
    } finally {
      this.unlock();
    }
  }

  tryLock(): boolean {
    if (this.#isLocked) return false;
    this.#isLocked = true;
    return true;
  }

  unlock(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#isLocked = false;
    else next();
  }
}

/** A lock of readers and writers (rw_semaphore), in the order of arrival: a waiting writer blocks later readers. */
export class SharedMutex {
  readonly #waiting: { readonly isExclusive: boolean; readonly resolve: () => void }[] = [];
  #readers = 0;
  #isWritten = false;

  async exclusive<Value>(run: () => Promise<Value>): Promise<Value> {
    await this.#lock(true);
    try {
      return await run();
    } finally {
      this.#isWritten = false;
      this.#wake();
    }
  }

  async shared<Value>(run: () => Promise<Value>): Promise<Value> {
    await this.#lock(false);
    try {
      return await run();
    } finally {
      this.#readers--;
      this.#wake();
    }
  }

  async #lock(isExclusive: boolean): Promise<void> {
    const waits = new Promise<void>((resolve) => this.#waiting.push({ isExclusive, resolve }));
    this.#wake();
    await waits;
  }

  #wake(): void {
    for (;;) {
      const [next] = this.#waiting;
      if (next === undefined || this.#isWritten || (next.isExclusive && this.#readers > 0)) return;
      this.#waiting.shift();
      if (next.isExclusive) this.#isWritten = true;
      else this.#readers++;
      next.resolve();
    }
  }
}
