import type { FileOps } from './file-ops.ts';

/** A larger write is worth a thread. */
const PROMPT_BYTES_MAX = 64 * 1024;
/** A disk that blocks the event loop for `SLOW_MS` is left to the thread pool for `LEFT_MS`. */
const SLOW_MS = 20;
const LEFT_MS = 1_000;

interface Run {
  readonly position: number;
  readonly buffers: readonly Uint8Array[];
  readonly byteCount: number;
}

/** To create a small file takes the system ten microseconds, and the thread pool thirty times as long to wake up. */
export class SynchronousWrites {
  readonly #ops: Pick<FileOps, 'writeNow'>;
  readonly #nowMs: () => number;
  #leftUntilMs = -Infinity;

  constructor(ops: Pick<FileOps, 'writeNow'>, nowMs: () => number) {
    this.#ops = ops;
    this.#nowMs = nowMs;
  }

  /** @returns false if the thread pool should do it @throws the system's error */
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
