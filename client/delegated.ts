import { Sequencer } from '../base/sequencer.ts';

/** Directories whose last recall is remembered. */
const RECALLED_MAX = 10_000;

/**
 * Directories that are delegated to this client: no other client changes their names until they are recalled. A grant that was
 * requested before a recall is void.
 */
export class Delegated {
  /** Generations of the delegations, by inode. */
  readonly #inodes = new Map<number, number>();
  readonly #recalls = new Sequencer<number>(undefined, RECALLED_MAX);

  get count(): number {
    return this.#inodes.size;
  }

  /** @see Sequencer.request */
  request(): number {
    return this.#recalls.request();
  }

  has(inode: number): boolean {
    return this.#inodes.has(inode);
  }

  /** @returns the number that the primary gave the delegation; undefined where there is none */
  generationOf(inode: number): number | undefined {
    return this.#inodes.get(inode);
  }

  /** @returns whether it counts: it was not recalled since it was requested */
  learn(inode: number, generation: number, requestedAt: number): boolean {
    if (!this.#recalls.isValid(requestedAt, inode)) return false;
    this.#inodes.set(inode, generation);
    return true;
  }

  recalled(inode: number): void {
    this.#inodes.delete(inode);
    this.#recalls.changed(inode);
  }

  /** The session ended, and with it all its delegations. */
  endAll(): void {
    this.#recalls.changedAll();
    this.#inodes.clear();
  }
}
