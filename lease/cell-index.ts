import type { CellId } from '../base/ids.ts';

/** Share of the places that are in use at most, and right after the index has grown. */
const LOAD_MAX = 0.75;
const LOAD_MIN = 0.5;
const PLACES_MIN = 128;

/**
 * Which row a cell has: open addressing with linear probing, four bytes a place, five to eight a cell.
 * The keys stand in the rows.
 */
export class CellIndex {
  readonly #cellOf: (row: number) => CellId;
  /** Row + 1, or 0. */
  #places = new Uint32Array(PLACES_MIN);
  #size = 0;

  /** @param cellOf the cell of a row that was added */
  constructor(cellOf: (row: number) => CellId) {
    this.#cellOf = cellOf;
  }

  /** @returns the row of a cell, or null */
  find(cell: CellId): number | null {
    const row = this.#places[this.#placeOf(cell)] as number;
    return row === 0 ? null : row - 1;
  }

  /** Adds a cell that is not here; its row says its name already. */
  add(cell: CellId, row: number): void {
    if (this.#size + 1 > this.#places.length * LOAD_MAX) this.#grow();
    this.#places[this.#placeOf(cell)] = row + 1;
    this.#size++;
  }

  /** Removes a cell that is here. Closes the gap: whoever stands past its home may move up. */
  remove(cell: CellId): void {
    const places = this.#places;
    const { length } = places;
    let gap = this.#placeOf(cell);
    for (let at = gap; ; ) {
      at = at + 1 === length ? 0 : at + 1;
      const row = places[at] as number;
      if (row === 0) break;
      const past = (at - this.#homeOf(this.#cellOf(row - 1)) + length) % length;
      if (past < (at - gap + length) % length) continue;
      places[gap] = row;
      gap = at;
    }
    places[gap] = 0;
    this.#size--;
  }

  #grow(): void {
    const before = this.#places;
    this.#places = new Uint32Array(Math.ceil((this.#size + 1) / LOAD_MIN));
    for (const row of before) {
      if (row !== 0) this.#places[this.#placeOf(this.#cellOf(row - 1))] = row;
    }
  }

  /** Where a cell stands, or the empty place where it would. */
  #placeOf(cell: CellId): number {
    const places = this.#places;
    const { length } = places;
    let place = this.#homeOf(cell);
    for (;;) {
      const row = places[place] as number;
      if (row === 0 || this.#cellOf(row - 1) === cell) return place;
      place = place + 1 === length ? 0 : place + 1;
    }
  }

  /** Spreads the cells, which may be numbered one after the other. */
  #homeOf(cell: CellId): number {
    const high = Math.floor(cell / 0x1_0000_0000);
    let hash = Math.imul((cell ^ Math.imul(high, 0x9e3779b1)) | 0, 0x85ebca6b);
    hash ^= hash >>> 15;
    hash = Math.imul(hash, 0xc2b2ae35);
    hash ^= hash >>> 16;
    return Math.floor(((hash >>> 0) * this.#places.length) / 0x1_0000_0000);
  }
}
