import { assert } from '../../base/assert.ts';
import { bitCount, lowestBit } from '../../base/bits.ts';
import { SlotSet } from './slot-set.ts';

const SEARCH_SLOTS_MAX = 65_536;
const FULL = 0xffff_ffff;

/** The used slots of a container. In memory only: it is rebuilt from the index. */
export class SlotMap {
  readonly #used = new SlotSet();
  /** Every slot from here on is free. */
  #end = 0;
  #usedCount = 0;
  /** Every slot below is in use. */
  #lowestFree = 0;

  get end(): number {
    return this.#end;
  }

  has(slot: number): boolean {
    return slot < this.#end && this.#used.has(slot);
  }

  take(slot: number): void {
    assert(!this.has(slot), `Slot ${slot} is free`);
    this.#used.add(slot);
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
    this.freeWord(slot >>> 5, 1 << (slot & 31));
  }

  /** Frees the slots of a word of a `SlotSet`. */
  freeWord(at: number, bits: number): void {
    if (bits === 0) return;
    assert((bits & ~this.#used.word(at)) === 0, `Slots ${at * 32} and following are in use`);
    this.#used.deleteWord(at, bits);
    this.#usedCount -= bitCount(bits);
    this.#lowestFree = Math.min(this.#lowestFree, at * 32 + lowestBit(bits));
    const end = this.#end - 1;
    if (end >>> 5 !== at || this.#used.has(end)) return;
    while (this.#end > 0 && !this.#used.has(this.#end - 1)) {
      const word = (this.#end - 1) >>> 5;
      this.#end = this.#used.word(word) === 0 ? word * 32 : this.#end - 1;
    }
    if (this.#lowestFree > this.#end) this.#lowestFree = this.#end;
  }

  #isFree(first: number, count: number): boolean {
    for (let slot = first; slot < first + count; slot++) if (this.has(slot)) return false;
    return true;
  }

  #search(count: number): number {
    if (this.#end - this.#usedCount < count) return this.#end;
    while (this.has(this.#lowestFree)) {
      const word = this.#lowestFree >>> 5;
      this.#lowestFree = this.#used.word(word) === FULL ? (word + 1) * 32 : this.#lowestFree + 1;
    }
    const last = Math.min(this.#end, this.#lowestFree + SEARCH_SLOTS_MAX);
    let first = this.#lowestFree;
    for (let slot = first; slot < last; slot++) {
      if (this.has(slot)) first = slot + 1;
      else if (slot - first + 1 === count) return first;
    }
    return this.#end;
  }
}
