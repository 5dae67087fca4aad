/** A deterministic generator (splitmix32), so that cores and simulations can be replayed. Not for secrets. */
export class Prng {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed ^ Math.trunc(seed / 0x1_0000_0000)) >>> 0;
  }

  nextUint32(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  next(): number {
    return this.nextUint32() / 0x1_0000_0000;
  }

  /** @returns an integer from `low` to `high`, both included */
  integer(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.integer(0, values.length - 1)] as Value;
  }
}
