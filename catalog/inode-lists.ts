import { INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import type { Statements } from './statements.ts';

/** Inodes by what is to be done with them. */
export class InodeLists {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Files of a volume that have a name and may be being written. */
  live(volume: number, countMax: number): number[] {
    return this.#statements
      .all<{ id: number }>(
        'SELECT id FROM inodes WHERE live = 1 AND orphaned_ns IS NULL AND volume = ? ORDER BY id LIMIT ?',
        volume,
        countMax,
      )
      .map(({ id }) => id);
  }

  /**
   * Files of all volumes that have a name and may be being written. Without the hint SQLite reads all inodes in the order of their
   * numbers; the index has live files alone.
   */
  allLive(after: number, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i INDEXED BY live_files
       WHERE i.live = 1 AND i.orphaned_ns IS NULL AND i.id > ? ORDER BY i.id LIMIT ?`,
      after,
      countMax,
    );
  }

  /** Files that count for more than their size: they may still grow. The index of the same condition finds them. */
  reserving(after: number, countMax: number): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.live = 1 AND i.allowed > i.size AND i.id > ? ORDER BY i.id LIMIT ?`,
      after,
      countMax,
    );
  }

  /** Files whose contents are about to be preserved. */
  preserving(): InodeRow[] {
    return this.#statements.all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.preserving > 0 ORDER BY i.id`,
    );
  }

  /** Files without a name since before `beforeNs`, the longest nameless first. */
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
