import { ServiceError } from '../../base/errors.ts';

/** How many locks of all files together this server keeps in memory. */
export interface LockBounds {
  readonly server: number;
  /** Of one token or certificate; of one client where nobody is asked who he is. */
  readonly holder: number;
}

export const LOCK_BOUNDS: LockBounds = { server: 1_000_000, holder: 100_000 };

/** Who has how many of the locks of all files that a server is primary of. */
export class LockShares {
  readonly #bounds: LockBounds;
  readonly #held = new Map<string, number>();
  #total = 0;

  constructor(bounds: LockBounds = LOCK_BOUNDS) {
    this.#bounds = bounds;
  }

  of(holder: string): number {
    return this.#held.get(holder) ?? 0;
  }

  /** @param count locks more, or less where it is negative */
  add(holder: string, count: number): void {
    this.#total += count;
    const now = this.of(holder) + count;
    if (now === 0) this.#held.delete(holder);
    else this.#held.set(holder, now);
  }

  /** @throws ServiceError `lock-limit` where `holder` may have no further lock */
  check(holder: string): void {
    const { server, holder: own } = this.#bounds;
    if (this.of(holder) >= own) {
      throw new ServiceError('lock-limit', `"${holder}" has ${own} locks on files of this server already`);
    }
    if (this.#total >= server) {
      throw new ServiceError('lock-limit', `This server keeps ${server} locks already, and no more`);
    }
  }
}
