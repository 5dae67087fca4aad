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

/** Lets the checks of all catalogs on a server count one after the other. */
export class RecountTurns {
  #owner: CounterCheck | null = null;

  /** @returns whether it is the turn of `check` until it ends it */
  take(check: CounterCheck): boolean {
    this.#owner ??= check;
    return this.#owner === check;
  }

  end(check: CounterCheck): void {
    if (this.#owner === check) this.#owner = null;
  }
}

export interface CounterCheckParts {
  readonly world: Pick<World, 'nowMs' | 'after'>;
  readonly log: Logger;
  readonly recountTurns: RecountTurns;
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
    this.#parts.recountTurns.end(this);
  }

  #after(delayMs: number): Timer {
    return this.#parts.world
      .after(delayMs, () => {
        const isCounting = this.#look();
        if (!isCounting) this.#parts.recountTurns.end(this);
        if (!this.#isClosed) this.#timer = this.#after(isCounting ? PAUSE_MS : LOOK_MS);
      })
      .unref();
  }

  /** @returns whether a recount is in progress */
  #look(): boolean {
    const nowMs = this.#parts.world.nowMs();
    const store = this.#parts.store();
    if (store === null || !this.#parts.isCatalogPrimary()) {
      this.#dueMs = null;
      this.#wrong = [];
      // The tables of a recount are gone with its database.
      if (store === null) this.#recount = null;
      if (store === null || this.#recount === null) return false;
    } else {
      this.#dueMs ??= nowMs + FIRST_MS;
      if (nowMs < this.#dueMs || !this.#parts.recountTurns.take(this)) return false;
    }
    try {
      return store.withTemporaryTables((db) => this.#continue(db, this.#dueMs === null));
    } catch (error) {
      // The store has noticed damage by itself. Its tables, if any are left, are replaced by the next recount.
      this.#parts.log.warn(
        { err: error },
        "cannot count the rows of the catalog; the next day's recount is next",
      );
      this.#recount = null;
      this.#dueMs = nowMs + PERIOD_MS;
      return false;
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
