import type { Timer, World } from '../base/world.ts';

export interface RoundsParts {
  readonly world: Pick<World, 'every'>;
  readonly periodMs: number;
  /** Asked once a period: whether a round begins now. Absent: each time. */
  isDue?(): boolean;
  work(): Promise<void>;
  /** A round did not end, as while the catalog has no primary. */
  failed(error: unknown): void;
}

/** Background work in rounds: one at a time, and what a round leaves undone is the next one's. */
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

  /** No further round begins by itself; one that is under way ends. */
  close(): void {
    this.#timer.cancel();
  }

  /** One round. Returns at once where an earlier one is under way. */
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
