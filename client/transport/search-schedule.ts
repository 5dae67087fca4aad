import type { Timer, World } from '../../base/world.ts';

export const SEARCH_PERIOD_MS = 10_000;
/** The period while searches find nothing new, and of searches without a request. */
export const SEARCH_PERIOD_MAX_MS = 60_000;

/**
 * When to search for further servers. A request that comes too soon after the last search is kept until its time, and
 * one during a search, which may have asked before the change, causes another search.
 */
export class SearchSchedule {
  readonly #world: World;
  readonly #search: () => Promise<boolean>;
  readonly #periodic: Timer;
  #wanted = false;
  #searching = false;
  #closed = false;
  #endedMs = Number.NEGATIVE_INFINITY;
  #periodMs = SEARCH_PERIOD_MS;
  #timer: Timer | undefined;

  constructor(world: World, search: () => Promise<boolean>) {
    this.#world = world;
    this.#search = search;
    this.#periodic = world.every(SEARCH_PERIOD_MAX_MS, () => this.request()).unref();
  }

  /** Requests a search, because an answer names an unknown server. */
  request(): void {
    this.#wanted = true;
    this.#plan();
  }

  /** The cluster has certainly changed: search soon, even if the last searches found nothing. */
  requestSoon(): void {
    this.#periodMs = SEARCH_PERIOD_MS;
    this.request();
  }

  #plan(): void {
    this.#timer?.cancel();
    if (!this.#wanted || this.#searching || this.#closed) return;
    const waitMs = this.#endedMs + this.#periodMs - this.#world.nowMs();
    if (waitMs > 0) this.#timer = this.#world.after(waitMs, () => this.#plan()).unref();
    else void this.#run();
  }

  async #run(): Promise<void> {
    this.#wanted = false;
    this.#searching = true;
    let hasChanged = false;
    try {
      hasChanged = await this.#search();
    } finally {
      this.#searching = false;
      this.#periodMs = hasChanged ? SEARCH_PERIOD_MS : Math.min(2 * this.#periodMs, SEARCH_PERIOD_MAX_MS);
      this.#endedMs = this.#world.nowMs();
      this.#plan();
    }
  }

  close(): void {
    this.#closed = true;
    this.#periodic.cancel();
    this.#timer?.cancel();
  }
}
