/** A map of at most so many entries. A key that is set becomes the latest; the oldest one makes room. */
export class BoundedMap<Key, Value> extends Map<Key, Value> {
  readonly #countMax: number;

  constructor(countMax: number) {
    super();
    this.#countMax = countMax;
  }

  override set(key: Key, value: Value): this {
    this.delete(key);
    super.set(key, value);
    if (this.size > this.#countMax) {
      const [oldest] = this.keys();
      this.delete(oldest as Key);
    }
    return this;
  }
}
