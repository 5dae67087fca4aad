interface Waiting<Item, Result> {
  readonly item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/** Sends many items with one request: items that arrive while one is in progress wait for the next. */
export class Batches<Item, Result> {
  readonly #itemsMax: number;
  readonly #send: (items: readonly Item[]) => Promise<readonly PromiseSettledResult<Result>[]>;
  #waiting: Waiting<Item, Result>[] = [];
  #busy = false;

  /** @param send returns an outcome for each item, in order */
  constructor(
    itemsMax: number,
    send: (items: readonly Item[]) => Promise<readonly PromiseSettledResult<Result>[]>,
  ) {
    this.#itemsMax = itemsMax;
    this.#send = send;
  }

  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      void this.#pump();
    });
  }

  /** Sends the waiting items until none waits; one request at a time. */
  async #pump(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#itemsMax);
      const outcomes = await this.#send(batch.map(({ item }) => item));
      for (const [place, outcome] of outcomes.entries())
        if (outcome.status === 'fulfilled') batch[place]?.resolve(outcome.value);
        else batch[place]?.reject(outcome.reason);
    }
    this.#busy = false;
  }
}
