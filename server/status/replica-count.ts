import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { FileStore } from '../storage/store.ts';

/** Files of one tick of the event loop. */
const PAGE = 2_048;
const VALID_MS = 60_000;

/**
 * The number of replicas on this server: exact if one page has them, else counted in pages, at most once a minute. A
 * status never waits for a count.
 */
export class ReplicaCount {
  readonly #world: Pick<World, 'nowMs' | 'nextTick'>;
  readonly #store: Pick<FileStore, 'list'>;
  #counting: Promise<void> | null = null;
  /** Of the first count, as far as it has come. */
  #countedFirst = 0;
  #last: { readonly count: number; readonly atMs: number } | null = null;

  constructor(world: Pick<World, 'nowMs' | 'nextTick'>, store: Pick<FileStore, 'list'>) {
    this.#world = world;
    this.#store = store;
  }

  /** @returns the last count; before the first one has ended, the replicas that it has visited */
  async current(): Promise<number> {
    const first = this.#store.list(0 as FileId, PAGE);
    if (first.length < PAGE) return first.length;
    const last = this.#last;
    if (last !== null && this.#world.nowMs() - last.atMs < VALID_MS) return last.count;
    this.#counting ??= this.#count()
      // It fails if the store has failed, which the next status reports.
      .catch(() => undefined)
      .finally(() => {
        this.#counting = null;
      });
    return last?.count ?? this.#countedFirst;
  }

  async #count(): Promise<void> {
    let count = 0;
    for (let after = 0 as FileId; ; ) {
      const page = this.#store.list(after, PAGE);
      count += page.length;
      if (this.#last === null) this.#countedFirst = count;
      const end = page.at(-1);
      if (end === undefined || page.length < PAGE) break;
      after = end;
      await this.#world.nextTick();
    }
    this.#last = { count, atMs: this.#world.nowMs() };
  }
}
