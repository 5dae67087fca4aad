import type { World } from '../base/world.ts';

const FIRST_MS = 10;
const LARGEST_MS = 250;

/**
 * Waits between attempts: 10 ms doubling up to 250 ms, each shortened at random by up to a half, so
 * that clients that failed together do not come back together.
 */
export class Backoff {
  readonly #world: Pick<World, 'random'>;
  #nextMs = FIRST_MS;

  constructor(world: Pick<World, 'random'>) {
    this.#world = world;
  }

  /** @returns how long to wait before the next attempt, in milliseconds */
  nextDelayMs(): number {
    const delayMs = this.#nextMs * (0.5 + this.#world.random() / 2);
    this.#nextMs = Math.min(this.#nextMs * 2, LARGEST_MS);
    return delayMs;
  }
}
