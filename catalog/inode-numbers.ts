import { ServiceError } from '../base/errors.ts';
import { inodesOf } from '../base/ids.ts';
import type { OwnCatalog } from './own-catalog.ts';
import type { Statements } from './statements.ts';
import { UNCHANGING } from './volume-move-tables.ts';

/** Numbers `first` to `last`, reserved for the client `owner`. */
interface ReservedRow {
  readonly first: number;
  readonly last: number;
  readonly owner: number;
  readonly atNs: string;
  /** Server ids, separated by commas; empty if an earlier release reserved them. */
  readonly members: string;
  /** The volume of the files; 0 if the reservation named none. */
  readonly volume: number;
}

/** Not of a volume that moves to another catalog, or has moved: there its numbers are used, voided or forgotten. */
const DOES_CHANGE = `volume NOT IN (${UNCHANGING})`;

/** Where a catalog is in its inode numbers. */
export interface CatalogNumbers {
  readonly next: number;
  /** A volume's catalog gives out numbers below it only. */
  readonly limit: number;
  /** All numbers of the catalog are below it. */
  readonly end: number;
  /** The epoch in which `next` was the next number; a later one begins at the limit. */
  readonly epoch: number;
  /** False before the catalog has begun, and after it has closed. */
  readonly serves: boolean;
}

/** Assigns inode numbers, each once, even if a reserved one stays unused. Plain access, no rules. */
export class InodeNumbers {
  readonly #statements: Statements;
  readonly #own: OwnCatalog;

  constructor(statements: Statements, own: OwnCatalog) {
    this.#statements = statements;
    this.#own = own;
  }

  /** In an epoch of its own, a volume's catalog continues at the limit: later numbers were never given out. */
  startAtLimit(epoch: number): void {
    this.#statements.run(
      'UPDATE counters SET next_inode = number_limit, numbers_epoch = ? WHERE numbers_epoch <> ?',
      ...[epoch, epoch],
    );
  }

  position(): CatalogNumbers {
    const row = this.#statements.get<Omit<CatalogNumbers, 'end' | 'serves'>>(
      'SELECT next_inode AS next, number_limit AS "limit", numbers_epoch AS epoch FROM counters',
    ) as Omit<CatalogNumbers, 'end' | 'serves'>;
    const { begun, closed } = this.#own.state();
    return { ...row, end: inodesOf(this.#own.number).end, serves: begun && !closed };
  }

  /** Numbers below the limit may be given out. @returns it */
  raiseLimit(limit: number): number {
    return this.#statements.counter(
      'UPDATE counters SET number_limit = MAX(number_limit, ?) RETURNING number_limit',
      limit,
    );
  }

  /** The next numbers are at least `id`. */
  startFrom(id: number): void {
    this.#statements.run('UPDATE counters SET next_inode = ? WHERE next_inode < ?', id, id);
  }

  next(): number {
    return this.#statements.counter('SELECT next_inode FROM counters');
  }

  /** @returns the first of `count` new numbers */
  take(count: number): number {
    const next = this.#statements.counter(
      'UPDATE counters SET next_inode = next_inode + ? RETURNING next_inode',
      count,
    );
    if (next > inodesOf(this.#own.number).end)
      throw new ServiceError('no-space', 'Cannot number another inode');
    return next - count;
  }

  reserve({ first, last, owner, atNs, members, volume }: ReservedRow): void {
    this.#statements.run(
      'INSERT INTO reserved (first, last, owner, at_ns, members, volume) VALUES (?, ?, ?, ?, ?, ?)',
      ...[first, last, owner, atNs, members, volume],
    );
  }

  /** @returns members of the file's first view; empty from an earlier release; null if not reserved */
  reservedMembers(inode: number): readonly string[] | null {
    const range = this.#reservedAround(inode);
    if (range === undefined) return null;
    return range.members === '' ? [] : range.members.split(',');
  }

  /** The distinct member sets of reserved numbers, without those of earlier releases. */
  reservedSets(): readonly (readonly string[])[] {
    return this.#statements
      .all<{ members: string }>("SELECT DISTINCT members FROM reserved WHERE members <> '' ORDER BY members")
      .map(({ members }) => members.split(','));
  }

  hasReserved(): boolean {
    return this.#statements.get('SELECT 1 FROM reserved LIMIT 1') !== undefined;
  }

  /** Reserved numbers that end at `from` or later, ascending. */
  reservedFrom(from: number, countMax: number): Pick<ReservedRow, 'first' | 'last' | 'volume'>[] {
    // Ranges have no common numbers: in the order of their first ones, they ascend by their last ones, too.
    return this.#statements.all(
      `SELECT first, last, volume FROM reserved
       WHERE first >= COALESCE((SELECT MAX(first) FROM reserved WHERE first <= ?), 0) AND last >= ? ORDER BY first LIMIT ?`,
      ...[from, from, countMax],
    );
  }

  isReserved(inode: number): boolean {
    return this.#reservedAround(inode) !== undefined;
  }

  /** The volume for whose files the number is reserved; 0 if none was named; undefined if it is not reserved. */
  volumeOf(inode: number): number | undefined {
    return this.#reservedAround(inode)?.volume;
  }

  /**
   * Uses up a number. @param user the volume of the file that gets it; null: the number is voided
   * @returns whether `owner` had reserved it, for that volume if it named one
   */
  takeReserved(owner: number, inode: number, user: number | null): boolean {
    const range = this.#reservedAround(inode);
    if (range === undefined || range.owner !== owner) return false;
    const { first, last, volume } = range;
    // It moves with its volume: elsewhere, its inode would be in the wrong catalog then.
    if (user !== null && volume !== 0 && volume !== user) return false;
    this.#statements.run('DELETE FROM reserved WHERE first = ?', first);
    if (first < inode) this.reserve({ ...range, last: inode - 1 });
    if (inode < last) this.reserve({ ...range, first: inode + 1 });
    return true;
  }

  /** Voids older reservations; their numbers stay unused. */
  forgetReserved(beforeNs: string): void {
    this.#statements.run(
      `DELETE FROM reserved WHERE at_ns < CAST(? AS INTEGER) AND ${DOES_CHANGE}`,
      beforeNs,
    );
  }

  /** Reservations of a volume last from now on: creates by its numbers had to wait while it was frozen. */
  renewReserved(volume: number, atNs: string): void {
    this.#statements.run('UPDATE reserved SET at_ns = CAST(? AS INTEGER) WHERE volume = ?', atNs, volume);
  }

  forgetAllReserved(): void {
    this.#statements.run('DELETE FROM reserved');
  }

  #reservedAround(inode: number): ReservedRow | undefined {
    const row = this.#statements.get<ReservedRow>(
      `SELECT first, last, owner, CAST(at_ns AS TEXT) AS atNs, members, volume FROM reserved
       WHERE first <= ? ORDER BY first DESC LIMIT 1`,
      inode,
    );
    return row !== undefined && inode <= row.last ? row : undefined;
  }
}
