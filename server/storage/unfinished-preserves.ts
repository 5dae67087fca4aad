import type { FileId } from '../../base/ids.ts';
import { isNoSpace } from './failures.ts';
import type { IndexDatabase } from './index-database.ts';
import { commitInSlices, ROWS_PER_SLICE } from './slices.ts';

export interface LendingIndex extends Pick<IndexDatabase, 'commit' | 'file'> {
  readonly lent: Pick<IndexDatabase['lent'], 'delete'>;
}

interface Attempt {
  readonly lender: FileId;
  hasFailed: boolean;
}

/**
 * Files that are being preserved here (see `preserve`), with objects borrowed from another file. Until such a file is
 * in the index, or its borrowed objects are removed, no file of that number is created: it would find these objects. On
 * a full disk the removal may fail; it is retried when the file is to be created, and at the next start.
 */
export class UnfinishedPreserves {
  readonly #index: LendingIndex;
  readonly #endLoans: (lender: FileId, borrower: FileId) => Promise<void>;
  readonly #files = new Map<FileId, Attempt>();

  constructor(index: LendingIndex, returned: (lender: FileId, borrower: FileId) => Promise<void>) {
    this.#index = index;
    this.#endLoans = returned;
  }

  has(file: FileId): boolean {
    return this.#files.has(file);
  }

  begin(file: FileId, lender: FileId): void {
    this.#files.set(file, { lender, hasFailed: false });
  }

  end(file: FileId): void {
    this.#files.delete(file);
  }

  /** The file could not be preserved: removes the objects lent to it so far. @throws if the disk refuses that */
  async undo(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival !== undefined) arrival.hasFailed = true;
    await this.undoIfFailed(file);
  }

  /** Undoes a failed attempt, at its failure or before a create of the file. @throws if the disk refuses that */
  async undoIfFailed(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival?.hasFailed !== true) return;
    const isSameAttempt = (): boolean => this.#files.get(file) === arrival;
    await commitInSlices(
      this.#index,
      // A new attempt may have begun while the commit waited: then the borrowed objects are its own.
      () =>
        isSameAttempt() && this.#index.file(file) === null && this.#index.lent.delete(file, ROWS_PER_SLICE),
    );
    if (!isSameAttempt()) return;
    this.#files.delete(file);
    await this.#endLoans(arrival.lender, file);
  }

  undoIfFailedInBackground(file: FileId, failed: (cause: unknown) => void): void {
    this.undoIfFailed(file).catch((cause: unknown) => {
      if (!isNoSpace(cause)) failed(cause);
    });
  }
}
