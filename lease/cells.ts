import { assert } from '../base/assert.ts';
import type { CellId } from '../base/ids.ts';
import { Cell } from './cell.ts';
import type { CellContext } from './cell-cursor.ts';
import type { KnownView } from './group.ts';

/** All cells and their due times. One object represents them all: a returned cell is valid until the next call. */
export class Cells {
  readonly #context: CellContext;
  readonly #cell: Cell;
  readonly #knownView: (cell: CellId) => KnownView | null;

  constructor(context: CellContext, knownView: (cell: CellId) => KnownView | null) {
    this.#context = context;
    this.#cell = new Cell(context);
    this.#knownView = knownView;
  }

  get size(): number {
    return this.#context.table.size;
  }

  get canAddIncarnations(): boolean {
    return this.#context.table.canAddIncarnations();
  }

  *[Symbol.iterator](): Generator<Cell> {
    for (const row of this.#context.table.rows()) yield this.#cell.moveTo(row);
  }

  atRow(row: number): Cell {
    return this.#cell.moveTo(row);
  }

  findOrAdd(id: CellId, nowMs: number): Cell {
    const { table, wheel, parameters } = this.#context;
    const row = table.find(id);
    if (row !== null) return this.#cell.moveTo(row);
    const added = table.add(id);
    wheel.insert(added, nowMs + parameters.forgetMs, nowMs);
    const cell = this.#cell.moveTo(added);
    const known = this.#knownView(id);
    if (known !== null) cell.setView(known);
    return cell;
  }

  find(id: CellId): Cell | null {
    const row = this.#context.table.find(id);
    return row === null ? null : this.#cell.moveTo(row);
  }

  remove(cell: Cell): void {
    const { row } = cell;
    cell.forget();
    this.#context.table.remove(row);
  }

  /** Called after each event of a cell: drops its finished work, and sets when it is due. */
  reschedule(cell: Cell, nowMs: number): void {
    const dueMs = cell.finishStep(nowMs);
    if (dueMs !== null) this.#context.wheel.move(cell.row, dueMs);
  }

  firstDueMs(): number | null {
    return this.#context.wheel.firstMs();
  }

  /** @returns a due cell or null; the caller calls `putBack` or `remove` before it takes the next one */
  takeDue(nowMs: number): Cell | null {
    const row = this.#context.wheel.take(nowMs);
    return row === null ? null : this.#cell.moveTo(row);
  }

  /** Puts a cell from `takeDue` back into the wheel. */
  putBack(cell: Cell, nowMs: number): void {
    const dueMs = cell.finishStep(nowMs) ?? nowMs;
    assert(dueMs > nowMs, 'A tick leaves nothing due');
    this.#context.wheel.insert(cell.row, dueMs, nowMs);
  }
}
