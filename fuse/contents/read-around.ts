import { BoundedMap } from '../../base/bounded-map.ts';

/** Blocks of which it is remembered how often they were missed; beyond that, those missed longest ago are forgotten. */
const BLOCKS_KNOWN_MAX = 16_384;
/** A block costs at least so many single reads, whatever was measured: one miss says nothing about the next. */
const PRICE_MIN = 2;
/** And at the most, so that a few slow blocks do not end it for good. */
const PRICE_MAX = 64;
/** What a block costs before one was measured. */
const PRICE_UNKNOWN = 4;
/** Weight of the newest measurement in an average. */
const WEIGHT = 0.1;

interface Missed {
  /** Since the block was fetched last. */
  count: number;
  /** How many times its price has to be paid by misses before it is fetched. Doubles with each fetch. */
  reluctance: number;
}

/**
 * Decides when reads at random are worth the whole block around them. As with skis, which are bought once renting them
 * has cost as much: a block is fetched when single reads in it have taken as long as the block would. Whatever programs
 * do, that is at most twice what the better choice would have taken. A block that is missed after it was given to the
 * kernel was dropped there for want of memory, and has to be paid twice as often the next time.
 */
export class ReadAround {
  /** The latest missed last. */
  readonly #missed = new BoundedMap<string, Missed>(BLOCKS_KNOWN_MAX);
  #singleMs: number | null = null;
  #blockMs: number | null = null;

  /** @returns whether the block is to be fetched as a whole */
  missed(key: string): boolean {
    const missed = this.#missed.get(key) ?? { count: 0, reluctance: 1 };
    this.#missed.set(key, missed);
    missed.count++;
    return missed.count >= this.#price() * missed.reluctance;
  }

  /** The kernel has the block: what is missed of it from now on, it has dropped. */
  given(key: string): void {
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

  /** Of a block, in single reads. */
  #price(): number {
    if (this.#singleMs === null || this.#blockMs === null) return PRICE_UNKNOWN;
    return Math.min(Math.max(this.#blockMs / Math.max(this.#singleMs, 0.01), PRICE_MIN), PRICE_MAX);
  }
}

function averageWith(average: number | null, value: number): number {
  return average === null ? value : average + (value - average) * WEIGHT;
}
