import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';

/** Bytes of operations in flight for one file; more wait. */
const IN_FLIGHT_BYTES_MAX = 32 * 1024 * 1024;
const BUSY_RETRY_MS = 500;

/** Changes of one file from admission until they are answered. */
export class ChangesInFlight {
  readonly #file: FileId;
  readonly #changes = new Set<Promise<void>>();
  readonly #waiters: (() => void)[] = [];
  #bytes = 0;
  #waitingBytes = 0;

  constructor(file: FileId) {
    this.#file = file;
  }

  /** @throws ServiceError `busy` if too many bytes wait: changes that cannot commit do not accumulate */
  async reserve(bytes: number): Promise<void> {
    if (this.#waitingBytes > IN_FLIGHT_BYTES_MAX) {
      throw new ServiceError('busy', `Too many pending writes to file ${this.#file}: retry later`, {
        retryAfterMs: BUSY_RETRY_MS,
      });
    }
    this.#waitingBytes += bytes;
    try {
      while (this.#bytes > 0 && this.#bytes + bytes > IN_FLIGHT_BYTES_MAX) {
        await new Promise<void>((resolve) => this.#waiters.push(resolve));
      }
    } finally {
      this.#waitingBytes -= bytes;
    }
    this.#bytes += bytes;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
    assert(this.#bytes >= 0, 'Bytes are released once');
    for (const wake of this.#waiters.splice(0)) wake();
  }

  /** Counts a change as in flight. @param bytes as given to `reserve` @returns a function that ends it */
  begin(bytes: number): () => void {
    let over = (): void => undefined;
    const change = new Promise<void>((resolve) => {
      over = resolve;
    });
    this.#changes.add(change);
    return () => {
      this.#changes.delete(change);
      this.release(bytes);
      over();
    };
  }

  allEnded(): Promise<unknown> {
    return Promise.all(this.#changes);
  }
}
