import type { World } from '../../base/world.ts';

/** An iteration of the event loop that takes longer delays requests of clients, in milliseconds. */
const SLOW_MS = 20;
const PAUSE_MS = 10;
/** Background work continues after this many pauses, however busy the process is. */
const PAUSES_MAX = 20;

/** Lets background work wait while this process is busy. */
export class LoopPace {
  readonly #world: Pick<World, 'nowMs' | 'nextTick' | 'sleep'>;

  constructor(world: Pick<World, 'nowMs' | 'nextTick' | 'sleep'>) {
    this.#world = world;
  }

  /** Resolves after a quick iteration of the event loop, or after some pauses. */
  async untilCalm(): Promise<void> {
    for (let pauses = 0; pauses < PAUSES_MAX; pauses++) {
      const beganMs = this.#world.nowMs();
      await this.#world.nextTick();
      if (this.#world.nowMs() - beganMs < SLOW_MS) return;
      await this.#world.sleep(PAUSE_MS);
    }
  }
}
