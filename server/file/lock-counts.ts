import { ServiceError } from '../../base/errors.ts';

export interface LockBounds {
  readonly server: number;
  readonly holder: number;
}

export const LOCK_BOUNDS: LockBounds = { server: 1_000_000, holder: 100_000 };

/** Counts the locks at this server, in all and of each holder, against bounds. */
export class LockCounts {
  readonly #bounds: LockBounds;
  readonly #counts = new Map<string, number>();
  #total = 0;

  constructor(bounds: LockBounds = LOCK_BOUNDS) {
    this.#bounds = bounds;
  }

  countOf(holder: string): number {
    return this.#counts.get(holder) ?? 0;
  }

  add(holder: string, count: number): void {
    this.#total += count;
    const now = this.countOf(holder) + count;
    if (now === 0) this.#counts.delete(holder);
    else this.#counts.set(holder, now);
  }

  /** @throws ServiceError `lock-limit` if `holder` may have no further lock */
  assertBelowBounds(holder: string): void {
    const { server, holder: own } = this.#bounds;
    if (this.countOf(holder) >= own) {
      throw new ServiceError(
        'lock-limit',
        `"${holder}" has ${own} locks at this server, the maximum: release some`,
      );
    }
    if (this.#total >= server) {
      throw new ServiceError('lock-limit', `This server has ${server} locks, the maximum: retry later`);
    }
  }
}
