import type { World } from '../../base/world.ts';

/**
 * While a volume moves to a catalog of its own, its changes are refused with `moving` until it is there, however long
 * that takes. So the time limits of this client's calls count from the latest such answer.
 */
export class MoveWait {
  readonly #world: Pick<World, 'nowMs'>;
  #latestMs = Number.NEGATIVE_INFINITY;

  constructor(world: Pick<World, 'nowMs'>) {
    this.#world = world;
  }

  /** To be called with each answer that the volume is moving. */
  answered(): void {
    this.#latestMs = this.#world.nowMs();
  }

  /** @returns when a call with this time limit is late (monotonic, in milliseconds) */
  deadlineMs(beganMs: number, limitMs: number): number {
    return Math.max(beganMs, this.#latestMs) + limitMs;
  }
}
