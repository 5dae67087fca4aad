import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { IndexDatabase } from './index-database.ts';
import { ObjectDigests } from './object-digests.ts';
import type { RowChange } from './object-rows.ts';

/** Rows digested per tick of the event loop: a millisecond or two. */
const DIGESTS_PER_TICK = 1_000;
/** A change of more objects than this drops the digests, which costs less than updating them. */
const CHANGES_MAX = 10_000;

export interface RowsOptions<Reads extends keyof IndexDatabase> {
  readonly world: World;
  readonly file: FileId;
  readonly index: Pick<IndexDatabase, Reads>;
  check(): void;
  idle(): void;
}

/** Digests of one replica's objects, computed at the first request, and updated from then on. */
export class IncrementalDigests {
  readonly #options: RowsOptions<'objectsUpTo'>;
  /** Of the objects up to an index; null before the first request. */
  #digests: { readonly tree: ObjectDigests; readUpTo: number } | null = null;
  #reading: Promise<void> | null = null;

  constructor(options: RowsOptions<'objectsUpTo'>) {
    this.#options = options;
  }

  get reading(): boolean {
    return this.#reading !== null;
  }

  /** The digests of all objects: one tree, which later commits change. Use it before the next await. */
  async all(): Promise<ObjectDigests> {
    while (this.#digests?.readUpTo !== Infinity) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = null;
        this.#options.idle();
      });
      await this.#reading;
    }
    return this.#digests.tree;
  }

  update(changes: readonly RowChange[]): void {
    const digests = this.#digests;
    if (digests === null) return;
    if (changes.length > CHANGES_MAX) {
      this.forget();
      return;
    }
    for (const [before, after] of changes) {
      const index = after?.index ?? before?.index ?? Infinity;
      if (index <= digests.readUpTo) digests.tree.replace(before, after);
    }
  }

  /** Called after a change of an unknown number of objects. */
  forget(): void {
    this.#digests = null;
  }

  /** Reads all rows, in several ticks: commits meanwhile are applied to the rows read so far. */
  async #read(): Promise<void> {
    const { world, file, index, check } = this.#options;
    const digests = { tree: new ObjectDigests(), readUpTo: -1 };
    this.#digests = digests;
    for (;;) {
      await world.nextTick();
      check();
      // Dropped meanwhile: the waiters restart it.
      if (this.#digests !== digests) return;
      const rows = index.objectsUpTo(file, digests.readUpTo + 1, Number.MAX_SAFE_INTEGER, DIGESTS_PER_TICK);
      for (const row of rows) digests.tree.replace(null, row);
      const last = rows.at(-1);
      if (last === undefined || rows.length < DIGESTS_PER_TICK) {
        digests.readUpTo = Infinity;
        return;
      }
      digests.readUpTo = last.index;
    }
  }
}
