import { ServiceError } from '../../base/errors.ts';

/** Whether a store has failed, until a restart: after a failed sync the contents of the disk are unknown. */
export class FailureState {
  readonly #failed: (reason: string) => void;
  #error: ServiceError | null = null;

  constructor(failed: (reason: string) => void) {
    this.#failed = failed;
  }

  get failed(): boolean {
    return this.#error !== null;
  }

  get reason(): string | null {
    return this.#error?.message ?? null;
  }

  set(cause: unknown): void {
    if (this.#error !== null) return;
    const reason = cause instanceof Error ? cause.message : String(cause);
    this.#error = new ServiceError(
      'storage',
      `Cannot use the store: the disk failed (${reason}); check it and restart the server`,
      {},
      { cause },
    );
    this.#failed(this.#error.message);
  }

  check(): void {
    if (this.#error !== null) throw this.#error;
  }
}
