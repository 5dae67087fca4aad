import type { Cell } from './cell.ts';

/**
 * Binary heap of cells by the time they are due, in two arrays without an object per entry. A cell
 * whose time moves later keeps its entry and is looked at once too often; one whose time moves earlier
 * gets a second entry, and the stale one is skipped when it comes up.
 */
export class TimerHeap {
  readonly #dueMs: number[] = [];
  readonly #cells: Cell[] = [];

  /** @returns when the first entry is due, or null */
  firstMs(): number | null {
    return this.#dueMs[0] ?? null;
  }

  push(dueMs: number, cell: Cell): void {
    let at = this.#dueMs.length;
    this.#dueMs.push(dueMs);
    this.#cells.push(cell);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = this.#dueMs[parent] as number;
      if (above <= dueMs) break;
      this.#dueMs[at] = above;
      this.#cells[at] = this.#cells[parent] as Cell;
      at = parent;
    }
    this.#dueMs[at] = dueMs;
    this.#cells[at] = cell;
  }

  /** Removes the first entry. There is one. */
  pop(): Cell {
    const first = this.#cells[0] as Cell;
    const dueMs = this.#dueMs.pop() as number;
    const cell = this.#cells.pop() as Cell;
    const { length } = this.#dueMs;
    if (length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      if (child + 1 < length && (this.#dueMs[child + 1] as number) < (this.#dueMs[child] as number)) child++;
      const below = this.#dueMs[child] as number;
      if (dueMs <= below) break;
      this.#dueMs[at] = below;
      this.#cells[at] = this.#cells[child] as Cell;
      at = child;
    }
    this.#dueMs[at] = dueMs;
    this.#cells[at] = cell;
    return first;
  }
}
