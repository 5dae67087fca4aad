import { assert } from '../../base/assert.ts';
import type { World } from '../../base/world.ts';
import { type DeadlineOf, withDeadline } from '../deadline.ts';

const MEBIBYTE = 1024 * 1024;
const BYTES_MAX = 64 * MEBIBYTE;

export interface BudgetLimits {
  readonly bytesMax?: number;
  readonly countMax?: number;
}

/** Shares of the budget. They bound what a recall, an unmount and `fsync` of the root wait for. */
export const BUDGET_SHARES = {
  create: { countMax: 2_000, bytesMax: 16 * MEBIBYTE },
  unlink: { countMax: 500 },
  /** Beyond, reads are not recorded. */
  'access-time': { countMax: 20_000 },
} as const satisfies Readonly<Record<string, BudgetLimits>>;

interface Waiting {
  readonly bytes: number;
  readonly admit: () => void;
}

/** Bounds the count and bytes of pending operations. What is in a share also counts in the whole budget. */
export class Budget {
  readonly #world: World;
  readonly #bytesMax: number;
  readonly #countMax: number;
  readonly #whole: Budget | null;
  readonly #waiting: Waiting[] = [];
  readonly #released: (() => void)[] = [];
  #bytes = 0;
  #count = 0;

  constructor(world: World, limits: BudgetLimits = { bytesMax: BYTES_MAX }, whole: Budget | null = null) {
    this.#world = world;
    this.#bytesMax = limits.bytesMax ?? Number.POSITIVE_INFINITY;
    this.#countMax = limits.countMax ?? Number.POSITIVE_INFINITY;
    this.#whole = whole;
  }

  share(limits: BudgetLimits): Budget {
    return new Budget(this.#world, limits, this);
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isFull(): boolean {
    return this.#count >= this.#countMax || this.#bytes > this.#bytesMax || this.#whole?.isFull === true;
  }

  /** Admits the bytes without a wait; fails if another caller waits. */
  tryReserve(bytes: number): boolean {
    if (this.#waiting.length > 0 || !this.#fits(bytes)) return false;
    if (this.#whole?.tryReserve(bytes) === false) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Admits the bytes once they fit. @throws ErrnoError `ETIMEDOUT` */
  async reserve(bytes: number, limitMs: number, deadlineOf?: DeadlineOf): Promise<void> {
    if (this.tryReserve(bytes)) return;
    if (this.#waiting.length === 0 && this.#fits(bytes)) this.#bytes += bytes;
    else await this.#admitted(bytes, limitMs, deadlineOf);
    try {
      await this.#whole?.reserve(bytes, limitMs, deadlineOf);
    } catch (error) {
      this.#bytes -= bytes;
      this.#admitNext();
      throw error;
    }
  }

  /** Counts operations without a wait, even beyond the limits: callers check `isFull` before. */
  add(count: number, bytes: number): void {
    this.#count += count;
    this.#bytes += bytes;
    this.#whole?.add(count, bytes);
  }

  /** Called when operations have ended: admits callers of `reserve` that fit now, and resolves `untilReleased`. */
  release(bytes: number, count = 0): void {
    this.#count -= count;
    this.#bytes -= bytes;
    assert(this.#bytes >= 0 && this.#count >= 0, 'No more is released than was reserved');
    this.#whole?.release(bytes, count);
    this.#admitNext();
    for (const resume of this.#released.splice(0)) resume();
  }

  untilReleased(): Promise<void> {
    return new Promise((resolve) => this.#released.push(resolve));
  }

  async #admitted(bytes: number, limitMs: number, deadlineOf?: DeadlineOf): Promise<void> {
    const { promise, resolve: admit } = Promise.withResolvers<void>();
    const entry: Waiting = { bytes, admit };
    this.#waiting.push(entry);
    try {
      await withDeadline(this.#world, promise, limitMs, 'Waiting for space in the write buffer', deadlineOf);
    } catch (error) {
      const index = this.#waiting.indexOf(entry);
      // Admitted in the same tick in which its time limit passed: the bytes are returned.
      if (index < 0) this.#bytes -= bytes;
      else this.#waiting.splice(index, 1);
      this.#admitNext();
      throw error;
    }
  }

  #admitNext(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.bytes); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#bytes += next.bytes;
      next.admit();
    }
  }

  /** Bytes that exceed the limit by themselves are admitted when there are no others. */
  #fits(bytes: number): boolean {
    return this.#bytes === 0 || this.#bytes + bytes <= this.#bytesMax;
  }
}
