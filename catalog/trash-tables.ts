import type { Statements } from './statements.ts';

export interface TrashRow {
  readonly inode: number;
  /** Last path, from the volume's root. */
  readonly path: string;
  readonly removedNs: string;
  /** Empty if unknown. */
  readonly removedBy: string;
}

const COLUMNS = 'inode, path, CAST(removed_ns AS TEXT) AS removedNs, removed_by AS removedBy';

export class TrashTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(inode: number): TrashRow | undefined {
    return this.#statements.get<TrashRow>(`SELECT ${COLUMNS} FROM trash WHERE inode = ?`, inode);
  }

  /** Files at or below `path` (`/`: all), by path and number. @param after resume point; null: start */
  below(
    volume: number,
    path: string,
    after: { readonly path: string; readonly inode: number } | null,
    countMax: number,
  ): TrashRow[] {
    // "0" follows "/": paths below "a" lie between "a/" and "a0", siblings such as "a.txt" do not.
    const [from, to] = path === '/' ? ['/', '0'] : [`${path}/`, `${path}0`];
    return this.#statements.all<TrashRow>(
      `SELECT ${COLUMNS} FROM trash
       WHERE volume = ? AND (path = ? OR (path >= ? AND path < ?)) AND (path, inode) > (?, ?)
       ORDER BY path, inode LIMIT ?`,
      volume,
      path,
      from,
      to,
      after?.path ?? '',
      after?.inode ?? 0,
      countMax,
    );
  }

  put(volume: number, { inode, path, removedNs, removedBy }: TrashRow): void {
    this.#statements.run(
      'INSERT INTO trash (inode, volume, path, removed_ns, removed_by) VALUES (?, ?, ?, ?, ?)',
      inode,
      volume,
      path,
      removedNs,
      removedBy,
    );
  }

  delete(inode: number): void {
    this.#statements.run('DELETE FROM trash WHERE inode = ?', inode);
  }
}
