import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Space } from '../backend.ts';

/** For so long after somebody was refused nothing is gathered, whatever is said of room: there may be some on other servers than those of the next file. */
const HOLD_MS = 10_000;
/** While there is no room it is looked for at the most so often. */
const LOOK_MS = 2_000;
/** There is room again where so much is free, or this share of a small volume: as much as may be gathered. */
const ROOM_BYTES_MIN = 64 * 1024 * 1024;
const ROOM_SHARE = 1 / 8;

/**
 * Whether the cluster may have no room for what is written next. What is gathered here is told as written, and refused when it is closed, of
 * which many programs hear nothing: where it may come to that, nothing is gathered.
 */
export class Room {
  readonly #world: World;
  readonly #ask: () => Promise<Space>;
  readonly #holdMs: number;
  #isTight = false;
  #refusedMs = Number.NEGATIVE_INFINITY;
  #lookedMs = Number.NEGATIVE_INFINITY;

  constructor(world: World, ask: () => Promise<Space>, holdMs = HOLD_MS) {
    this.#world = world;
    this.#ask = ask;
    this.#holdMs = holdMs;
  }

  /** Asked before each write: while there is no room, this looks whether there is again. */
  get isTight(): boolean {
    if (this.#isTight && this.#world.nowMs() - this.#lookedMs >= LOOK_MS) this.#look();
    return this.#isTight;
  }

  /** What a call failed with. */
  failed(error: unknown): void {
    const isRefusal =
      error instanceof ServiceError && (error.code === 'no-space' || error.code === 'quota-exceeded');
    if (!isRefusal) return;
    this.#isTight = true;
    this.#refusedMs = this.#world.nowMs();
  }

  heard({ totalBytes, freeBytes, freeInodes = 1 }: Space): void {
    // Nobody knows.
    if (totalBytes === 0) return;
    if (freeBytes === 0 || freeInodes === 0) this.#isTight = true;
    else if (
      freeBytes >= Math.min(ROOM_BYTES_MIN, totalBytes * ROOM_SHARE) &&
      this.#world.nowMs() - this.#refusedMs >= this.#holdMs
    )
      this.#isTight = false;
  }

  #look(): void {
    this.#lookedMs = this.#world.nowMs();
    this.#ask().then(
      (space) => this.heard(space),
      // It stays as it was heard of last.
      () => undefined,
    );
  }
}
