import { reserveBytes } from '../../base/disk-reserve.ts';
import { ServiceError } from '../../base/errors.ts';
import { MEASUREMENT_VALID_MS, MEASUREMENT_VALID_SHARE } from '../storage/reserve.ts';
import type { FileStore } from '../storage/store.ts';

/**
 * Refuses writes while the disk here is nearly full, before they are ordered: if the disk refused an ordered operation,
 * the replica would fail. Measures the free space again after a while, or once the writes have used a part of it.
 */
export class FreeSpace {
  readonly #store: FileStore;
  readonly #nowMs: () => number;
  #measuredMs = -Infinity;
  #allowedBytes = 0;
  #isFull = false;

  constructor(store: FileStore, nowMs: () => number) {
    this.#store = store;
    this.#nowMs = nowMs;
  }

  async assertFree(bytes: number): Promise<void> {
    const nowMs = this.#nowMs();
    if (this.#isFull || bytes > this.#allowedBytes || nowMs - this.#measuredMs >= MEASUREMENT_VALID_MS) {
      this.#measuredMs = nowMs;
      const { freeBytes, totalBytes } = await this.#store.space();
      const usableBytes = freeBytes - bytes - reserveBytes(totalBytes);
      this.#isFull = usableBytes < 0;
      this.#allowedBytes = usableBytes * MEASUREMENT_VALID_SHARE;
    } else this.#allowedBytes -= bytes;
    if (this.#isFull) {
      throw new ServiceError(
        'no-space',
        'The disk of the primary is full: delete files (the space is freed within seven minutes), or add servers',
      );
    }
  }
}
