import { assert } from '../base/assert.ts';
import type { CellId } from '../base/ids.ts';

/** Share of slots in use: the maximum, and the share right after growing. */
const LOAD_MAX = 0.7;
const LOAD_MIN = 0.46;
const SLOTS_MIN = 128;

/** A slot holds row + 1 in its lower bits, and part of the cell's hash above them. */
const ROW_BITS = 24;
const ROW_MASK = 2 ** ROW_BITS - 1;
const ROWS_MAX = ROW_MASK;

/** Cell to row: open addressing, linear probing, six to nine bytes a cell. The rows hold the keys. */
export class CellIndex {
  readonly #cellOf: (row: number) => CellId;
  #slots = new Uint32Array(SLOTS_MIN);
  #size = 0;
  /** The cell that was not found last, and its slot: most are added next. */
  #missing: CellId | null = null;
  #missingSlot = 0;

  constructor(cellOf: (row: number) => CellId) {
    this.#cellOf = cellOf;
  }

  find(cell: CellId): number | null {
    const slot = this.#slotOf(cell, hashOf(cell));
    const found = this.#slots[slot] as number;
    if (found !== 0) return (found & ROW_MASK) - 1;
    this.#missing = cell;
    this.#missingSlot = slot;
    return null;
  }

  add(cell: CellId, row: number): void {
    assert(row < ROWS_MAX, 'Rows are numbered in 24 bits');
    if (this.#size + 1 > this.#slots.length * LOAD_MAX) this.#grow();
    this.#put(cell, row);
    this.#size++;
  }

  /** Removes a cell that is in the index. Moves later entries up, so that probing still finds them. */
  remove(cell: CellId): void {
    const slots = this.#slots;
    const { length } = slots;
    this.#missing = null;
    let gap = this.#slotOf(cell, hashOf(cell));
    for (let at = gap; ; ) {
      at = at + 1 === length ? 0 : at + 1;
      const found = slots[at] as number;
      if (found === 0) break;
      const home = homeOf(hashOf(this.#cellOf((found & ROW_MASK) - 1)), length);
      if ((at - home + length) % length < (at - gap + length) % length) continue;
      slots[gap] = found;
      gap = at;
    }
    slots[gap] = 0;
    this.#size--;
  }

  #put(cell: CellId, row: number): void {
    const hash = hashOf(cell);
    const slot = this.#missing === cell ? this.#missingSlot : this.#slotOf(cell, hash);
    this.#missing = null;
    this.#slots[slot] = (tagOf(hash) | (row + 1)) >>> 0;
  }

  #grow(): void {
    const before = this.#slots;
    this.#slots = new Uint32Array(Math.ceil((this.#size + 1) / LOAD_MIN));
    this.#missing = null;
    for (const found of before) {
      if (found === 0) continue;
      const row = (found & ROW_MASK) - 1;
      this.#put(this.#cellOf(row), row);
    }
  }

  /** @returns the slot of a cell, or the empty slot where it belongs */
  #slotOf(cell: CellId, hash: number): number {
    const slots = this.#slots;
    const { length } = slots;
    const tag = tagOf(hash);
    let slot = homeOf(hash, length);
    for (;;) {
      const found = slots[slot] as number;
      if (found === 0) return slot;
      if (((found ^ tag) & ~ROW_MASK) === 0 && this.#cellOf((found & ROW_MASK) - 1) === cell) return slot;
      slot = slot + 1 === length ? 0 : slot + 1;
    }
  }
}

/** 32 bits. Spreads cells whose ids are consecutive. */
function hashOf(cell: CellId): number {
  const high = Math.floor(cell / 0x1_0000_0000);
  let hash = Math.imul((cell ^ Math.imul(high, 0x9e3779b1)) | 0, 0x85ebca6b);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

/** The slot comes from the upper bits of the hash, the tag from the lower bits. */
function homeOf(hash: number, length: number): number {
  return Math.floor(((hash >>> 0) * length) / 0x1_0000_0000);
}

function tagOf(hash: number): number {
  return hash << ROW_BITS;
}
