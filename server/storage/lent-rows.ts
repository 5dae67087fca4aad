import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import { type IndexStatements, putFileRow } from './index-statements.ts';

/** Objects that one file borrows from another. Changed within a commit only. */
export class LentRows {
  readonly #statements: IndexStatements;

  constructor(statements: IndexStatements) {
    this.#statements = statements;
  }

  putBorrower(file: FileId, state: FileState): void {
    putFileRow(this.#statements, file, state);
    this.#statements.removedDelete.run(file);
  }

  lend(file: FileId, lender: FileId, first: number, last: number): void {
    this.#statements.objectsLend.run(file, lender, first, last);
  }

  /** New objects of the file follow: the next start deletes them if the file is missing. */
  begin(file: FileId): void {
    this.#statements.removedPut.run(file);
  }

  /** Deletes up to `countMax` objects of a file that is not here. @returns whether some are left */
  delete(file: FileId, countMax: number): boolean {
    const isLeft = this.#statements.objectsDeleteNext.run(file, file, countMax).changes === countMax;
    if (!isLeft) this.#statements.removedDelete.run(file);
    return isLeft;
  }
}
