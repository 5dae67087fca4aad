/** A barrier for works that are to share a transaction. */
export class Gate {
  readonly #opened = Promise.withResolvers<void>();
  #missing: number;

  constructor(count: number) {
    this.#missing = count;
  }

  /** Resolves once each of `count` participants has called `arrive` or, if it failed, `leave`. */
  async arrive(): Promise<void> {
    this.leave();
    await this.#opened.promise;
  }

  leave(): void {
    if (--this.#missing <= 0) this.#opened.resolve();
  }
}
