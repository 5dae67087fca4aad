import type { World } from '../../base/world.ts';
import { RecentTimeouts } from './recent-timeouts.ts';

/** An answer about the root that took this part of the time limit is the one of before: the cluster gave none. */
const SPENT = 0.8;

/**
 * Callers that have waited for the root, through which their path leads, as long as one may. What they ask next belongs to the same
 * system call, which has no time left.
 */
export class SpentCallers {
  readonly #world: World;
  readonly #limitMs: number;
  readonly #recent: RecentTimeouts;

  /** @param limitMs the longest that a call may take */
  constructor(world: World, limitMs: number) {
    this.#world = world;
    this.#recent = new RecentTimeouts(world);
    this.#limitMs = limitMs;
  }

  /** @param pid as the kernel tells it; 0 for whoever is of another container and has no number here */
  rootAnswered(pid: number, beganMs: number): void {
    if (pid !== 0 && this.#world.nowMs() - beganMs > this.#limitMs * SPENT) this.#recent.add(`${pid}`);
  }

  has(pid: number): boolean {
    return !this.#recent.isEmpty && this.#recent.has(`${pid}`);
  }
}
