import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumbers } from '../../catalog/inode-numbers.ts';

/** Numbers by which the limit is raised, and of which so many are left when it is raised ahead of need. */
const WINDOW = 2 ** 16;
const LOW = WINDOW / 2;

export interface NumberWindowParts {
  /** As the latest command has left them. */
  numbers(): CatalogNumbers;
  /** The counter of the epoch in which this server is primary. */
  epoch(): number;
  isPrimary(): boolean;
  /** Executes the command that raises the limit, unless this server is the primary no more. */
  extend(limit: number): Promise<void>;
  /** Resolves when all that is committed survives a loss of power of all servers. */
  flush(): Promise<void>;
}

/**
 * The inode numbers that the primary of a volume's catalog may give out: those below a limit that it has flushed in its
 * epoch. A loss of power of all servers may undo that numbers were given out, but not the limit, at which the next
 * epoch begins (the rules `limit-flushed` and `epoch-skips` of model/volumes).
 */
export class NumberWindow {
  readonly #parts: NumberWindowParts;
  /** The flushed limit, and the epoch in which it was flushed. */
  #flushed = { epoch: 0, limit: 0 };
  #flushing: Promise<void> | null = null;

  constructor(parts: NumberWindowParts) {
    this.#parts = parts;
  }

  /** The next number; an epoch begins at the limit. */
  next(): number {
    const { next, limit, epoch } = this.#parts.numbers();
    return epoch === this.#parts.epoch() ? next : limit;
  }

  /** Whether numbers before `next` may be given out. */
  covers(next: number): boolean {
    const { epoch, limit } = this.#flushed;
    return epoch === this.#parts.epoch() && next <= limit;
  }

  /**
   * Raises the limit before the numbers are used up, so that no batch waits for its flush; call between batches. If
   * that fails, a batch that needs the numbers tries again, and gets the error.
   */
  async raiseAhead(): Promise<void> {
    if (!this.#parts.isPrimary()) return;
    try {
      const limit = this.#raised(LOW);
      if (limit === null) return;
      await this.#parts.extend(limit);
      this.#flush().catch(() => undefined);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  /**
   * Resolves when there are `count` numbers, or this server is the primary no more; call between batches.
   * @throws ServiceError if the limit cannot be raised
   */
  async raiseFor(count: number): Promise<void> {
    while (this.#parts.isPrimary() && !this.covers(this.next() + count)) {
      const limit = this.#raised(count);
      if (limit !== null) await this.#parts.extend(limit);
      else if (!this.#parts.numbers().serves)
        throw new ServiceError('busy', 'The catalog does not serve now');
      // It may be one that began before the limit was raised.
      await this.#flush();
    }
  }

  /** @returns the limit that leaves `count` numbers; null if the present one does, or numbers cannot be given out */
  #raised(count: number): number | null {
    const { limit, end, serves } = this.#parts.numbers();
    if (!serves || limit === end || limit - this.next() >= count) return null;
    return Math.min(end, limit + Math.max(count, WINDOW));
  }

  #flush(): Promise<void> {
    this.#flushing ??= this.#flushLimit().finally(() => {
      this.#flushing = null;
    });
    return this.#flushing;
  }

  async #flushLimit(): Promise<void> {
    const epoch = this.#parts.epoch();
    const { limit } = this.#parts.numbers();
    await this.#parts.flush();
    this.#flushed = { epoch, limit };
  }
}
