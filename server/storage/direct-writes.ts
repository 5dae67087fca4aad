import { PAGE_BYTES } from '../../base/page-memory.ts';
import { DiskPace } from './disk-pace.ts';
import { errorCode } from './failures.ts';

const CACHED_BYTES = 16 * 1024 * 1024;
const DIRECT_BYTES_MIN = 1024 * 1024;
/** Each occupies one of the eight threads; reads and syncs need some as well. */
const CONCURRENT_MAX = 4;

const REFUSALS = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP']);

/** `auto`: if file system and disk are suitable. */
export const DIRECT_WRITES_MODES = ['auto', 'off'] as const;
export type DirectWritesMode = (typeof DIRECT_WRITES_MODES)[number];

export interface DirectWritesOptions {
  readonly mode?: DirectWritesMode;
  /** This much of the beginning of each container stays in the page cache: small files are likely to be read soon. */
  readonly cachedBytes?: number;
  /** Smaller writes go through the page cache: there they cost no more processor time, and return sooner. */
  readonly bytesMin?: number;
  readonly refused?: (reason: string) => void;
}

interface DirectPart {
  readonly from: number;
  readonly to: number;
}

/** Decides which contents of a data folder bypass the page cache (decision 0061). */
export class DirectWrites {
  readonly #refused: (reason: string) => void;
  readonly #cachedBytes: number;
  readonly #bytesMin: number;
  readonly #pace: DiskPace;
  #isPossible: boolean;
  #bytes = 0;

  constructor(nowMs: () => number, options: DirectWritesOptions = {}) {
    this.#isPossible = options.mode !== 'off';
    this.#cachedBytes = options.cachedBytes ?? CACHED_BYTES;
    this.#bytesMin = options.bytesMin ?? DIRECT_BYTES_MIN;
    this.#refused = options.refused ?? (() => undefined);
    this.#pace = new DiskPace(nowMs);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** @returns the whole pages of a write, as offsets within it, that bypass the page cache; null if none do */
  partOf(position: number, byteCount: number): DirectPart | null {
    if (!this.#isPossible || position < this.#cachedBytes || byteCount < this.#bytesMin) return null;
    if (this.#pace.inProgressCount >= CONCURRENT_MAX || this.#pace.isSlow) return null;
    const end = position + byteCount;
    const from = Math.ceil(position / PAGE_BYTES) * PAGE_BYTES - position;
    const to = Math.floor(end / PAGE_BYTES) * PAGE_BYTES - position;
    return from < to ? { from, to } : null;
  }

  /**
   * @param write writes directly, and returns the number of bytes written
   * @returns that number; 0 if the file system does not support it, which is not tried again
   */
  async tryWrite(write: () => Promise<number>): Promise<number> {
    let count = 0;
    const ended = this.#pace.begin();
    try {
      count = await write();
    } catch (error) {
      if (!REFUSALS.has(errorCode(error))) throw error;
      if (this.#isPossible) this.#refused((error as Error).message);
      this.#isPossible = false;
    } finally {
      ended(count);
    }
    this.#bytes += count;
    return count;
  }
}
