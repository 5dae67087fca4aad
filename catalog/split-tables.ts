import type { Statements } from './statements.ts';

/** A file of several names, and how many of them were visited. */
export interface SharedFile {
  readonly inode: number;
  readonly names: number;
}

/** What is left to visit of directories that become volumes, and what was found there. Plain access, no rules. */
export class SplitTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  addDirectory(catalog: number, inode: number): void {
    this.#statements.run('INSERT INTO split_inodes VALUES (?, ?, 0)', catalog, inode);
  }

  /** The directory whose entries are visited now; undefined if none is left. */
  directory(catalog: number): number | undefined {
    return this.#statements.get<{ inode: number }>(
      'SELECT inode FROM split_inodes WHERE catalog = ? AND names = 0 ORDER BY inode LIMIT 1',
      catalog,
    )?.inode;
  }

  delete(catalog: number, inode: number): void {
    this.#statements.run('DELETE FROM split_inodes WHERE catalog = ? AND inode = ?', catalog, inode);
  }

  addName(catalog: number, file: number): void {
    this.#statements.run(
      'INSERT INTO split_inodes VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET names = names + 1',
      ...[catalog, file],
    );
  }

  sharedFiles(catalog: number, after: number, countMax: number): SharedFile[] {
    return this.#statements.all<SharedFile>(
      'SELECT inode, names FROM split_inodes WHERE catalog = ? AND names > 0 AND inode > ? ORDER BY inode LIMIT ?',
      ...[catalog, after, countMax],
    );
  }

  deleteAll(catalog: number): void {
    this.#statements.run('DELETE FROM split_inodes WHERE catalog = ?', catalog);
  }
}
