import { ServiceError } from '../base/errors.ts';
import { FILE_NUMBERS_END } from '../base/ids.ts';
import type { Statements } from './statements.ts';

/** Numbers `first` to `last`, reserved for the client `owner`. */
interface ReservedRow {
  readonly first: number;
  readonly last: number;
  readonly owner: number;
  readonly atNs: string;
  /** Server ids, separated by commas; empty if an earlier release reserved them. */
  readonly members: string;
}

/** Assigns inode numbers, each once, even if a reserved one stays unused. Plain access, no rules. */
export class InodeNumbers {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
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
    if (next > FILE_NUMBERS_END) throw new ServiceError('no-space', 'Cannot number another inode');
    return next - count;
  }

  reserve({ first, last, owner, atNs, members }: ReservedRow): void {
    this.#statements.run(
      'INSERT INTO reserved (first, last, owner, at_ns, members) VALUES (?, ?, ?, ?, ?)',
      first,
      last,
      owner,
      atNs,
      members,
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

  isReserved(inode: number): boolean {
    return this.#reservedAround(inode) !== undefined;
  }

  /** Uses up a number. @returns whether `owner` had reserved it */
  takeReserved(owner: number, inode: number): boolean {
    const range = this.#reservedAround(inode);
    if (range === undefined || range.owner !== owner) return false;
    const { first, last } = range;
    this.#statements.run('DELETE FROM reserved WHERE first = ?', first);
    if (first < inode) this.reserve({ ...range, last: inode - 1 });
    if (inode < last) this.reserve({ ...range, first: inode + 1 });
    return true;
  }

  /** Voids older reservations; their numbers stay unused. */
  forgetReserved(beforeNs: string): void {
    this.#statements.run('DELETE FROM reserved WHERE at_ns < CAST(? AS INTEGER)', beforeNs);
  }

  #reservedAround(inode: number): ReservedRow | undefined {
    const row = this.#statements.get<ReservedRow>(
      `SELECT first, last, owner, CAST(at_ns AS TEXT) AS atNs, members FROM reserved
       WHERE first <= ? ORDER BY first DESC LIMIT 1`,
      inode,
    );
    return row !== undefined && inode <= row.last ? row : undefined;
  }
}
