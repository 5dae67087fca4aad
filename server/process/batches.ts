interface Waiting<Item, Result> {
  readonly item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/** Sends many items with one request: items that arrive while one is in progress wait for the next. */
export class Batches<Item, Result> {
  readonly #itemsMax: number;
  readonly #send: (items: readonly Item[]) => Promise<readonly Result[]>;
  #waiting: Waiting<Item, Result>[] = [];
  #busy = false;

  /** @param send returns a result for each item, in order; its error is that of each */
  constructor(itemsMax: number, send: (items: readonly Item[]) => Promise<readonly Result[]>) {
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
      try {
        const results = await this.#send(batch.map(({ item }) => item));
        for (const [place, { resolve }] of batch.entries()) resolve(results[place] as Result);
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#busy = false;
  }
}
