import { BoundedMap } from './bounded-map.ts';
import { Counts } from './counts.ts';

/** Smaller than the distance of two requests in milliseconds; larger than a double's precision after a year. */
const TICK = 1e-5;
/** Keys with a remembered change; for all others the latest dropped change counts. */
const KEYS_MAX = 20_000;

/**
 * Orders changes (of this process, or of recalls) against answers: an answer is not valid if its subject changed, or
 * was changing, after its request. Subjects are keys: an inode, a directory, an entry. With a clock, sequence numbers
 * are its milliseconds, a little later to stay distinct.
 */
export class Sequencer<Key extends number | string> {
  readonly #nowMs: () => number;
  #latest = 0;
  /** Answers requested before this are not valid, whatever the subject. */
  #floor = 0;
  readonly #changed: BoundedMap<Key, number>;
  readonly #changing = new Counts<Key>();

  constructor(nowMs: () => number = () => 0, keysMax = KEYS_MAX) {
    this.#nowMs = nowMs;
    this.#changed = new BoundedMap(keysMax, (_, changedAt) => {
      this.#floor = Math.max(this.#floor, changedAt);
    });
  }

  get latest(): number {
    return this.#latest;
  }

  /** @returns the number of a request that is about to be sent; larger than all before */
  request(): number {
    this.#latest = Math.max(this.#nowMs(), this.#latest + TICK);
    return this.#latest;
  }

  changed(key: Key): number {
    const at = this.request();
    this.#changed.set(key, at);
    return at;
  }

  /** An unknown subject changed. */
  changedAll(): void {
    this.#floor = this.request();
    this.#changed.clear();
  }

  /** A change of the subject was sent: until `end`, no answer about it is valid. */
  begin(key: Key): void {
    this.changed(key);
    this.#changing.increment(key);
  }

  end(key: Key): void {
    this.#changing.decrement(key);
    this.changed(key);
  }

  changing(key: Key): number {
    return this.#changing.of(key);
  }

  /** Whether the subject did not change since the request. */
  isValid(requestedAt: number, key: Key): boolean {
    return this.isUnchanged(requestedAt, key) && this.#changing.of(key) === 0;
  }

  /** Like `isValid`, but ignores a change under way that began before the request. */
  isUnchanged(requestedAt: number, key: Key): boolean {
    return requestedAt >= this.#floor && requestedAt >= (this.#changed.get(key) ?? 0);
  }
}
