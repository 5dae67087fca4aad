import type { World } from '../../base/world.ts';

/** Pause before a move that failed is tried again; it doubles. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 60_000;
const RETRIES_MAX = 10_000;

interface Retry {
  readonly atMs: number;
  readonly pauseMs: number;
}

/** Pauses after failed moves, by inode; the catalog's is 0. */
export class MoveRetries {
  readonly #world: Pick<World, 'nowMs'>;
  readonly #retries = new Map<number, Retry>();

  constructor(world: Pick<World, 'nowMs'>) {
    this.#world = world;
  }

  isPaused(inode: number): boolean {
    const retry = this.#retries.get(inode);
    return retry !== undefined && retry.atMs > this.#world.nowMs();
  }

  failed(inode: number): void {
    const before = this.#retries.get(inode);
    const pauseMs = Math.min(RETRY_MAX_MS, 2 * (before?.pauseMs ?? RETRY_FIRST_MS / 2));
    if (this.#retries.size >= RETRIES_MAX) this.#retries.clear();
    this.#retries.set(inode, { atMs: this.#world.nowMs() + pauseMs, pauseMs });
  }

  succeeded(inode: number): void {
    this.#retries.delete(inode);
  }

  /** Drops pauses that ended long ago: of files that need no move any more. */
  dropOld(): void {
    if (this.#retries.size === 0) return;
    const nowMs = this.#world.nowMs();
    for (const [inode, { atMs, pauseMs }] of this.#retries) {
      if (atMs + pauseMs < nowMs) this.#retries.delete(inode);
    }
  }

  clear(): void {
    this.#retries.clear();
  }
}
