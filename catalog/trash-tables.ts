import type { Statements } from './statements.ts';

/** What is known of a file in the trash beside its inode. */
export interface TrashRow {
  readonly inode: number;
  /** Of its last name, from the volume's root. */
  readonly path: string;
  readonly removedNs: string;
  /** Empty where that is not known. */
  readonly removedBy: string;
}

const COLUMNS = 'inode, path, CAST(removed_ns AS TEXT) AS removedNs, removed_by AS removedBy';

/** Files that lost their last name and are kept for a while. Straight access, no rules. */
export class TrashTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(inode: number): TrashRow | undefined {
    return this.#statements.get<TrashRow>(`SELECT ${COLUMNS} FROM trash WHERE inode = ?`, inode);
  }

  /**
   * Files whose path is `path` or lies below it, in the order of their paths, and of their numbers where they had the same.
   *
   * @param path `/` for all
   * @param after where to go on; null from the beginning
   */
  below(
    volume: number,
    path: string,
    after: { readonly path: string; readonly inode: number } | null,
    countMax: number,
  ): TrashRow[] {
    // "0" is what follows "/": names below a path are between the two, and siblings such as "a.txt" of "a" are not.
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
