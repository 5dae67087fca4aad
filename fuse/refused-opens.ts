/** Whoever has not come back by then has given up, in milliseconds. */
const BACK_MS_MAX = 30_000;
/** A look-up that is not answered yet. */
const UNANSWERED = -1;

interface Refused {
  readonly inode: number;
  readonly atMs: number;
  /** What the last look-up of the thread since then has found; null where there was none. */
  looked: number | null;
}

/**
 * Threads that were refused an open by a name that the kernel has kept: the kernel looks up all names of the path once more, and opens what it finds.
 * Between the refusal and that open it asks for them in the name of the same thread, which tells by which name it is opened then.
 */
export class RefusedOpens {
  /** By thread; 0 for all those of other containers, which have no number here. The latest last. */
  readonly #refused = new Map<number, Refused>();

  refuse(thread: number, inode: number): void {
    const nowMs = performance.now();
    for (const [oldest, { atMs }] of this.#refused) {
      if (nowMs - atMs <= BACK_MS_MAX) break;
      this.#refused.delete(oldest);
    }
    this.#refused.delete(thread);
    this.#refused.set(thread, { inode, atMs: nowMs, looked: null });
  }

  /** @returns whether the thread has to hear what the cluster has now: it looks up once more what it was refused */
  looks(thread: number): boolean {
    const refused = this.#refused.get(thread);
    if (refused === undefined) return false;
    refused.looked = UNANSWERED;
    return true;
  }

  /** @param inode what the look-up has found at the cluster; null: nothing, and there will be no open */
  found(thread: number, inode: number | null): void {
    const refused = this.#refused.get(thread);
    if (refused === undefined) return;
    if (inode === null) this.#refused.delete(thread);
    else refused.looked = inode;
  }

  /**
   * The thread opens an inode.
   *
   * @returns whether that is the one it has just looked up, or, where it has looked up nothing, the same once more: it is opened without a name,
   *   as what is open already
   */
  comesBack(thread: number, inode: number): boolean {
    const refused = this.#refused.get(thread);
    this.#refused.delete(thread);
    return refused !== undefined && (refused.looked ?? refused.inode) === inode;
  }
}
