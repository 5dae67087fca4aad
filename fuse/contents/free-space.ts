import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Space } from '../backend.ts';

/** Writes wait for the cluster at least this long after a refusal: reported space may be on other servers. */
const HOLD_MS = 10_000;
const LOOK_MS = 2_000;
/** Space is available again from this much, or this share of a small volume: as much as may be pending. */
const ROOM_BYTES_MIN = 64 * 1024 * 1024;
const ROOM_SHARE = 1 / 8;

/**
 * Whether the cluster may lack space. A pending write that is refused fails only at the close, where many programs
 * ignore errors: so while space is short, writes wait for the cluster.
 */
export class FreeSpace {
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

  /** Checked before each write; requests the free space while there is none. */
  get isShort(): boolean {
    if (this.#isTight && this.#world.nowMs() - this.#lookedMs >= LOOK_MS) this.#requestSpace();
    return this.#isTight;
  }

  failed(error: unknown): void {
    const isRefusal =
      error instanceof ServiceError && (error.code === 'no-space' || error.code === 'quota-exceeded');
    if (!isRefusal) return;
    this.#isTight = true;
    this.#refusedMs = this.#world.nowMs();
  }

  update({ totalBytes, freeBytes, freeInodes = 1 }: Space): void {
    // Unknown.
    if (totalBytes === 0) return;
    if (freeBytes === 0 || freeInodes === 0) this.#isTight = true;
    else if (
      freeBytes >= Math.min(ROOM_BYTES_MIN, totalBytes * ROOM_SHARE) &&
      this.#world.nowMs() - this.#refusedMs >= this.#holdMs
    )
      this.#isTight = false;
  }

  #requestSpace(): void {
    this.#lookedMs = this.#world.nowMs();
    this.#ask().then(
      (space) => this.update(space),
      // The last known state stays.
      () => undefined,
    );
  }
}
