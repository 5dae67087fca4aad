import type { World } from '../../base/world.ts';
import { RecentTimeouts } from './recent-timeouts.ts';

/** An answer about the root after this share of the time limit is the previous one: the cluster gave none. */
const LIMIT_SHARE = 0.8;

/** Callers whose lookup of the root took the whole limit: their next request is of the same system call. */
export class TimedOutCallers {
  readonly #world: World;
  readonly #limitMs: number;
  readonly #recent: RecentTimeouts;

  constructor(world: World, limitMs: number) {
    this.#world = world;
    this.#recent = new RecentTimeouts(world);
    this.#limitMs = limitMs;
  }

  /** @param pid from the kernel; 0 for a process of another container, which has no number here */
  rootAnswered(pid: number, beganMs: number): void {
    if (pid !== 0 && this.#world.nowMs() - beganMs > this.#limitMs * LIMIT_SHARE) this.#recent.add(`${pid}`);
  }

  has(pid: number): boolean {
    return !this.#recent.isEmpty && this.#recent.has(`${pid}`);
  }
}
