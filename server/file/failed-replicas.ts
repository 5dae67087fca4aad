import { LruMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';

const WAIT_FIRST_MS = 300;
const WAIT_MAX_MS = 5_000;
/** One that lived for so long, and for twice its last wait, fails for another reason. */
const FORGOTTEN_MS = 5_000;
const FILES_MAX = 10_000;

/**
 * When replicas whose disk refused something begin anew: at once the first time, then after waits that double. Each
 * beginning costs what is fetched for it, and a line in the log.
 */
export class FailedReplicas {
  readonly #begun = new LruMap<FileId, { readonly atMs: number; readonly waitMs: number }>(FILES_MAX);

  /** @returns whether the file's replica, which has failed, shall begin anew now; then it is taken for begun */
  begins(file: FileId, nowMs: number): boolean {
    const last = this.#begun.get(file);
    const sinceMs = last === undefined ? Infinity : nowMs - last.atMs;
    const { waitMs = 0 } = last ?? {};
    if (sinceMs < waitMs) return false;
    const isForgotten = sinceMs > 2 * waitMs + FORGOTTEN_MS;
    this.#begun.set(file, {
      atMs: nowMs,
      waitMs: isForgotten ? WAIT_FIRST_MS : Math.min(WAIT_MAX_MS, 2 * waitMs),
    });
    return true;
  }

  /** There is room again: nobody waits any more. */
  forget(): void {
    this.#begun.clear();
  }
}
