import { PAGE_BYTES } from '../../base/page-memory.ts';
import { DiskPace } from './disk-pace.ts';
import { errorCode } from './failures.ts';

const CACHED_BYTES = 16 * 1024 * 1024;
const DIRECT_BYTES_MIN = 1024 * 1024;
/** Each takes one of the eight threads until the disk has it; reads and syncs need some as well. */
const UNDER_WAY_MAX = 4;

/** What systems say whose file system has no direct writes, or wants them otherwise. */
const REFUSALS = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP']);

/** `auto`: where file system and disk are made for it. */
export const DIRECT_WRITES_MODES = ['auto', 'off'] as const;
export type DirectWritesMode = (typeof DIRECT_WRITES_MODES)[number];

export interface DirectWritesOptions {
  /** `auto` if it is not said. */
  readonly mode?: DirectWritesMode;
  /** Files that are no larger stay in the page cache, for they are likely to be read soon: so much of the beginning of each container. */
  readonly cachedBytes?: number;
  /** Writes of less go through the page cache, too: they cost the processor no more there, and are not waited for. */
  readonly bytesMin?: number;
  /** Told once, where the file system does not know direct writes. */
  readonly refused?: (reason: string) => void;
}

/** Part of the bytes of a write: those from `from` to before `to`. */
interface DirectPart {
  readonly from: number;
  readonly to: number;
}

/** Which contents of one data folder go to the disk past the page cache (decision 0061). */
export class DirectWrites {
  readonly #refused: (reason: string) => void;
  readonly #cachedBytes: number;
  readonly #bytesMin: number;
  readonly #pace: DiskPace;
  #isPossible: boolean;
  #bytes = 0;

  /** @param nowMs monotonic, in milliseconds */
  constructor(nowMs: () => number, options: DirectWritesOptions = {}) {
    this.#isPossible = options.mode !== 'off';
    this.#cachedBytes = options.cachedBytes ?? CACHED_BYTES;
    this.#bytesMin = options.bytesMin ?? DIRECT_BYTES_MIN;
    this.#refused = options.refused ?? (() => undefined);
    this.#pace = new DiskPace(nowMs);
  }

  /** Bytes that were written so. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * @param position in the container, and how many bytes are written from there on
   * @returns the whole pages among them that are to be written directly; null where there are none
   */
  partOf(position: number, byteCount: number): DirectPart | null {
    if (!this.#isPossible || position < this.#cachedBytes || byteCount < this.#bytesMin) return null;
    if (this.#pace.underWay >= UNDER_WAY_MAX || this.#pace.isSlow) return null;
    const end = position + byteCount;
    const from = Math.ceil(position / PAGE_BYTES) * PAGE_BYTES - position;
    const to = Math.floor(end / PAGE_BYTES) * PAGE_BYTES - position;
    return from < to ? { from, to } : null;
  }

  /**
   * @param write writes directly, and returns how many bytes of it
   * @returns how many were written; 0 where the file system does not know it, and will not be asked again
   */
  async tried(write: () => Promise<number>): Promise<number> {
    let count = 0;
    const ended = this.#pace.begun();
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
