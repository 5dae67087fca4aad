import type { ChangeRecord } from './change-record.ts';
import type { SnapshotTables } from './snapshot-tables.ts';
import type { Statements } from './statements.ts';

interface SharedTables {
  readonly snapshots: SnapshotTables;
  readonly changes: ChangeRecord;
}

export class XattrTables {
  readonly #statements: Statements;
  readonly #snapshots: SnapshotTables;
  readonly #changes: ChangeRecord;

  constructor(statements: Statements, { snapshots, changes }: SharedTables) {
    this.#statements = statements;
    this.#snapshots = snapshots;
    this.#changes = changes;
  }

  value(inode: number, name: string): Uint8Array | undefined {
    return this.#statements.get<{ value: Uint8Array }>(
      'SELECT value FROM xattrs WHERE inode = ? AND name = ?',
      inode,
      name,
    )?.value;
  }

  names(inode: number): string[] {
    return this.#statements
      .all<{ name: string }>('SELECT name FROM xattrs WHERE inode = ? ORDER BY name', inode)
      .map((row) => row.name);
  }

  count(inode: number): number {
    return (
      this.#statements.get<{ count: number }>('SELECT COUNT(*) AS count FROM xattrs WHERE inode = ?', inode)
        ?.count ?? 0
    );
  }

  put(inode: number, name: string, value: Uint8Array): void {
    this.#changes.touch(inode);
    this.#snapshots.keepXattrs(inode, name);
    const since = this.#snapshots.nextSerialOfInode(inode);
    this.#statements.run(
      'INSERT OR REPLACE INTO xattrs (inode, name, value, since) VALUES (?, ?, ?, ?)',
      inode,
      name,
      value,
      since,
    );
  }

  /** Inserts an attribute that the inode of a clone has had from the beginning. */
  insertCopy(inode: number, name: string, value: Uint8Array): void {
    this.#statements.run(
      'INSERT INTO xattrs (inode, name, value, since) VALUES (?, ?, ?, 1)',
      inode,
      name,
      value,
    );
  }

  delete(inode: number, name: string): void {
    this.#changes.touch(inode);
    this.#snapshots.keepXattrs(inode, name);
    this.#statements.run('DELETE FROM xattrs WHERE inode = ? AND name = ?', inode, name);
  }

  /** Replaces the extended attributes of `to` by those of `from`. */
  copy(from: number, to: number): void {
    this.#changes.touch(to);
    this.#snapshots.keepXattrs(to);
    this.#statements.run('DELETE FROM xattrs WHERE inode = ?', to);
    const since = this.#snapshots.nextSerialOfInode(to);
    this.#statements.run(
      'INSERT INTO xattrs SELECT ?, name, value, ? FROM xattrs WHERE inode = ?',
      to,
      since,
      from,
    );
  }
}
