import type { Timer, World } from '../../base/world.ts';

export interface WokenWorkParts {
  readonly world: Pick<World, 'after'>;
  /** Pause after a failed run; it ends early at the next wake. */
  readonly retryMs: number;
  work(): Promise<void>;
  failed(error: unknown): void;
}

/** Work that events make due: one run at a time, another after a wake during a run, and again after a failure. */
export class WokenWork {
  readonly #parts: WokenWorkParts;
  #isDue = false;
  #running: Promise<void> | null = null;
  #retry: Timer | null = null;
  #isClosed = false;

  constructor(parts: WokenWorkParts) {
    this.#parts = parts;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** A run begins now, or after the one in progress. */
  wake(): void {
    if (this.#isClosed) return;
    this.#isDue = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
    });
  }

  /** Resolves when no run is in progress; a failed one is repeated later. */
  async ended(): Promise<void> {
    while (this.#running !== null) await this.#running;
  }

  /** Starts no further runs; one in progress ends. */
  close(): void {
    this.#isClosed = true;
    this.#isDue = false;
    this.#retry?.cancel();
  }

  async #run(): Promise<void> {
    const { world, retryMs, work, failed } = this.#parts;
    while (this.#isDue) {
      this.#isDue = false;
      this.#retry?.cancel();
      this.#retry = null;
      try {
        await work();
      } catch (error) {
        failed(error);
        if (!this.#isClosed) this.#retry = world.after(retryMs, () => this.wake());
      }
    }
  }
}
