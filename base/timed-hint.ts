import type { World } from './world.ts';

/** A hint that another process gave, valid for a time. The same hint again does not extend it. */
export class TimedHint<Value> {
  readonly #world: Pick<World, 'nowMs'>;
  readonly #validMs: number;
  #value: Value | null = null;
  #untilMs = 0;

  constructor(world: Pick<World, 'nowMs'>, validMs: number) {
    this.#world = world;
    this.#validMs = validMs;
  }

  note(value: Value): void {
    if (this.current === value) return;
    this.#value = value;
    this.#untilMs = this.#world.nowMs() + this.#validMs;
  }

  /** The hint; null if there is none, or no longer. */
  get current(): Value | null {
    return this.#world.nowMs() < this.#untilMs ? this.#value : null;
  }
}
