/** How many there are of each. */
export class Counts<Key> {
  readonly #counts = new Map<Key, number>();

  has(key: Key): boolean {
    return this.#counts.has(key);
  }

  more(key: Key): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  fewer(key: Key): void {
    const count = this.#counts.get(key) ?? 0;
    if (count <= 1) this.#counts.delete(key);
    else this.#counts.set(key, count - 1);
  }
}
