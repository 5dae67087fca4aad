import type { World } from '../../base/world.ts';

/**
 * The kernel asks a second time at once when a lookup or a read has failed. Within this time the answer is
 * the same, so that a program waits for one time limit and not for two.
 */
const REPEAT_MS = 250;
const COUNT_MAX = 1000;

/** Questions of the kernel that took too long a moment ago. */
export class RecentTimeouts {
  readonly #world: World;
  readonly #atMs = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  /** @param question names it; the same text is the same question */
  add(question: string): void {
    if (this.#atMs.size >= COUNT_MAX) this.#atMs.clear();
    this.#atMs.set(question, this.#world.nowMs());
  }

  has(question: string): boolean {
    const atMs = this.#atMs.get(question);
    return atMs !== undefined && this.#world.nowMs() - atMs < REPEAT_MS;
  }

  /** Then no question needs a name. */
  get isEmpty(): boolean {
    return this.#atMs.size === 0;
  }
}
