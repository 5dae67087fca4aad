import { INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import type { Statements } from './statements.ts';
import { UNCHANGING } from './volume-move-tables.ts';

/** Not of a volume that moves to another catalog, or has moved: there it is decided what becomes of the inode. */
const DOES_CHANGE = `i.volume NOT IN (${UNCHANGING})`;

export class InodeLists {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Linked live files of a volume that changes: while it does not, none can be settled. */
  live(volume: number, countMax: number): number[] {
    return this.#statements
      .all<{ id: number }>(
        `SELECT i.id FROM inodes i
         WHERE i.live = 1 AND i.orphaned_ns IS NULL AND i.volume = ? AND ${DOES_CHANGE} ORDER BY i.id LIMIT ?`,
        volume,
        countMax,
      )
      .map(({ id }) => id);
  }

  /** Linked live files of all volumes. Without the hint SQLite scans all inodes; the index has only live files. */
  allLive(after: number, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i INDEXED BY live_files
       WHERE i.live = 1 AND i.orphaned_ns IS NULL AND i.id > ? ORDER BY i.id LIMIT ?`,
      after,
      countMax,
    );
  }

  /** Files that may grow, so they count more than their size; found by a partial index. */
  reserving(after: number, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.live = 1 AND i.allowed > i.size AND i.id > ? ORDER BY i.id LIMIT ?`,
      after,
      countMax,
    );
  }

  /** Of volumes that change. */
  preserving(): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.preserving > 0 AND ${DOES_CHANGE} ORDER BY i.id`,
    );
  }

  /** Orphans of volumes that change, from before `beforeNs`, the oldest first. */
  orphansBefore(beforeNs: string, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.orphaned_ns < CAST(? AS INTEGER) AND ${DOES_CHANGE}
       ORDER BY i.orphaned_ns, i.id LIMIT ?`,
      beforeNs,
      countMax,
    );
  }

  hasOrphans(): boolean {
    return this.#statements.get('SELECT 1 FROM inodes WHERE orphaned_ns IS NOT NULL LIMIT 1') !== undefined;
  }

  orphansOfVolume(volume: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.volume = ? ORDER BY i.orphaned_ns, i.id`,
      volume,
    );
  }
}
