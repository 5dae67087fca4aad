import type { World } from '../../base/world.ts';
import type { NameChange } from '../../catalog/change-record.ts';

/** Changes that are kept; who was away for longer has to look anew. */
const CHANGES_MAX = 20_000;

/**
 * The latest changes of the catalog, by the operation that made them. Every replica keeps them, so that whoever becomes the
 * primary goes on telling where the one before it ended.
 */
export class CatalogChanges {
  readonly #world: World;
  readonly #operations: { readonly seq: number; readonly changes: readonly NameChange[] }[] = [];
  readonly #waiting = new Set<() => void>();
  #count = 0;
  /** Every change behind this operation, up to `#last`, is here. */
  #from: number;
  #last: number;

  /** @param seq the last operation of the state that is there already */
  constructor(world: World, seq: number) {
    this.#world = world;
    this.#from = seq;
    this.#last = seq;
  }

  get last(): number {
    return this.#last;
  }

  append(seq: number, changes: readonly NameChange[]): void {
    this.#last = seq;
    if (changes.length > 0) this.#operations.push({ seq, changes });
    this.#count += changes.length;
    while (this.#count > CHANGES_MAX) {
      const oldest = this.#operations.shift();
      if (oldest === undefined) break;
      this.#count -= oldest.changes.length;
      this.#from = oldest.seq;
    }
    for (const wake of [...this.#waiting]) wake();
  }

  /** Another state took the place of the one that was here. */
  reset(seq: number): void {
    this.#operations.length = 0;
    this.#count = 0;
    this.#from = seq;
    this.#last = seq;
    for (const wake of [...this.#waiting]) wake();
  }

  /** @returns what was changed behind operation `after`; null where that is not known any more */
  since(after: number): readonly NameChange[] | null {
    if (after < this.#from || after > this.#last) return null;
    return this.#operations.filter(({ seq }) => seq > after).flatMap(({ changes }) => changes);
  }

  /** Resolves with the next operation, or when the time is up. */
  next(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = this.#world.after(timeoutMs, wake);
      this.#waiting.add(wake);
    });
  }
}
