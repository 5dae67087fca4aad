import { RecentMap } from '../../base/recent-map.ts';
import { UPTAKE_MS_MAX } from './in-flight.ts';

/** More than one thread, or one of another container, which has no number here. */
const SEVERAL = 0;

/**
 * Threads that were answered attributes which the kernel may cache, a moment ago: it may not have taken them up. A thread does so before its next
 * request, and the kernel drops the attributes of a directory in which the thread changes a name. An answer to another thread it takes up later.
 */
export class AttributeAskers {
  readonly #nowMs: () => number;
  readonly #askers = new RecentMap<number, { readonly thread: number; readonly atMs: number }>();

  /** @param nowMs a clock in milliseconds that never goes back */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  answered(inode: number, thread: number): void {
    const isOnly = !this.hasOther(inode, thread);
    const nowMs = this.#nowMs();
    this.#askers.set(inode, { thread: isOnly ? thread : SEVERAL, atMs: nowMs });
    this.#askers.takeWhile(({ atMs }) => nowMs - atMs > UPTAKE_MS_MAX);
  }

  /** Whether an answer to another thread may not have been taken up. */
  hasOther(inode: number, thread: number): boolean {
    const asker = this.#askers.get(inode);
    if (asker === undefined || this.#nowMs() - asker.atMs > UPTAKE_MS_MAX) return false;
    return thread === SEVERAL || asker.thread !== thread;
  }
}
