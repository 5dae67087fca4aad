/** Directories of which late errors are kept by themselves; older ones count for every directory. */
const DIRECTORIES_MAX = 1_000;

interface Errors {
  /** The latest one. */
  readonly error: unknown;
  /** Its number, among all late errors of this mount. */
  readonly number: number;
  isReported: boolean;
}

/** What a descriptor is open on: a directory, by its inode; the volume, by its root; a file. */
export type ErrorScope = number | 'volume' | 'file';

/**
 * Errors of operations that were acknowledged and then dropped, by directory. As errseq_t of Linux: each descriptor reports an error once that
 * happened since its last report or, where no descriptor has reported it, before it was opened.
 */
export class LateErrors {
  /** The latest last. */
  readonly #byDirectory = new Map<number, Errors>();
  /** Of directories that are not known any more, all before those that are. */
  #older: Errors | null = null;
  /** The latest one of the whole volume, which every directory and file reports. */
  #ofVolume: Errors | null = null;
  #last = 0;

  add(directory: number, error: unknown): void {
    this.#byDirectory.delete(directory);
    this.#byDirectory.set(directory, { error, number: ++this.#last, isReported: false });
    for (const [oldest, errors] of this.#byDirectory) {
      if (this.#byDirectory.size <= DIRECTORIES_MAX) break;
      this.#byDirectory.delete(oldest);
      const isReported = errors.isReported && (this.#older?.isReported ?? true);
      this.#older = { ...errors, isReported };
    }
  }

  addToVolume(error: unknown): void {
    this.#ofVolume = { error, number: ++this.#last, isReported: false };
  }

  /** What a descriptor has seen that is opened now. */
  sample(scope: ErrorScope): number {
    const unreported = this.#of(scope).filter(({ isReported }) => !isReported);
    return Math.min(this.#last, ...unreported.map(({ number }) => number - 1));
  }

  /**
   * @param seen what the descriptor has seen
   * @returns the latest error since, and what the descriptor has seen now; null where there is none
   */
  report(scope: ErrorScope, seen: number): { readonly error: unknown; readonly seen: number } | null {
    const since = this.#of(scope).filter(({ number }) => number > seen);
    const latest = since.sort((one, other) => one.number - other.number).at(-1);
    if (latest === undefined) return null;
    for (const errors of since) errors.isReported = true;
    return { error: latest.error, seen: latest.number };
  }

  #of(scope: ErrorScope): Errors[] {
    if (scope === 'file') return present(this.#ofVolume);
    const shared = present(this.#older, this.#ofVolume);
    if (scope === 'volume') return [...shared, ...this.#byDirectory.values()];
    return [...shared, ...present(this.#byDirectory.get(scope))];
  }
}

function present(...errors: readonly (Errors | null | undefined)[]): Errors[] {
  return errors.filter((known) => known !== null && known !== undefined);
}
