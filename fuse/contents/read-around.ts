import { BoundedMap } from '../../base/bounded-map.ts';

const BLOCKS_KNOWN_MAX = 16_384;
/** The price of a block, in single reads: at least this, since one miss says nothing about the next. */
const PRICE_MIN = 2;
/** At most this, so that a few slow blocks do not stop it forever. */
const PRICE_MAX = 64;
const PRICE_UNKNOWN = 4;
const WEIGHT = 0.1;

interface Missed {
  /** Single reads since the last fetch of the block. */
  count: number;
  /** How often misses have to pay the price before a fetch; doubles with each fetch. */
  reluctance: number;
}

/**
 * Decides when random reads justify a fetch of the block. As in the ski rental problem, it is fetched when single reads
 * in it have taken as long: at most twice the time of the better choice. A block that is missed after the kernel got it
 * was evicted for lack of memory, and costs twice as much the next time.
 */
export class ReadAround {
  readonly #missed = new BoundedMap<string, Missed>(BLOCKS_KNOWN_MAX);
  #singleMs: number | null = null;
  #blockMs: number | null = null;

  /** Counts a single read in a block that is not here. @returns whether the whole block should be fetched */
  countMiss(key: string): boolean {
    const missed = this.#missed.get(key) ?? { count: 0, reluctance: 1 };
    this.#missed.set(key, missed);
    missed.count++;
    return missed.count >= this.#price() * missed.reluctance;
  }

  /** The kernel has the block: a later miss means that it was evicted. */
  storedInKernel(key: string): void {
    const missed = this.#missed.get(key);
    if (missed === undefined) return;
    missed.count = 0;
    missed.reluctance = Math.min(missed.reluctance * 2, PRICE_MAX);
  }

  singleTook(ms: number): void {
    this.#singleMs = averageWith(this.#singleMs, ms);
  }

  blockTook(ms: number): void {
    this.#blockMs = averageWith(this.#blockMs, ms);
  }

  /** How many single reads take as long as the fetch of a block. */
  #price(): number {
    if (this.#singleMs === null || this.#blockMs === null) return PRICE_UNKNOWN;
    return Math.min(Math.max(this.#blockMs / Math.max(this.#singleMs, 0.01), PRICE_MIN), PRICE_MAX);
  }
}

function averageWith(average: number | null, value: number): number {
  return average === null ? value : average + (value - average) * WEIGHT;
}
