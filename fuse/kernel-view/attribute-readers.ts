import { RecentMap } from '../../base/recent-map.ts';
import { UPTAKE_MS_MAX } from './in-flight.ts';

/** More than one thread, or one of another container, which has no number here. */
const SEVERAL = 0;

/**
 * The threads to which directories' attributes were answered. The kernel drops these when a thread changes a name. An
 * answer to the same thread is in its cache by then; one to another thread may get there later, and be out of date.
 */
export class AttributeReaders {
  readonly #nowMs: () => number;
  readonly #lastReaders = new RecentMap<number, { readonly thread: number; readonly atMs: number }>();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** An answer lets the kernel cache a directory's attributes. @param thread that requested it; 0 if unknown */
  answered(inode: number, thread: number): void {
    const isOnly = !this.hasOther(inode, thread);
    const nowMs = this.#nowMs();
    this.#lastReaders.set(inode, { thread: isOnly ? thread : SEVERAL, atMs: nowMs });
    this.#lastReaders.takeWhile(({ atMs }) => nowMs - atMs > UPTAKE_MS_MAX);
  }

  /** @returns whether a thread other than `thread` may still take up an answer about the directory */
  hasOther(inode: number, thread: number): boolean {
    const last = this.#lastReaders.get(inode);
    if (last === undefined || this.#nowMs() - last.atMs > UPTAKE_MS_MAX) return false;
    return thread === SEVERAL || last.thread !== thread;
  }
}
