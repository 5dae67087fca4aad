import type { FileOps } from './file-ops.ts';

/** Larger writes go to the thread pool. */
const SYNCHRONOUS_BYTES_MAX = 64 * 1024;
/** After a write has blocked the event loop for `SLOW_MS`, the thread pool writes for `PAUSE_MS`. */
const SLOW_MS = 20;
const PAUSE_MS = 1_000;

interface Run {
  readonly position: number;
  readonly buffers: readonly Uint8Array[];
  readonly byteCount: number;
}

/** Creates small files in the event loop: that takes 10 μs, and waking the thread pool thirty times as long. */
export class SynchronousWrites {
  readonly #ops: Pick<FileOps, 'writeNow'>;
  readonly #nowMs: () => number;
  #pausedUntilMs = -Infinity;

  constructor(ops: Pick<FileOps, 'writeNow'>, nowMs: () => number) {
    this.#ops = ops;
    this.#nowMs = nowMs;
  }

  /** Writes the runs now. @returns false if the thread pool should write them instead @throws the system's error */
  tryWrite(path: string, runs: readonly Run[]): boolean {
    const byteCount = runs.reduce((sum, run) => sum + run.byteCount, 0);
    const beganMs = this.#nowMs();
    if (byteCount > SYNCHRONOUS_BYTES_MAX || beganMs < this.#pausedUntilMs) return false;
    try {
      for (const { buffers, position } of runs) this.#ops.writeNow(path, buffers, position);
    } finally {
      const endMs = this.#nowMs();
      if (endMs - beganMs >= SLOW_MS) this.#pausedUntilMs = endMs + PAUSE_MS;
    }
    return true;
  }
}
