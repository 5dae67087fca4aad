import { LruMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';

const WAIT_FIRST_MS = 300;
const WAIT_MAX_MS = 5_000;
/** A failure later than this plus twice the last wait after the last restart counts as a new one. */
const FORGOTTEN_MS = 5_000;
const FILES_MAX = 10_000;

/** Spaces the restarts of failed replicas, each of which costs a fetch: the first is at once; then waits double. */
export class FailedReplicas {
  readonly #restarts = new LruMap<FileId, { readonly atMs: number; readonly waitMs: number }>(FILES_MAX);

  /** @returns whether to restart the file's failed replica now; if so, the restart is recorded */
  mayRestart(file: FileId, nowMs: number): boolean {
    const last = this.#restarts.get(file);
    const sinceMs = last === undefined ? Infinity : nowMs - last.atMs;
    const { waitMs = 0 } = last ?? {};
    if (sinceMs < waitMs) return false;
    const isForgotten = sinceMs > 2 * waitMs + FORGOTTEN_MS;
    this.#restarts.set(file, {
      atMs: nowMs,
      waitMs: isForgotten ? WAIT_FIRST_MS : Math.min(WAIT_MAX_MS, 2 * waitMs),
    });
    return true;
  }

  resetWaits(): void {
    this.#restarts.clear();
  }
}
