import type { World } from '../../base/world.ts';

/** Pause after a pass, for each of its files that stayed: looking at a file costs about a twentieth of this. */
const PAUSE_PER_FILE_MS = 1;
const PAUSE_MAX_MS = 600_000;

/**
 * Pauses of the steward's passes over files. A pass over many files that cannot be moved (they have no other server, or
 * their moves failed) is repeated the later the more there are, or once servers or volumes have changed.
 */
export class PassPauses {
  readonly #world: Pick<World, 'nowMs'>;
  readonly #untilMs = new Map<string, number>();
  #state = '';

  constructor(world: Pick<World, 'nowMs'>) {
    this.#world = world;
  }

  /** To be called before each round. @param state what decides whether files can be moved */
  begin(state: string): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#untilMs.clear();
  }

  isPaused(pass: string): boolean {
    return this.#world.nowMs() < (this.#untilMs.get(pass) ?? 0);
  }

  ended(pass: string, stayedCount: number): void {
    if (stayedCount === 0) this.clear(pass);
    else
      this.#untilMs.set(pass, this.#world.nowMs() + Math.min(PAUSE_MAX_MS, stayedCount * PAUSE_PER_FILE_MS));
  }

  clear(pass: string): void {
    this.#untilMs.delete(pass);
  }

  reset(): void {
    this.#state = '';
    this.#untilMs.clear();
  }
}
