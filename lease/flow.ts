import { assert } from '../base/assert.ts';

/** Attempts to acquire that one server has under way. More at once take no less time, and longer each. */
const ATTEMPTS_MAX = 2048;

/**
 * Bounds the attempts that are under way, for a server that wants a hundred thousand cells at once: a
 * lease is counted from before its READ, so an attempt that waits for thousands of others in every
 * queue would be repeated, given up and begun anew, and nobody would get anything. Renewals and what
 * clients ask for never wait: they hold something, or somebody waits for them.
 */
export class Flow {
  readonly #waiting = new Set<number>();
  readonly #slowForMs: number;
  #running = 0;
  #slowUntilMs = -Infinity;

  /** @param slowForMs for how long answers count as slow after one was, in milliseconds */
  constructor(slowForMs: number) {
    this.#slowForMs = slowForMs;
  }

  /** A voter has not answered in the usual time. */
  noteSlow(nowMs: number): void {
    this.#slowUntilMs = nowMs + this.#slowForMs;
  }

  /** Whether all voters had better be asked at once, because the first majority answers sooner than any one of them. */
  isSlow(nowMs: number): boolean {
    return nowMs < this.#slowUntilMs;
  }

  get isFull(): boolean {
    return this.#running >= ATTEMPTS_MAX;
  }

  begin(): void {
    this.#running++;
  }

  end(): void {
    assert(this.#running > 0, 'What ends has begun');
    this.#running--;
  }

  /** A row's turn comes when others have ended. */
  wait(row: number): void {
    this.#waiting.add(row);
  }

  /** @returns the row that has waited longest, if there is room for it */
  next(): number | null {
    if (this.isFull || this.#waiting.size === 0) return null;
    const [row] = this.#waiting as Iterable<number>;
    assert(row !== undefined, 'Somebody waits');
    this.#waiting.delete(row);
    return row;
  }

  /** A row that is removed waits for nothing. */
  forget(row: number): void {
    this.#waiting.delete(row);
  }
}
