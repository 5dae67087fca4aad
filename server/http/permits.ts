import { assert } from '../../base/assert.ts';

/** So many may do it at once; the others wait in the order in which they came. */
export class Permits {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    assert(count >= 1, 'Somebody may go');
    this.#free = count;
  }

  /** Every permit taken is given back with `release`. */
  async acquire(): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await promise;
  }

  release(): void {
    const next = this.#waiting.shift();
    // The permit goes from hand to hand: a newcomer cannot overtake those who wait.
    if (next === undefined) this.#free++;
    else next();
  }
}
