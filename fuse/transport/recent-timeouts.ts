import type { World } from '../../base/world.ts';

/**
 * The kernel repeats a failed lookup or read at once. Within this time it gets the same answer, so that a program waits
 * for one time limit and not for two.
 */
const REPEAT_MS = 250;
const COUNT_MAX = 1000;

export class RecentTimeouts {
  readonly #world: World;
  readonly #atMs = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  add(question: string): void {
    if (this.#atMs.size >= COUNT_MAX) this.#atMs.clear();
    this.#atMs.set(question, this.#world.nowMs());
  }

  has(question: string): boolean {
    const atMs = this.#atMs.get(question);
    return atMs !== undefined && this.#world.nowMs() - atMs < REPEAT_MS;
  }

  /** Checked first, so that callers need not build a key. */
  get isEmpty(): boolean {
    return this.#atMs.size === 0;
  }
}
