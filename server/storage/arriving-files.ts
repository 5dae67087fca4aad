import type { FileId } from '../../base/ids.ts';
import { isNoSpace } from './failures.ts';
import type { IndexDatabase } from './index-database.ts';

export interface LendingIndex extends Pick<IndexDatabase, 'commit' | 'file'> {
  readonly lent: Pick<IndexDatabase['lent'], 'delete'>;
}

interface Arrival {
  readonly lender: FileId;
  hasFailed: boolean;
}

/**
 * Files that are being preserved here, with objects borrowed from another file. Until such a file is installed or its
 * remains are removed, no file of that number is created: it would find the borrowed objects. On a full disk the
 * removal may fail; it is retried whenever the file is to be created, and at the next start.
 */
export class ArrivingFiles {
  readonly #index: LendingIndex;
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

  end(file: FileId): void {
    this.#files.delete(file);
  }

  /** Removes what is left of a failed installation. @throws if the disk refuses that */
  async failed(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival !== undefined) arrival.hasFailed = true;
    await this.takeBack(file);
  }

  /**
   * Removes what is left of a failed file, but not a file that may still be installed. @throws if the disk refuses that
   */
  async takeBack(file: FileId): Promise<void> {
    const arrival = this.#files.get(file);
    if (arrival?.hasFailed !== true) return;
    const isLeft = (): boolean => this.#files.get(file) === arrival;
    await this.#index.commit(() => {
      // Its operation may have been applied again meanwhile: then these are the objects of that attempt.
      if (isLeft() && this.#index.file(file) === null) this.#index.lent.delete(file);
    });
    if (!isLeft()) return;
    this.#files.delete(file);
    await this.#returned(arrival.lender, file);
  }

  takeBackSoon(file: FileId, failed: (cause: unknown) => void): void {
    this.takeBack(file).catch((cause: unknown) => {
      if (!isNoSpace(cause)) failed(cause);
    });
  }
}
