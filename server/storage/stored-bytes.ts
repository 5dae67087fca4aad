import type { RowsOptions } from './incremental-digests.ts';
import type { RowChange } from './object-rows.ts';

/** Objects counted per tick of the event loop: 512 MiB of contents, less than a millisecond. */
const OBJECTS_PER_TICK = 4_096;

/** The total bytes of one replica's objects: counted at the first request, and updated from then on. */
export class StoredBytes {
  readonly #options: RowsOptions<'lengthsAfter'>;
  /** Of the objects up to an index; null before the first request. */
  #counted: { bytes: number; countedUpTo: number } | null = null;
  #counting: Promise<void> | null = null;

  constructor(options: RowsOptions<'lengthsAfter'>) {
    this.#options = options;
  }

  get counting(): boolean {
    return this.#counting !== null;
  }

  /** The total as of the last commit; null if there are many objects, and `whenCounted` was not awaited. */
  get(): number | null {
    if (this.#counted === null) {
      this.#counted = { bytes: 0, countedUpTo: -1 };
      this.#countNext(this.#counted);
    }
    return this.#counted.countedUpTo === Infinity ? this.#counted.bytes : null;
  }

  /** Resolves once `get` is not null; rejects if the replica was removed, or the store has failed. */
  async whenCounted(): Promise<void> {
    if (this.get() !== null) return;
    this.#counting ??= this.#countRest().finally(() => {
      this.#counting = null;
      this.#options.idle();
    });
    await this.#counting;
  }

  update(changes: readonly RowChange[]): void {
    const counted = this.#counted;
    if (counted === null) return;
    for (const [before, after] of changes) {
      const index = after?.index ?? before?.index ?? Infinity;
      if (index <= counted.countedUpTo) counted.bytes += (after?.length ?? 0) - (before?.length ?? 0);
    }
  }

  /** Called after a change of an unknown number of objects: they are counted again. */
  forget(): void {
    this.#counted = null;
  }

  #countNext(counted: { bytes: number; countedUpTo: number }): void {
    const { file, index } = this.#options;
    const { count, bytes, last } = index.lengthsAfter(file, counted.countedUpTo, OBJECTS_PER_TICK);
    counted.bytes += bytes;
    counted.countedUpTo = count < OBJECTS_PER_TICK ? Infinity : last;
  }

  /** Counts the other rows, in several ticks: commits meanwhile are applied to the rows read so far. */
  async #countRest(): Promise<void> {
    const { world, check } = this.#options;
    while (this.get() === null) {
      await world.nextTick();
      check();
      if (this.#counted !== null) this.#countNext(this.#counted);
    }
  }
}
