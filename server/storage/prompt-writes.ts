import type { FileOps } from './file-ops.ts';

/** What is larger is worth a thread. */
const PROMPT_BYTES_MAX = 64 * 1024;
/** A disk that keeps the event loop waiting for so long is left to the thread pool for a while, both in milliseconds. */
const SLOW_MS = 20;
const LEFT_MS = 1_000;

/** Where and what to write: pieces one behind the other. */
interface Run {
  readonly position: number;
  readonly buffers: readonly Uint8Array[];
  readonly byteCount: number;
}

/**
 * Makes small files in the turn of the event loop in which they are asked for: to open, write and close one takes the system ten
 * microseconds, and the thread pool thirty times as long, most of it waking (docs/design/mount.md, "Create with contents").
 */
export class PromptWrites {
  readonly #ops: Pick<FileOps, 'writeNow'>;
  readonly #nowMs: () => number;
  #leftUntilMs = -Infinity;

  /** @param nowMs monotonic, in milliseconds */
  constructor(ops: Pick<FileOps, 'writeNow'>, nowMs: () => number) {
    this.#ops = ops;
    this.#nowMs = nowMs;
  }

  /**
   * Writes the runs to a file, which is made where there is none, unless that is better done in the thread pool.
   *
   * @returns whether it has
   * @throws what the disk refuses with
   */
  tried(path: string, runs: readonly Run[]): boolean {
    const byteCount = runs.reduce((sum, run) => sum + run.byteCount, 0);
    const beganMs = this.#nowMs();
    if (byteCount > PROMPT_BYTES_MAX || beganMs < this.#leftUntilMs) return false;
    try {
      for (const { buffers, position } of runs) this.#ops.writeNow(path, buffers, position);
    } finally {
      const endMs = this.#nowMs();
      if (endMs - beganMs >= SLOW_MS) this.#leftUntilMs = endMs + LEFT_MS;
    }
    return true;
  }
}
