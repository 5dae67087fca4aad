/** Transfers that go on beside each other; the first that fails ends them all. */
export class UnderWay {
  readonly #most: number;
  readonly #all = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | null = null;

  constructor(most: number) {
    this.#most = most;
  }

  /** Begins when there is room. @throws what an earlier one failed with */
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

  /** Resolves when nothing is under way any more. @throws what one of them failed with */
  async end(): Promise<void> {
    await Promise.all(this.#all);
    this.#throwFailure();
  }

  #throwFailure(): void {
    if (this.#failure !== null) throw this.#failure.error;
  }
}
