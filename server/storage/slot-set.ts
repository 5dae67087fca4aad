import { lowestBit } from '../../base/bits.ts';

/** A set of slots, a bit each: so that long work keeps nothing per object. */
export class SlotSet {
  #words = new Uint32Array(4);

  /** Number of words; all further ones are 0. */
  get length(): number {
    return this.#words.length;
  }

  /** Slots `32 × at` to `32 × at + 31`, a bit each. */
  word(at: number): number {
    return this.#words[at] ?? 0;
  }

  has(slot: number): boolean {
    return (this.word(slot >>> 5) & (1 << (slot & 31))) !== 0;
  }

  add(slot: number): void {
    this.addWord(slot >>> 5, 1 << (slot & 31));
  }

  addWord(at: number, bits: number): void {
    if (bits === 0) return;
    if (at >= this.#words.length) {
      const grown = new Uint32Array(Math.max(at + 1, this.#words.length * 2));
      grown.set(this.#words);
      this.#words = grown;
    }
    this.#words[at] = this.word(at) | bits;
  }

  /** @returns whether the slot was in the set */
  delete(slot: number): boolean {
    const had = this.has(slot);
    if (had) this.deleteWord(slot >>> 5, 1 << (slot & 31));
    return had;
  }

  deleteWord(at: number, bits: number): void {
    if (at < this.#words.length) this.#words[at] = this.word(at) & ~bits;
  }
}

/** The slots of a word, in ascending order. */
export function* slotsOf(at: number, bits: number): Generator<number> {
  for (let left = bits; left !== 0; left &= left - 1) yield at * 32 + lowestBit(left);
}
