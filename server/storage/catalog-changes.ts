import type { World } from '../../base/world.ts';
import type { NameChange } from '../../catalog/change-record.ts';

/** Changes that are kept; a watcher that lags further behind has to list everything again. */
const CHANGES_MAX = 20_000;

/** The latest changes of the catalog. Every replica keeps them, so that a new primary can continue the list. */
export class CatalogChanges {
  readonly #world: World;
  readonly #operations: { readonly seq: number; readonly changes: readonly NameChange[] }[] = [];
  readonly #waiting = new Set<() => void>();
  #count = 0;
  /** Every change after this operation, up to `#last`, is kept. */
  #from: number;
  #last: number;

  constructor(world: World, seq: number) {
    this.#world = world;
    this.#from = seq;
    this.#last = seq;
  }

  get last(): number {
    return this.#last;
  }

  /** Adds an executed operation's changes for watches, and wakes these. Drops the oldest beyond `CHANGES_MAX`. */
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

  reset(seq: number): void {
    this.#operations.length = 0;
    this.#count = 0;
    this.#from = seq;
    this.#last = seq;
    for (const wake of [...this.#waiting]) wake();
  }

  /** @returns the changes after operation `after`; null if some are not kept any more, or that operation is not here */
  since(after: number): readonly NameChange[] | null {
    if (after < this.#from || after > this.#last) return null;
    return this.#operations.filter(({ seq }) => seq > after).flatMap(({ changes }) => changes);
  }

  /** Resolves at the next operation or reset, or after `timeoutMs` milliseconds. */
  whenChanged(timeoutMs: number): Promise<void> {
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
