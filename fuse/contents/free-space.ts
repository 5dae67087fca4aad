import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Space } from '../backend.ts';

/** Writes wait for the cluster at least this long after a refusal: reported space may be on other servers. */
const SHORT_MS_MIN = 10_000;
const QUERY_INTERVAL_MS = 2_000;
/** Space is available again from this much, or this share of a small volume: as much as may be pending. */
const FREE_BYTES_MIN = 64 * 1024 * 1024;
const FREE_SHARE_MIN = 1 / 8;

/**
 * Whether the cluster may lack space. A pending write that is refused fails only at the close, where many programs
 * ignore errors: so while space is short, writes wait for the cluster.
 */
export class FreeSpace {
  readonly #world: World;
  readonly #query: () => Promise<Space>;
  readonly #shortMsMin: number;
  #isShort = false;
  #refusedMs = Number.NEGATIVE_INFINITY;
  #queriedMs = Number.NEGATIVE_INFINITY;

  constructor(world: World, query: () => Promise<Space>, shortMsMin = SHORT_MS_MIN) {
    this.#world = world;
    this.#query = query;
    this.#shortMsMin = shortMsMin;
  }

  /** Whether writes should wait for the cluster; while they should, queries the free space at intervals. */
  get isShort(): boolean {
    if (this.#isShort && this.#world.nowMs() - this.#queriedMs >= QUERY_INTERVAL_MS) this.#queryFreeSpace();
    return this.#isShort;
  }

  /** Called with the error of a failed request: after a refusal for lack of space or quota, space counts as short. */
  failed(error: unknown): void {
    const isRefusal =
      error instanceof ServiceError && (error.code === 'no-space' || error.code === 'quota-exceeded');
    if (!isRefusal) return;
    this.#isShort = true;
    this.#refusedMs = this.#world.nowMs();
  }

  /** Called with reported space. It is no longer short only when much is free, some time after the last refusal. */
  update({ totalBytes, freeBytes, freeInodes = 1 }: Space): void {
    // The space is unknown.
    if (totalBytes === 0) return;
    if (freeBytes === 0 || freeInodes === 0) this.#isShort = true;
    else if (
      freeBytes >= Math.min(FREE_BYTES_MIN, totalBytes * FREE_SHARE_MIN) &&
      this.#world.nowMs() - this.#refusedMs >= this.#shortMsMin
    )
      this.#isShort = false;
  }

  #queryFreeSpace(): void {
    this.#queriedMs = this.#world.nowMs();
    this.#query().then(
      (space) => this.update(space),
      // The last known state stays.
      () => undefined,
    );
  }
}
