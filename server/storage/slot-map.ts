import { assert } from '../../base/assert.ts';

const SEARCH_SLOTS_MAX = 65_536;

/** The used slots of a container. In memory only: it is rebuilt from the index. */
export class SlotMap {
  /** One bit per slot, set while in use. */
  #bits = new Uint32Array(8);
  /** Every slot from here on is free. */
  #end = 0;
  #usedCount = 0;
  /** Every slot below is in use. */
  #lowestFree = 0;

  get end(): number {
    return this.#end;
  }

  has(slot: number): boolean {
    return slot < this.#end && ((this.#bits[slot >>> 5] as number) & (1 << (slot & 31))) !== 0;
  }

  take(slot: number): void {
    assert(!this.has(slot), `Slot ${slot} is free`);
    if (slot >>> 5 >= this.#bits.length) {
      const grown = new Uint32Array(Math.max((slot >>> 5) + 1, this.#bits.length * 2));
      grown.set(this.#bits);
      this.#bits = grown;
    }
    this.#bits[slot >>> 5] = (this.#bits[slot >>> 5] as number) | (1 << (slot & 31));
    this.#usedCount++;
    if (slot >= this.#end) this.#end = slot + 1;
    if (slot === this.#lowestFree) this.#lowestFree++;
  }

  /** Takes `count` adjacent slots; returns the first: `preferred`, which keeps a file sequential, if free; −1: any. */
  takeRun(count: number, preferred: number): number {
    assert(count > 0, 'A run has slots');
    const first = preferred >= 0 && this.#isFree(preferred, count) ? preferred : this.#search(count);
    for (let slot = first; slot < first + count; slot++) this.take(slot);
    return first;
  }

  free(slot: number): void {
    assert(this.has(slot), `Slot ${slot} is in use`);
    this.#bits[slot >>> 5] = (this.#bits[slot >>> 5] as number) & ~(1 << (slot & 31));
    this.#usedCount--;
    if (slot < this.#lowestFree) this.#lowestFree = slot;
    if (slot === this.#end - 1) {
      this.#end--;
      while (this.#end > 0 && !this.has(this.#end - 1)) this.#end--;
      if (this.#lowestFree > this.#end) this.#lowestFree = this.#end;
    }
  }

  #isFree(first: number, count: number): boolean {
    for (let slot = first; slot < first + count; slot++) if (this.has(slot)) return false;
    return true;
  }

  #search(count: number): number {
    if (this.#end - this.#usedCount < count) return this.#end;
    while (this.has(this.#lowestFree)) this.#lowestFree++;
    const last = Math.min(this.#end, this.#lowestFree + SEARCH_SLOTS_MAX);
    let first = this.#lowestFree;
    for (let slot = first; slot < last; slot++) {
      if (this.has(slot)) first = slot + 1;
      else if (slot - first + 1 === count) return first;
    }
    return this.#end;
  }
}
