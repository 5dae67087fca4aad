import { storageError } from './failures.ts';

/** Runs reads of the index: after one that fails, the index cannot be trusted, and the store fails. */
export class IndexGuard {
  readonly #onFailure: (error: unknown) => void;

  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  read<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      this.#onFailure(error);
      throw storageError('Cannot read the index', error);
    }
  }
}
