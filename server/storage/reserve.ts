import { reserveBytes } from '../../base/disk-reserve.ts';
import { ServiceError } from '../../base/errors.ts';
import type { StoreSpace } from './store.ts';

/** Free space is measured again after this time, or after contents of this share of the space above the reserve. */
export const MEASUREMENT_VALID_MS = 100;
export const MEASUREMENT_VALID_SHARE = 1 / 64;

/** Refuses contents of any primary below half the reserve: that half is for promises and the catalog's deletions. */
export class DiskReserve {
  readonly #space: () => StoreSpace;
  readonly #nowMs: () => number;
  #measuredMs = -Infinity;
  #allowedBytes = 0;
  #isLow = false;
  #isOut = false;
  changed: (isLow: boolean) => void = () => undefined;

  constructor(space: () => StoreSpace, nowMs: () => number) {
    this.#space = space;
    this.#nowMs = nowMs;
  }

  /** Whether less than the reserve was free at the last measurement. */
  get isLow(): boolean {
    return this.#isLow;
  }

  /** Called before contents are stored. @throws ServiceError `no-space` while less than half of the reserve is free */
  assertFor(bytes: number): void {
    if (this.#isLow || bytes > this.#allowedBytes || this.#nowMs() - this.#measuredMs >= MEASUREMENT_VALID_MS)
      this.measure();
    this.#allowedBytes -= bytes;
    if (this.#isOut)
      throw new ServiceError(
        'no-space',
        'The disk is full; only the reserve for names and promises is left: delete files or add space',
      );
  }

  measure(): void {
    const { totalBytes, freeBytes } = this.#space();
    const reserve = reserveBytes(totalBytes);
    this.#measuredMs = this.#nowMs();
    this.#allowedBytes = (freeBytes - reserve) * MEASUREMENT_VALID_SHARE;
    this.#isOut = freeBytes < reserve / 2;
    const isLow = freeBytes < reserve;
    if (isLow === this.#isLow) return;
    this.#isLow = isLow;
    this.changed(isLow);
  }
}
