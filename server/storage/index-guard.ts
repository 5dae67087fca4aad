import { storageError } from './failures.ts';

/** Reads of the index: after one that fails, the index is not to be trusted. */
export class IndexGuard {
  readonly #onFailure: (error: unknown) => void;

  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** @throws ServiceError where it fails */
  read<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      this.#onFailure(error);
      throw storageError('Cannot read the index', error);
    }
  }
}
