import type { World } from '../../base/world.ts';

/** Directories of which it is remembered when something became of them. */
const REMEMBERED_MAX = 1_000;

/** When something last became of directories. */
export class Moments {
  readonly #world: World;
  readonly #atMs = new Map<number, number>();

  constructor(world: World) {
    this.#world = world;
  }

  note(directory: number): void {
    this.#atMs.delete(directory);
    this.#atMs.set(directory, this.#world.nowMs());
    for (const oldest of this.#atMs.keys()) {
      if (this.#atMs.size <= REMEMBERED_MAX) return;
      this.#atMs.delete(oldest);
    }
  }

  /** @returns in milliseconds; `Infinity` where it never did, or that is forgotten */
  sinceMs(directory: number): number {
    return this.#world.nowMs() - (this.#atMs.get(directory) ?? Number.NEGATIVE_INFINITY);
  }
}
