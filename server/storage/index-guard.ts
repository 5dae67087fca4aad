import { storageError } from './failures.ts';

/** Reads of the index: after a failed one, the index cannot be trusted. */
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
