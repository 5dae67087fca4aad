import type { ChangeRecord } from './change-record.ts';
import type { CloneTables } from './clone-tables.ts';
import { type EntryRow, INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import type { QuotaWalkTables } from './quota-walk-tables.ts';
import type { SnapshotTables } from './snapshot-tables.ts';
import type { Statements } from './statements.ts';

// Constant texts: statements are cached by text, and a newly built text must be hashed and compared again.
const CHILD = `SELECT ${INODE_COLUMNS} FROM inodes i
  WHERE i.id = (SELECT e.inode FROM entries e WHERE e.parent = ? AND e.name = ?)`;
const CHILDREN = `SELECT e.name AS entryName, ${INODE_COLUMNS}
  FROM entries e JOIN inodes i ON i.id = e.inode
  WHERE e.parent = ? AND e.name > ? ORDER BY e.name LIMIT ?`;

export interface NameRow {
  readonly inode: number;
  readonly parent: number;
  readonly name: string;
}

interface SharedTables {
  readonly clones: CloneTables;
  readonly snapshots: SnapshotTables;
  readonly walks: QuotaWalkTables;
  readonly changes: ChangeRecord;
}

/** Entries of directories. What needs to know all of them throws `UnfilledDirectory` if they are a snapshot's still. */
export class EntryTables {
  readonly #statements: Statements;
  readonly #clones: CloneTables;
  readonly #snapshots: SnapshotTables;
  readonly #walks: QuotaWalkTables;
  readonly #changes: ChangeRecord;

  constructor(statements: Statements, { clones, snapshots, walks, changes }: SharedTables) {
    this.#statements = statements;
    this.#clones = clones;
    this.#snapshots = snapshots;
    this.#walks = walks;
    this.#changes = changes;
  }

  child(parent: number, name: string): InodeRow | undefined {
    this.#clones.assertFilled(parent);
    return this.#statements.get<InodeRow>(CHILD, parent, name);
  }

  has(parent: number, name: string): boolean {
    this.#clones.assertFilled(parent);
    return (
      this.#statements.get('SELECT 1 FROM entries WHERE parent = ? AND name = ?', parent, name) !== undefined
    );
  }

  children(parent: number, after: string, countMax: number): EntryRow[] {
    this.#clones.assertFilled(parent);
    return this.#statements.all<EntryRow>(CHILDREN, parent, after, countMax);
  }

  /** One entry of each linked inode; reads all entries once. */
  firstNames(inodes: readonly number[]): NameRow[] {
    return this.#statements.all<NameRow>(
      `SELECT inode, parent, min(name) AS name FROM entries
       WHERE inode IN (SELECT value FROM json_each(?)) GROUP BY inode ORDER BY inode`,
      JSON.stringify(inodes),
    );
  }

  nameIn(parent: number, inode: number): string | undefined {
    const row = this.#statements.get<{ name: string }>(
      'SELECT name FROM entries WHERE parent = ? AND inode = ?',
      parent,
      inode,
    );
    return row?.name;
  }

  /** Names of inodes with one name, all in a directory: reads its entries once, as `nameIn` for one of them. */
  namesIn(parent: number, inodes: readonly number[]): Map<number, string> {
    const rows = this.#statements.all<{ inode: number; name: string }>(
      'SELECT inode, name FROM entries WHERE parent = ? AND inode IN (SELECT value FROM json_each(?))',
      ...[parent, JSON.stringify(inodes)],
    );
    return new Map(rows.map(({ inode, name }) => [inode, name]));
  }

  /** Also of a directory that is not filled: it has entries. */
  hasChildren(parent: number): boolean {
    if (this.#clones.isUnfilled(parent)) return true;
    return this.#statements.get('SELECT 1 FROM entries WHERE parent = ? LIMIT 1', parent) !== undefined;
  }

  insert(parent: number, name: string, inode: number): void {
    this.#clones.assertFilled(parent);
    this.#changes.touch(parent);
    this.#changes.add({ kind: 'created', parent, name, inode });
    this.#walks.nameChanged(parent, name, inode, 1);
    const since = this.#snapshots.nextSerialOfInode(parent);
    this.#statements.run(
      'INSERT INTO entries (parent, name, inode, since) VALUES (?, ?, ?, ?)',
      parent,
      name,
      inode,
      since,
    );
  }

  /** Inserts an entry that the directory of a clone has had from the beginning. */
  insertCopy(parent: number, name: string, inode: number): void {
    this.#statements.run(
      'INSERT INTO entries (parent, name, inode, since) VALUES (?, ?, ?, 1)',
      parent,
      name,
      inode,
    );
  }

  setInode(parent: number, name: string, inode: number): void {
    this.#changes.touch(parent);
    this.#changes.add({ kind: 'replaced', parent, name, inode });
    this.#snapshots.keepEntry(parent, name);
    if (!this.#walks.isEmpty) {
      const replaced = this.#statements.get<{ inode: number }>(
        'SELECT inode FROM entries WHERE parent = ? AND name = ?',
        ...[parent, name],
      );
      if (replaced !== undefined) this.#walks.nameChanged(parent, name, replaced.inode, -1);
      this.#walks.nameChanged(parent, name, inode, 1);
    }
    this.#statements.run('UPDATE entries SET inode = ? WHERE parent = ? AND name = ?', inode, parent, name);
  }

  delete(parent: number, name: string, inode: number): void {
    this.#changes.touch(parent);
    this.#changes.add({ kind: 'removed', parent, name, inode });
    this.#walks.nameChanged(parent, name, inode, -1);
    this.#snapshots.keepEntry(parent, name);
    this.#statements.run('DELETE FROM entries WHERE parent = ? AND name = ?', parent, name);
  }
}
