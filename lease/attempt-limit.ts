import { assert } from '../base/assert.ts';

/** Most attempts to acquire under way on a server. More take longer each and finish no sooner. */
const ATTEMPTS_MAX = 2048;

/**
 * Bounds the attempts under way for a server that wants, say, a hundred thousand cells. A lease counts from before
 * its READ: if all started at once, none would finish in time. Renewals and clients' orders never wait: they protect
 * a held lease, or a client waits.
 */
export class AttemptLimit {
  readonly #queuedRows = new Set<number>();
  /** Is at the row that has waited longest: a new iterator passes all places that rows left since the last rehash. */
  #waiting: SetIterator<number> | null = null;
  readonly #slowMs: number;
  #running = 0;
  #slowUntilMs = -Infinity;

  /** @param slowMs how long voters count as slow after a late answer, in milliseconds */
  constructor(slowMs: number) {
    this.#slowMs = slowMs;
  }

  noteSlowVoters(nowMs: number): void {
    this.#slowUntilMs = nowMs + this.#slowMs;
  }

  /** Whether to ask all voters at once, because the fastest majority answers before a chosen one does. */
  hasSlowVoters(nowMs: number): boolean {
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

  queue(row: number): void {
    this.#queuedRows.add(row);
  }

  /** Removes the row that has waited longest from the queue. @returns null if none waits or the limit is reached */
  takeQueued(): number | null {
    if (this.isFull || this.#queuedRows.size === 0) return null;
    this.#waiting ??= this.#queuedRows.values();
    const { value: row } = this.#waiting.next();
    assert(row !== undefined, 'A row waits');
    this.unqueue(row);
    return row;
  }

  unqueue(row: number): void {
    this.#queuedRows.delete(row);
    if (this.#queuedRows.size === 0) this.#waiting = null;
  }
}
