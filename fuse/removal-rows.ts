/** Directories of which it is remembered when something was removed in them, the latest last. */
const REMEMBERED_MAX = 1_000;

interface Row {
  readonly count: number;
  readonly lastMs: number;
}

/**
 * Who removes one file of a directory after the other, and makes none between. One that is removed for itself may say something to others by being gone: a journal,
 * a lock, a mark.
 */
export class RemovalRows {
  readonly #rowMs: number;
  readonly #rows = new Map<number, Row>();

  /** @param rowMs what is removed later than this after another file, in milliseconds, is removed for itself; 0: whatever is removed */
  constructor(rowMs: number) {
    this.#rowMs = rowMs;
  }

  /** A file of the directory was removed. @returns how many were so in a row, with this one */
  removed(directory: number): number {
    const count = this.lengthOf(directory) + 1;
    this.#rows.delete(directory);
    this.#rows.set(directory, { count, lastMs: performance.now() });
    for (const oldest of this.#rows.keys()) {
      if (this.#rows.size <= REMEMBERED_MAX) break;
      this.#rows.delete(oldest);
    }
    return count;
  }

  /** Something else becomes of the directory, or a removal has failed. */
  end(directory: number): void {
    this.#rows.delete(directory);
  }

  lengthOf(directory: number): number {
    const row = this.#rows.get(directory);
    return row !== undefined && performance.now() - row.lastMs < this.#rowMs ? row.count : 0;
  }
}
