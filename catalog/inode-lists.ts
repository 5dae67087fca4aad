import { INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import type { Statements } from './statements.ts';

export class InodeLists {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Linked live files of a volume. */
  live(volume: number, countMax: number): number[] {
    return this.#statements
      .all<{ id: number }>(
        'SELECT id FROM inodes WHERE live = 1 AND orphaned_ns IS NULL AND volume = ? ORDER BY id LIMIT ?',
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

  preserving(): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.preserving > 0 ORDER BY i.id`,
    );
  }

  /** Orphans from before `beforeNs`, the oldest first. */
  orphansBefore(beforeNs: string, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.orphaned_ns < CAST(? AS INTEGER)
       ORDER BY i.orphaned_ns, i.id LIMIT ?`,
      beforeNs,
      countMax,
    );
  }

  orphansOfVolume(volume: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.volume = ? ORDER BY i.orphaned_ns, i.id`,
      volume,
    );
  }
}
