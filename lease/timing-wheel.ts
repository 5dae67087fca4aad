import { assert } from '../base/assert.ts';
import { lowestBit } from '../base/bits.ts';

/** Buckets of the wheel: four leases ahead, with a thousand ticks to a lease. */
const BUCKETS = 4096;
const NONE = 0xffff_ffff;
/** `previous` of a bucket's first row is HEAD plus the bucket's number, above all row numbers. */
const HEAD = NONE - BUCKETS;
/** No row is due further ahead than this, so that its lower 32 bits determine its tick. */
const AHEAD_MAX = 2 ** 30;

/** The links that chain the rows of a bucket; stored in the rows. Numbers below 2^32. */
export interface WheelLinks {
  next(row: number): number;
  setNext(row: number, next: number): void;
  previous(row: number): number;
  setPrevious(row: number, previous: number): void;
  /** Tick at which the row is due, modulo 2^32. */
  due(row: number): number;
  setDue(row: number, due: number): void;
}

/**
 * Timing wheel over rows: eight bytes of links and four of time each. A row is in the bucket of a tick at or before
 * its due tick and moves on from there, so putting a row off, which every message does, writes one number.
 *
 * G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), scheme 6.
 */
export class TimingWheel {
  readonly #links: WheelLinks;
  /** Start: a whole number. Tick: a power of two. So the times of ticks are exact. */
  readonly #startedMs: number;
  readonly #tickMs: number;
  readonly #heads = new Uint32Array(BUCKETS);
  readonly #occupied = new Uint32Array(BUCKETS / 32);
  /** All ticks up to this one were handled. */
  #tick = 0;
  #rows = 0;

  /** @param lateMaxMs how late a row may be returned, in milliseconds */
  constructor(links: WheelLinks, startedMs: number, lateMaxMs: number) {
    assert(lateMaxMs > 0, 'Time passes');
    this.#links = links;
    this.#startedMs = Math.floor(startedMs);
    this.#tickMs = 2 ** Math.floor(Math.log2(lateMaxMs));
  }

  #tickOf(dueMs: number): number {
    const tick = Math.ceil((dueMs - this.#startedMs) / this.#tickMs);
    return Math.min(Math.max(this.#tick + 1, tick), this.#tick + AHEAD_MAX);
  }

  dueMs(row: number): number {
    return this.#msOf(this.#tickOfRow(row));
  }

  insert(row: number, dueMs: number, nowMs: number): void {
    // An empty wheel is not advanced, so it may be months behind.
    if (this.#rows === 0) this.#tick = Math.max(this.#tick, this.#ticksUntil(nowMs));
    const tick = this.#tickOf(dueMs);
    this.#links.setDue(row, tick);
    this.#link(row, tick);
  }

  /** Changes a row's due time; putting it off is cheap. */
  move(row: number, dueMs: number): void {
    const links = this.#links;
    const tick = this.#tickOf(dueMs);
    // The row stays in its earlier bucket and moves on when that one is due.
    if (tick >= this.#tickOfRow(row)) {
      links.setDue(row, tick);
      return;
    }
    this.remove(row);
    links.setDue(row, tick);
    this.#link(row, tick);
  }

  remove(row: number): void {
    const links = this.#links;
    const after = links.next(row);
    const before = links.previous(row);
    if (after !== NONE) links.setPrevious(after, before);
    if (before < HEAD) links.setNext(before, after);
    else {
      const bucket = before - HEAD;
      this.#heads[bucket] = after === NONE ? 0 : after + 1;
      if (after === NONE) this.#mark(bucket, false);
    }
    this.#rows--;
  }

  /** @returns when the first non-empty bucket is due, or null */
  firstMs(): number | null {
    if (this.#rows === 0) return null;
    return this.#msOf(this.#tick + this.#ahead());
  }

  /** Removes and returns a row due by `nowMs`, or null. */
  take(nowMs: number): number | null {
    const links = this.#links;
    const until = this.#ticksUntil(nowMs);
    while (this.#rows > 0) {
      const ahead = this.#ahead();
      if (this.#tick + ahead > until) return null;
      // Rows of tick `#tick + 1` are in the bucket that is due first.
      this.#tick += ahead - 1;
      const tick = this.#tick + 1;
      const bucket = tick % BUCKETS;
      for (let row = this.#head(bucket); row !== NONE; row = this.#head(bucket)) {
        this.remove(row);
        const left = links.due(row) - (tick >>> 0);
        const later = Math.max(left | 0, 0);
        if (later === 0) return row;
        this.#link(row, tick + later);
      }
      this.#tick = tick;
    }
    this.#tick = Math.max(this.#tick, until);
    return null;
  }

  #tickOfRow(row: number): number {
    // Ticks exceed 2^32; a row stores the lower 32 bits, and no row is due 2^31 ticks away.
    return this.#tick + ((this.#links.due(row) - (this.#tick >>> 0)) | 0);
  }

  #ticksUntil(nowMs: number): number {
    return Math.floor((nowMs - this.#startedMs) / this.#tickMs);
  }

  #msOf(tick: number): number {
    return this.#startedMs + tick * this.#tickMs;
  }

  /** Ticks from the last handled one to the first non-empty bucket: 1 to BUCKETS. The wheel has rows. */
  #ahead(): number {
    const first = (this.#tick + 1) % BUCKETS;
    const occupied = this.#occupied;
    let word = first >>> 5;
    let bits = (occupied[word] as number) & (-1 << (first & 31));
    for (let checked = 0; bits === 0; checked++) {
      assert(checked <= occupied.length, 'A wheel with rows has an occupied bucket');
      word = (word + 1) % occupied.length;
      bits = occupied[word] as number;
    }
    const bucket = word * 32 + lowestBit(bits);
    return ((bucket - first + BUCKETS) % BUCKETS) + 1;
  }

  /** Adds a row to the bucket of its tick or, beyond the wheel's range, to the bucket that is due last. */
  #link(row: number, tick: number): void {
    const links = this.#links;
    const bucket = Math.min(tick, this.#tick + BUCKETS - 1) % BUCKETS;
    const head = this.#head(bucket);
    links.setNext(row, head);
    links.setPrevious(row, HEAD + bucket);
    if (head !== NONE) links.setPrevious(head, row);
    else this.#mark(bucket, true);
    this.#heads[bucket] = row + 1;
    this.#rows++;
  }

  #head(bucket: number): number {
    const row = this.#heads[bucket] as number;
    return row === 0 ? NONE : row - 1;
  }

  #mark(bucket: number, occupied: boolean): void {
    const word = bucket >>> 5;
    const bit = 1 << (bucket & 31);
    const bits = this.#occupied[word] as number;
    this.#occupied[word] = occupied ? bits | bit : bits & ~bit;
  }
}
