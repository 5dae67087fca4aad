import type { FileId } from '../../base/ids.ts';
import { isNoSpace } from './failures.ts';
import type { IndexDatabase } from './index-database.ts';

/** What of the index is needed here. */
export interface LendingIndex extends Pick<IndexDatabase, 'commit' | 'file'> {
  readonly lent: Pick<IndexDatabase['lent'], 'delete'>;
}

interface Arrival {
  readonly lender: FileId;
  /** It did not come to be: what tells of its objects is to be taken out of the index. */
  hasFailed: boolean;
}

/**
 * Files that are about to be here, each with objects that it borrows of another. Until such a file is here, or nothing is left of it, no
 * file of that number is made: it would find the objects. A disk that is full may refuse even to take out what tells of them; that is tried again
 * whenever the file is to be made, and the next start does it at the latest.
 */
export class ArrivingFiles {
  readonly #index: LendingIndex;
  /** Nothing is lent to the file any more. */
  readonly #returned: (lender: FileId, borrower: FileId) => Promise<void>;
  readonly #files = new Map<FileId, Arrival>();

  constructor(index: LendingIndex, returned: (lender: FileId, borrower: FileId) => Promise<void>) {
    this.#index = index;
    this.#returned = returned;
  }

  has(file: FileId): boolean {
    return this.#files.has(file);
  }

  begin(file: FileId, lender: FileId): void {
    this.#files.set(file, { lender, hasFailed: false });
  }

  /** It is here. */
  end(file: FileId): void {
    this.#files.delete(file);
  }

  /** @throws where the disk does not let it be taken back now */
  async failed(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival !== undefined) arrival.hasFailed = true;
    await this.takeBack(file);
  }

  /** Takes back what is left of a file that did not come to be. One that may come still stays. @throws as `failed` does */
  async takeBack(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival?.hasFailed !== true) return;
    const isLeft = (): boolean => this.#files.get(file) === arrival;
    await this.#index.commit(() => {
      // Its operation may have been given again meanwhile: then these are the objects of that attempt.
      if (isLeft() && this.#index.file(file) === null) this.#index.lent.delete(file);
    });
    if (!isLeft()) return;
    this.#files.delete(file);
    await this.#returned(arrival.lender, file);
  }

  /** As `takeBack`, by itself. */
  takeBackSoon(file: FileId, failed: (cause: unknown) => void): void {
    this.takeBack(file).catch((cause: unknown) => {
      if (!isNoSpace(cause)) failed(cause);
    });
  }
}
