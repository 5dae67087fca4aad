/** Directories of which it is remembered when they were called back, the latest last. */
const STAMPS_MAX = 10_000;

/**
 * Directories that are delegated to this client: nobody else changes their names until they are called back. An answer that was asked
 * for before a recall may come after it: `mark` is taken before asking.
 */
export class Delegated {
  /** Generations of the delegations, by inode. */
  readonly #inodes = new Map<number, number>();
  /** When, by count, an inode was called back. What is not here: `#floor` at the latest. */
  readonly #stamps = new Map<number, number>();
  #mark = 0;
  #floor = 0;

  get mark(): number {
    return this.#mark;
  }

  get count(): number {
    return this.#inodes.size;
  }

  has(inode: number): boolean {
    return this.#inodes.has(inode);
  }

  /** @returns the number that the primary gave the delegation; undefined where there is none */
  generationOf(inode: number): number | undefined {
    return this.#inodes.get(inode);
  }

  /** @returns whether it counts: it was not called back since it was asked for */
  learn(inode: number, generation: number, mark: number): boolean {
    if (mark < Math.max(this.#floor, this.#stamps.get(inode) ?? 0)) return false;
    this.#inodes.set(inode, generation);
    return true;
  }

  recalled(inode: number): void {
    this.#inodes.delete(inode);
    this.#stamps.delete(inode);
    this.#stamps.set(inode, ++this.#mark);
    for (const [oldest, mark] of this.#stamps) {
      if (this.#stamps.size <= STAMPS_MAX) return;
      this.#stamps.delete(oldest);
      this.#floor = mark;
    }
  }

  /** The session is over, and with it all that was delegated to it. */
  endAll(): void {
    this.#floor = ++this.#mark;
    this.#stamps.clear();
    this.#inodes.clear();
  }
}
