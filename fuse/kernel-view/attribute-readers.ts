import { RecentMap } from '../../base/recent-map.ts';
import { UPTAKE_MS_MAX } from './in-flight.ts';

/** More than one thread, or one of another container, which has no number here. */
const SEVERAL = 0;

/**
 * A thread takes up an answer before its next request, and the kernel drops a directory's attributes when a thread
 * changes a name in it. But it may take up an answer to another thread after that.
 */
export class AttributeReaders {
  readonly #nowMs: () => number;
  readonly #lastReaders = new RecentMap<number, { readonly thread: number; readonly atMs: number }>();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  answered(inode: number, thread: number): void {
    const isOnly = !this.hasOther(inode, thread);
    const nowMs = this.#nowMs();
    this.#lastReaders.set(inode, { thread: isOnly ? thread : SEVERAL, atMs: nowMs });
    this.#lastReaders.takeWhile(({ atMs }) => nowMs - atMs > UPTAKE_MS_MAX);
  }

  hasOther(inode: number, thread: number): boolean {
    const last = this.#lastReaders.get(inode);
    if (last === undefined || this.#nowMs() - last.atMs > UPTAKE_MS_MAX) return false;
    return thread === SEVERAL || last.thread !== thread;
  }
}
