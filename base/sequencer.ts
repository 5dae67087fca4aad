import { BoundedMap } from './bounded-map.ts';
import { Counts } from './counts.ts';

/** Less than two requests are apart in milliseconds, and more than the precision of a double after a year. */
const TICK = 1e-5;
/** Keys whose last change is remembered; for all others the latest change that was dropped counts. */
const KEYS_MAX = 20_000;

/**
 * Orders changes (by this process, or reported by a recall) against answers: an answer that was requested before a change
 * of its subject, or during one, is not valid. Subjects are keys: an inode, a directory, a name.
 *
 * With a clock the sequence numbers are its milliseconds, a little later where two would be the same.
 */
export class Sequencer<Key extends number | string> {
  readonly #nowMs: () => number;
  #latest = 0;
  /** Answers requested before this are not valid, whatever they are about. */
  #floor = 0;
  /** When each subject changed last. */
  readonly #changed: BoundedMap<Key, number>;
  readonly #changing = new Counts<Key>();

  constructor(nowMs: () => number = () => 0, keysMax = KEYS_MAX) {
    this.#nowMs = nowMs;
    this.#changed = new BoundedMap(keysMax, (_, changedAt) => {
      this.#floor = Math.max(this.#floor, changedAt);
    });
  }

  /** The latest sequence number. */
  get latest(): number {
    return this.#latest;
  }

  /** @returns the sequence number of a request that is about to be sent; each is greater than all before */
  request(): number {
    this.#latest = Math.max(this.#nowMs(), this.#latest + TICK);
    return this.#latest;
  }

  /** @returns the sequence number of the change */
  changed(key: Key): number {
    const at = this.request();
    this.#changed.set(key, at);
    return at;
  }

  /** Something changed, and it is unknown what. */
  changedAll(): void {
    this.#floor = this.request();
    this.#changed.clear();
  }

  /** A change of the subject is sent: until `end`, no answer about it is valid. */
  begin(key: Key): void {
    this.changed(key);
    this.#changing.more(key);
  }

  end(key: Key): void {
    this.#changing.fewer(key);
    this.changed(key);
  }

  /** How many changes of the subject are under way. */
  changing(key: Key): number {
    return this.#changing.of(key);
  }

  /** Whether the subject did not change since the request was sent. */
  isValid(requestedAt: number, key: Key): boolean {
    return this.isUnchanged(requestedAt, key) && this.#changing.of(key) === 0;
  }

  /** As `isValid`, also while a change is under way that began before the request. */
  isUnchanged(requestedAt: number, key: Key): boolean {
    return requestedAt >= this.#floor && requestedAt >= (this.#changed.get(key) ?? 0);
  }
}
