import { ServiceError } from '../../base/errors.ts';
import type { FileStore } from '../storage/store.ts';

/** Kept free for names, deletions and what other writers have in flight: so much, or this share of a small disk. */
const RESERVE_BYTES = 64 * 1024 * 1024;
const RESERVE_SHARE = 1 / 8;
/** Small writes go by an older look at the disk. */
const LOOK_BYTES = 32 * 1024;
const LOOK_MS = 100;

/**
 * Refuses writes while the disk is nearly full, before they have a place in the order: a replica whose
 * disk refuses an operation has failed, which helps nobody.
 */
export class Room {
  readonly #store: FileStore;
  readonly #nowMs: () => number;
  #lookedMs = -Infinity;
  #isFull = false;

  constructor(store: FileStore, nowMs: () => number) {
    this.#store = store;
    this.#nowMs = nowMs;
  }

  /** @throws ServiceError `no-space` */
  async assertFor(bytes: number): Promise<void> {
    const nowMs = this.#nowMs();
    if (this.#isFull || bytes >= LOOK_BYTES || nowMs - this.#lookedMs >= LOOK_MS) {
      this.#lookedMs = nowMs;
      const { freeBytes, totalBytes } = await this.#store.space();
      this.#isFull = freeBytes - bytes < Math.min(RESERVE_BYTES, totalBytes * RESERVE_SHARE);
    }
    if (this.#isFull) {
      throw new ServiceError(
        'no-space',
        'The disk of the primary is full: delete files, or give it more room',
      );
    }
  }
}
