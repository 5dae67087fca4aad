import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { IndexGuard } from './index-guard.ts';
import { type IndexStatements, putFileRow } from './index-statements.ts';

/** Objects that one file borrows from another. Changed within a commit only. */
export class LentRows {
  readonly #statements: IndexStatements;
  readonly #guard: IndexGuard;

  constructor(statements: IndexStatements, guard: IndexGuard) {
    this.#statements = statements;
    this.#guard = guard;
  }

  /** Slots of its lender's container that a file has objects in. Reads all of them at once. */
  slots(file: FileId): number[] {
    return this.#guard.read(() => this.#statements.borrowedSlots.all(file));
  }

  putBorrower(file: FileId, state: FileState): void {
    putFileRow(this.#statements, file, state);
    this.#statements.removedDelete.run(file);
  }

  lend(file: FileId, lender: FileId, first: number, last: number): void {
    this.#statements.objectsLend.run(file, lender, first, last);
  }

  /** Deletes the file's objects. @param isBegun new ones follow: the next start deletes them if the file is missing */
  delete(file: FileId, isBegun = false): void {
    this.#statements.objectsDelete.run(file, 0, Number.MAX_SAFE_INTEGER);
    if (isBegun) this.#statements.removedPut.run(file);
    else this.#statements.removedDelete.run(file);
  }
}
