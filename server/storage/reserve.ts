import { reserveBytes } from '../../base/disk-reserve.ts';
import { ServiceError } from '../../base/errors.ts';
import type { StoreSpace } from './store.ts';

/** Contents go by an older look at the disk, but no longer than this, and for no more than this share of what was free. */
export const LOOK_MS = 100;
export const LOOK_SHARE = 1 / 64;

/**
 * The last half of the reserve takes no contents, whoever ordered them: the room for a promise, or for the change of the
 * catalog that deletes a file, must not be filled by what others write.
 */
export class DiskReserve {
  readonly #space: () => StoreSpace;
  readonly #nowMs: () => number;
  #lookedMs = -Infinity;
  /** What may be stored before the next look. */
  #allowedBytes = 0;
  #isLow = false;
  #isOut = false;
  /** Told at each change of `isLow`. */
  changed: (isLow: boolean) => void = () => undefined;

  /**
   * @param space of the disk; throws the system's error where it cannot be asked
   * @param nowMs monotonic, in milliseconds
   */
  constructor(space: () => StoreSpace, nowMs: () => number) {
    this.#space = space;
    this.#nowMs = nowMs;
  }

  /** Less than the reserve was free at the last look. */
  get isLow(): boolean {
    return this.#isLow;
  }

  /**
   * To be called before contents are stored.
   *
   * @throws ServiceError `no-space` while less than half of the reserve is free
   */
  assertFor(bytes: number): void {
    if (this.#isLow || bytes > this.#allowedBytes || this.#nowMs() - this.#lookedMs >= LOOK_MS) this.look();
    this.#allowedBytes -= bytes;
    if (this.#isOut) throw new ServiceError('no-space', 'The disk is full but for what is kept for names');
  }

  look(): void {
    const { totalBytes, freeBytes } = this.#space();
    const reserve = reserveBytes(totalBytes);
    this.#lookedMs = this.#nowMs();
    this.#allowedBytes = (freeBytes - reserve) * LOOK_SHARE;
    this.#isOut = freeBytes < reserve / 2;
    const isLow = freeBytes < reserve;
    if (isLow === this.#isLow) return;
    this.#isLow = isLow;
    this.changed(isLow);
  }
}
