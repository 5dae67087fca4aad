import type { Timer, World } from '../../base/world.ts';

export interface RoundsParts {
  readonly world: Pick<World, 'every'>;
  readonly periodMs: number;
  isDue?(): boolean;
  work(): Promise<void>;
  /** A round failed, for example because the catalog has no primary. */
  failed(error: unknown): void;
}

/** Background work in rounds, one at a time; the next round does what one leaves undone. */
export class Rounds {
  readonly #parts: RoundsParts;
  readonly #timer: Timer;
  #busy = false;

  constructor(parts: RoundsParts) {
    this.#parts = parts;
    this.#timer = parts.world.every(parts.periodMs, () => {
      if (parts.isDue?.() ?? true) void this.run();
    });
  }

  /** Starts no further rounds; one in progress ends. */
  close(): void {
    this.#timer.cancel();
  }

  /** Runs one round. Returns at once if one is in progress. */
  async run(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await this.#parts.work();
    } catch (error) {
      this.#parts.failed(error);
    } finally {
      this.#busy = false;
    }
  }
}
