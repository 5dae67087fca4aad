import { assert } from '../../base/assert.ts';

/** A semaphore: at most `count` at a time, the others wait in order. */
export class Semaphore {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    assert(count >= 1, 'A semaphore has a permit');
    this.#free = count;
  }

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
    // The permit passes to the next in the queue: a new caller cannot overtake it.
    if (next === undefined) this.#free++;
    else next();
  }
}
