/** Runs a bounded number of transfers at a time; the first failure ends them all. */
export class BoundedTransfers {
  readonly #most: number;
  readonly #all = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | null = null;

  constructor(most: number) {
    this.#most = most;
  }

  /** Begins a transfer as soon as the bound allows. @throws the failure of an earlier one */
  async begin(transfer: () => Promise<void>): Promise<void> {
    while (this.#all.size >= this.#most) await Promise.race(this.#all);
    this.#throwFailure();
    const going: Promise<void> = transfer()
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#all.delete(going));
    this.#all.add(going);
  }

  /** Resolves when no transfer is in flight. @throws the failure of one of them */
  async end(): Promise<void> {
    await Promise.all(this.#all);
    this.#throwFailure();
  }

  /** Resolves when no transfer is in flight, whether they succeed or not. */
  async settled(): Promise<void> {
    await Promise.all(this.#all);
  }

  #throwFailure(): void {
    if (this.#failure !== null) throw this.#failure.error;
  }
}
