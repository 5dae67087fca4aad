import { RecentMap } from './recent-map.ts';

/** A map of at most so many entries: the one that was set the longest time ago makes room. */
export class BoundedMap<Key, Value> extends RecentMap<Key, Value> {
  readonly #countMax: number;
  readonly #dropped: (key: Key, value: Value) => void;

  /** @param dropped called for an entry that has made room */
  constructor(countMax: number, dropped: (key: Key, value: Value) => void = () => undefined) {
    super();
    this.#countMax = countMax;
    this.#dropped = dropped;
  }

  override set(key: Key, value: Value): this {
    super.set(key, value);
    const oldest = this.size > this.#countMax ? this.takeOldest() : undefined;
    if (oldest !== undefined) this.#dropped(...oldest);
    return this;
  }
}

/** A bounded map in which the entry that was used, set or read, the longest time ago makes room. */
export class LruMap<Key, Value> extends BoundedMap<Key, Value> {
  override get(key: Key): Value | undefined {
    const value = super.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  /** Reads an entry without using it. */
  peek(key: Key): Value | undefined {
    return super.get(key);
  }
}
