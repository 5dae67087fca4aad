import type { Logger } from 'pino';
import type { Timer, World } from '../../base/world.ts';
import { Recount, type WrongCounter } from '../../catalog/recount.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';

/** A slice takes about 0.1 ms of processor time; with the pauses, a recount of a million files takes half an hour. */
export const SLICE_ROWS = 250;
const PAUSE_MS = 100;
/** From when this server became the catalog's primary to its first recount, and between recounts. */
const FIRST_MS = 600_000;
const PERIOD_MS = 86_400_000;
/** While no recount is in progress. */
const LOOK_MS = 60_000;
const LOGGED_MAX = 100;

export interface CounterCheckParts {
  readonly world: Pick<World, 'nowMs' | 'after'>;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  /** The catalog's replica here; null if there is none. */
  store(): Pick<CatalogStore, 'withTemporaryTables'> | null;
  /** Called once for each recount that found any. */
  found(wrong: readonly WrongCounter[]): void;
}

/**
 * Counts again once a day, at the catalog's primary, what the catalog's counters count. A difference is a bug, or
 * undetected damage of a disk: it is reported, and nothing is changed, because the counter as well as the rows may be
 * wrong. Usage, quotas and displayed numbers follow the counters; where replicas are and move, the rows.
 */
export class CounterCheck {
  readonly #parts: CounterCheckParts;
  #timer: Timer;
  #isClosed = false;
  #recount: Recount | null = null;
  /** Null while this server is not the catalog's primary. */
  #dueMs: number | null = null;
  #wrong: readonly WrongCounter[] = [];

  constructor(parts: CounterCheckParts) {
    this.#parts = parts;
    this.#timer = this.#after(LOOK_MS);
  }

  /** Counters that the last recount found wrong; none while this server is not the catalog's primary. */
  get wrong(): readonly WrongCounter[] {
    return this.#wrong;
  }

  close(): void {
    this.#isClosed = true;
    this.#timer.cancel();
  }

  #after(delayMs: number): Timer {
    return this.#parts.world
      .after(delayMs, () => {
        const nextMs = this.#look();
        if (!this.#isClosed) this.#timer = this.#after(nextMs);
      })
      .unref();
  }

  /** @returns when to look again */
  #look(): number {
    const nowMs = this.#parts.world.nowMs();
    const store = this.#parts.store();
    if (store === null || !this.#parts.isCatalogPrimary()) {
      this.#dueMs = null;
      this.#wrong = [];
      if (store === null || this.#recount === null) return LOOK_MS;
    } else {
      this.#dueMs ??= nowMs + FIRST_MS;
      if (nowMs < this.#dueMs) return LOOK_MS;
    }
    try {
      return store.withTemporaryTables((db) => this.#continue(db, this.#dueMs === null)) ? PAUSE_MS : LOOK_MS;
    } catch (error) {
      // The store has noticed damage by itself. Its tables, if any are left, are replaced by the next recount.
      this.#parts.log.warn(
        { err: error },
        "cannot count the rows of the catalog; the next day's recount is next",
      );
      this.#recount = null;
      this.#dueMs = nowMs + PERIOD_MS;
      return LOOK_MS;
    }
  }

  /** @returns whether to continue */
  #continue(db: Parameters<Recount['isOf']>[0], isAbandoned: boolean): boolean {
    if (this.#recount?.isOf(db) !== true) {
      this.#recount = null;
      if (isAbandoned) return false;
      if (!db.inTransaction) this.#recount = new Recount(db);
      return true;
    }
    if (!isAbandoned && !this.#recount.step(SLICE_ROWS)) return true;
    // A batch is open: undoing it would bring the temporary tables back.
    if (db.inTransaction) return true;
    if (!isAbandoned) this.#report(this.#recount.wrongCounters());
    this.#recount.end();
    this.#recount = null;
    return false;
  }

  #report(wrong: readonly WrongCounter[]): void {
    const { log, world, found } = this.#parts;
    this.#dueMs = world.nowMs() + PERIOD_MS;
    this.#wrong = wrong;
    for (const counter of wrong.slice(0, LOGGED_MAX))
      log.error(counter, 'a counter of the catalog is wrong: please report this');
    if (wrong.length > 0) found(wrong);
  }
}
