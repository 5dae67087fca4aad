/** Directories of which late errors are kept by themselves; older ones count for every directory. */
const DIRECTORIES_MAX = 1_000;

interface Errors {
  /** The latest one. */
  readonly error: unknown;
  /** Its number, among all late errors of this mount. */
  readonly number: number;
  isReported: boolean;
}

/**
 * Errors of operations that were acknowledged and then dropped, by directory. As errseq_t of Linux: each descriptor reports an error once that
 * happened since its last report or, where no descriptor has reported it, before it was opened.
 */
export class LateErrors {
  /** The latest last. */
  readonly #byDirectory = new Map<number, Errors>();
  /** Of directories that are not known any more, all before those that are. */
  #older: Errors | null = null;
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

  /** What a descriptor has seen that is opened now. @param directory null: of the whole volume */
  sample(directory: number | null): number {
    const unreported = this.#of(directory).filter(({ isReported }) => !isReported);
    return Math.min(this.#last, ...unreported.map(({ number }) => number - 1));
  }

  /**
   * @param seen what the descriptor has seen
   * @returns the latest error since, and what the descriptor has seen now; null where there is none
   */
  report(directory: number | null, seen: number): { readonly error: unknown; readonly seen: number } | null {
    const since = this.#of(directory).filter(({ number }) => number > seen);
    const latest = since.at(-1);
    if (latest === undefined) return null;
    for (const errors of since) errors.isReported = true;
    return { error: latest.error, seen: latest.number };
  }

  #of(directory: number | null): Errors[] {
    const older = this.#older === null ? [] : [this.#older];
    if (directory === null) return [...older, ...this.#byDirectory.values()];
    const errors = this.#byDirectory.get(directory);
    return errors === undefined ? older : [...older, errors];
  }
}
