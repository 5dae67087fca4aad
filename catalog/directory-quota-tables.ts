import type { Statements } from './statements.ts';

/** Quotas of directories in each other, at most: a change of an inode counts against each. */
export const NESTED_QUOTAS_MAX = 16;

/** What may count against a quota, and does; limits are 0 for none. */
export interface Quota {
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  readonly namedInodes: number;
  /** Includes growth allowances. */
  readonly namedBytes: number;
}

/** Quota of a directory; counts include those of directories with a quota in it. */
export interface DirectoryQuotaRow extends Quota {
  readonly directory: number;
  readonly volume: number;
  /** The directory with a quota that has this one in it; 0: none. */
  readonly enclosing: number;
}

const COLUMNS = `directory, volume, enclosing, quota_bytes AS quotaBytes, quota_inodes AS quotaInodes,
  named_inodes AS namedInodes, named_bytes AS namedBytes`;

/**
 * Quotas of directories. Plain access, no rules. An inode names in `quota` the innermost directory whose quota it
 * counts against; the others follow from `enclosing`. A row lasts while anything counts against it: its directory, and
 * after that files in the trash.
 */
export class DirectoryQuotaTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(directory: number): DirectoryQuotaRow | undefined {
    return this.#statements.get<DirectoryQuotaRow>(
      `SELECT ${COLUMNS} FROM directory_quotas WHERE directory = ?`,
      directory,
    );
  }

  /** The quotas that an inode counts against, the innermost first. @param quota of the inode */
  chain(quota: number): DirectoryQuotaRow[] {
    const rows: DirectoryQuotaRow[] = [];
    for (let directory = quota; directory !== 0; ) {
      const row = this.row(directory);
      // Inodes that do not count may name a quota that has ended.
      if (row === undefined) break;
      rows.push(row);
      directory = row.enclosing;
    }
    return rows;
  }

  /** Quotas of a volume's directories, in the order of their numbers. */
  ofVolume(volume: number, after: number, countMax: number): DirectoryQuotaRow[] {
    return this.#statements.all<DirectoryQuotaRow>(
      `SELECT ${COLUMNS} FROM directory_quotas WHERE volume = ? AND directory > ? ORDER BY directory LIMIT ?`,
      ...[volume, after, countMax],
    );
  }

  /** Counts a volume's directories that have used more than nine tenths of a limit. */
  nearlyUsed(volume: number): number {
    return this.#statements.counter(
      `SELECT COUNT(*) FROM directory_quotas WHERE volume = ?
         AND (quota_bytes > 0 AND named_bytes * 10 > quota_bytes * 9
           OR quota_inodes > 0 AND named_inodes * 10 > quota_inodes * 9)`,
      volume,
    );
  }

  /** How many quotas are nested from the directory's down, with its own. */
  height(directory: number): number {
    return this.#statements.counter(
      `WITH RECURSIVE nested (directory, depth) AS (
         VALUES (?, 1) UNION ALL SELECT q.directory, n.depth + 1
         FROM nested n JOIN directory_quotas q ON q.enclosing = n.directory AND q.enclosing > 0)
       SELECT MAX(depth) FROM nested`,
      directory,
    );
  }

  insert({
    directory,
    volume,
    enclosing,
    quotaBytes,
    quotaInodes,
    namedInodes,
    namedBytes,
  }: DirectoryQuotaRow): void {
    this.#statements.run(
      `INSERT INTO directory_quotas
         (directory, volume, enclosing, quota_bytes, quota_inodes, named_inodes, named_bytes) VALUES (?, ?, ?, ?, ?, ?, ?)`,
      ...[directory, volume, enclosing, quotaBytes, quotaInodes, namedInodes, namedBytes],
    );
  }

  setLimits(directory: number, { quotaBytes, quotaInodes }: Pick<Quota, 'quotaBytes' | 'quotaInodes'>): void {
    this.#statements.run(
      'UPDATE directory_quotas SET quota_bytes = ?, quota_inodes = ? WHERE directory = ?',
      ...[quotaBytes, quotaInodes, directory],
    );
  }

  /** The caller charges the quotas that it was in, and those that it is in now. */
  setEnclosing(directory: number, enclosing: number): void {
    this.#statements.run(
      'UPDATE directory_quotas SET enclosing = ? WHERE directory = ?',
      enclosing,
      directory,
    );
  }

  /** The directory is in another volume, with its quota if it has one. */
  setVolume(directory: number, volume: number): void {
    this.#statements.run('UPDATE directory_quotas SET volume = ? WHERE directory = ?', volume, directory);
  }

  delete(directory: number): void {
    this.#statements.run('DELETE FROM directory_quotas WHERE directory = ?', directory);
  }

  /** Quotas of removed directories may be outside the runs of the volume's numbers; nothing counts against them now. */
  forgetVolume(volume: number): void {
    this.#statements.run('DELETE FROM directory_quotas WHERE volume = ?', volume);
  }

  /** Quotas that are directly in that of the directory. */
  enclosedBy(directory: number, countMax: number): DirectoryQuotaRow[] {
    return this.#statements.all<DirectoryQuotaRow>(
      `SELECT ${COLUMNS} FROM directory_quotas WHERE enclosing = ? AND enclosing > 0 ORDER BY directory LIMIT ?`,
      ...[directory, countMax],
    );
  }

  /** Adds to the counts of a directory's quota alone: those that it is in count it already, or still. */
  add(directory: number, inodes: number, bytes: number): void {
    this.#statements.run(
      'UPDATE directory_quotas SET named_inodes = named_inodes + ?, named_bytes = named_bytes + ? WHERE directory = ?',
      ...[inodes, bytes, directory],
    );
  }

  /** Adds to the counts of a directory's quota and of those that it is in; ends those that nothing counts against. */
  charge(quota: number, inodes: number, bytes: number): void {
    if (quota === 0 || (inodes === 0 && bytes === 0)) return;
    for (const { directory, namedInodes } of this.chain(quota)) {
      if (namedInodes + inodes === 0) this.delete(directory);
      else
        this.#statements.run(
          'UPDATE directory_quotas SET named_inodes = named_inodes + ?, named_bytes = named_bytes + ? WHERE directory = ?',
          ...[inodes, bytes, directory],
        );
    }
  }
}
