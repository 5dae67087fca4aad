import { ServiceError } from '../../base/errors.ts';
import type { Log } from '../transport.ts';
import type { FlushScope, PendingKind } from './pending-ops.ts';

/** Files that are settled at the same time; the backend puts them together. */
const PARALLEL_MAX = 500;
/** Errors by which a closed file is not sealed or settled by this mount, and need not be. */
const NEEDLESS: ReadonlySet<string> = new Set(['not-found', 'precondition-failed']);

/** A file that was written here and closed. */
export interface ClosedFile {
  readonly inode: number;
  readonly isToBeSealed: boolean;
  seal(): Promise<void>;
  settle(): Promise<void>;
}

interface Settle {
  readonly inode: number;
  readonly isSealing: boolean;
  readonly over: Promise<void>;
}

/**
 * Closed files of which the catalog learns size and times in the background, after those that are to be sealed are sealed. Until then their
 * primary answers.
 */
export class Settles implements PendingKind {
  readonly #log: Log;
  readonly #pending = new Set<Settle>();
  readonly #waiting: (() => void)[] = [];
  #count = 0;

  constructor(log: Log) {
    this.#log = log;
  }

  add(file: ClosedFile): void {
    const { inode, isToBeSealed: isSealing } = file;
    const over = this.#turn()
      .then(() => (isSealing ? file.seal() : undefined))
      .then(() => file.settle())
      .catch((error: unknown) => {
        // Removed meanwhile, or written by another client, which seals and settles it in its turn.
        if (error instanceof ServiceError && NEEDLESS.has(error.code)) return;
        const what = isSealing ? 'sealed and settled' : 'settled';
        this.#log('warn', `a closed file is not ${what}`, { file: inode, error: String(error) });
      })
      .finally(() => {
        this.#count--;
        this.#waiting.shift()?.();
        this.#pending.delete(settle);
      });
    const settle: Settle = { inode, isSealing, over };
    this.#pending.add(settle);
  }

  /** Resolves when the file is not being sealed. */
  async sealed(inode: number): Promise<void> {
    await Promise.all(this.#of(inode).map(({ isSealing, over }) => (isSealing ? over : undefined)));
  }

  /** Resolves when the catalog has the files, and those that are closed meanwhile, or did not take them. */
  async flush(scope: FlushScope): Promise<void> {
    for (;;) {
      const pending = scope.kind === 'inode' ? this.#of(scope.inode) : [...this.#pending];
      if (pending.length === 0) return;
      await Promise.all(pending.map(({ over }) => over));
    }
  }

  #of(inode: number): Settle[] {
    return [...this.#pending].filter((settle) => settle.inode === inode);
  }

  async #turn(): Promise<void> {
    if (this.#count >= PARALLEL_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#count++;
  }
}
