import { RecentMap } from './recent-map.ts';

/** A map of at most `countMax` entries: a new one drops the one that was set least recently. */
export class BoundedMap<Key, Value> extends RecentMap<Key, Value> {
  readonly #countMax: number;
  readonly #dropped: (key: Key, value: Value) => void;

  /** @param dropped called with each dropped entry */
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

/** A bounded map that drops the least recently used entry, set or read. */
export class LruMap<Key, Value> extends BoundedMap<Key, Value> {
  override get(key: Key): Value | undefined {
    const value = super.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  /** Reads an entry without counting as use. */
  peek(key: Key): Value | undefined {
    return super.get(key);
  }
}
