import type { World } from '../../base/world.ts';

/** The kernel repeats a failed lookup or read at once. The same answer then spares the program a second time limit. */
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

  get isEmpty(): boolean {
    return this.#atMs.size === 0;
  }
}
