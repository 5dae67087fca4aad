export class Counts<Key> {
  readonly #counts = new Map<Key, number>();

  has(key: Key): boolean {
    return this.#counts.has(key);
  }

  of(key: Key): number {
    return this.#counts.get(key) ?? 0;
  }

  increment(key: Key): void {
    this.#counts.set(key, this.of(key) + 1);
  }

  decrement(key: Key): void {
    const count = this.of(key);
    if (count <= 1) this.#counts.delete(key);
    else this.#counts.set(key, count - 1);
  }
}
