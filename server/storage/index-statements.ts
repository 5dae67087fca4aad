import type Database from 'better-sqlite3';
import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import {
  type FileRow,
  type ObjectLengths,
  type ObjectRow,
  type PendingRemoval,
  stateValues,
  type UndoSlot,
} from './index-rows.ts';

const OBJECT_SELECT = `idx AS "index", version_epoch AS versionEpoch, version_seq AS versionSeq, length, crc32, slot`;
const STATE_SELECT = `view, seq, sessions, size_bytes AS sizeBytes, modified_s AS modifiedS, modified_ns AS modifiedNs,
  version_epoch AS versionEpoch, version_seq AS versionSeq, size_epoch AS sizeEpoch, size_seq AS sizeSeq, dead, seal`;

export type IndexStatements = ReturnType<typeof prepareStatements>;

export function prepareStatements(database: Database.Database) {
  const prepare = <Parameters extends unknown[], Result = unknown>(sql: string) =>
    database.prepare<Parameters, Result>(sql);
  type StateRow = Omit<FileRow, 'promised' | 'installed' | 'objectBytes' | 'lender' | 'installedStart'>;
  return {
    begin: prepare<[]>('BEGIN IMMEDIATE'),
    commit: prepare<[]>('COMMIT'),
    rollback: prepare<[]>('ROLLBACK'),
    fileGet: prepare<[number], FileRow>(
      `SELECT promised, installed, installed_start AS installedStart, object_bytes AS objectBytes,
        lender, ${STATE_SELECT} FROM files WHERE file = ?`,
    ),
    fileList: prepare<[number, number], number>(
      'SELECT file FROM files WHERE file > ? ORDER BY file LIMIT ?',
    ).pluck(),
    filePut: prepare<unknown[]>(
      `INSERT OR REPLACE INTO files (file, promised, installed, installed_start, object_bytes,
        view, seq, sessions, size_bytes, modified_s, modified_ns, version_epoch, version_seq, size_epoch, size_seq, dead,
        seal, lender) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    fileDelete: prepare<[number]>('DELETE FROM files WHERE file = ?'),
    objectsUpTo: prepare<[number, number, number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND idx BETWEEN ? AND ? ORDER BY idx LIMIT ?`,
    ),
    objectLast: prepare<[number, number], number | null>(
      'SELECT max(idx) FROM objects WHERE file = ? AND idx <= ?',
    ).pluck(),
    lengthsUpTo: prepare<[number, number, number, number], ObjectLengths>(
      `SELECT count(*) AS count, coalesce(sum(length), 0) AS bytes, coalesce(max(idx), -1) AS last
        FROM (SELECT idx, length FROM objects WHERE file = ? AND idx BETWEEN ? AND ? ORDER BY idx LIMIT ?)`,
    ),
    objectNewest: prepare<[number, number, number, number], number | null>(
      'SELECT max(version_seq) FROM objects WHERE file = ? AND idx BETWEEN ? AND ? AND version_epoch = ?',
    ).pluck(),
    objectsSince: prepare<[number, number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND version_epoch = ? AND version_seq > ?`,
    ),
    objectPut: prepare<[number, number, number, number, number, number, number]>(
      `INSERT OR REPLACE INTO objects (file, idx, version_epoch, version_seq, length, crc32, slot)
        VALUES (?, ?, ?, ?, ?, ?, ?)`,
    ),
    borrowers: prepare<[number], number>(
      'SELECT file FROM files WHERE lender = ? AND lender > 0 ORDER BY file',
    ).pluck(),
    objectsLend: prepare<[number, number, number, number]>(
      `INSERT INTO objects (file, idx, version_epoch, version_seq, length, crc32, slot)
        SELECT ?, idx, version_epoch, version_seq, length, crc32, -1 - slot FROM objects
        WHERE file = ? AND idx BETWEEN ? AND ?`,
    ),
    objectDelete: prepare<[number, number]>('DELETE FROM objects WHERE file = ? AND idx = ?'),
    objectsDelete: prepare<[number, number, number]>(
      'DELETE FROM objects WHERE file = ? AND idx BETWEEN ? AND ?',
    ),
    /** The next objects, at most as many. */
    objectsDeleteNext: prepare<[number, number, number]>(
      `DELETE FROM objects WHERE file = ? AND idx <=
        (SELECT max(idx) FROM (SELECT idx FROM objects WHERE file = ? ORDER BY idx LIMIT ?))`,
    ),
    objectsDeleteSince: prepare<[number, number, number]>(
      'DELETE FROM objects WHERE file = ? AND version_epoch = ? AND version_seq > ?',
    ),
    generationPut: prepare<unknown[]>(
      `INSERT INTO undo_files (file, generation, view, seq, sessions, size_bytes, modified_s, modified_ns,
        version_epoch, version_seq, size_epoch, size_seq, dead, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    generationList: prepare<[number], StateRow & { readonly generation: number }>(
      `SELECT generation, ${STATE_SELECT} FROM undo_files WHERE file = ? ORDER BY generation DESC`,
    ),
    generationNewest: prepare<[number], number | null>(
      'SELECT max(generation) FROM undo_files WHERE file = ?',
    ).pluck(),
    undoNewest: prepare<[number], number | null>(
      'SELECT max(generation) FROM undo_objects WHERE file = ?',
    ).pluck(),
    filesByView: prepare<[number], number>(
      "SELECT file FROM files WHERE json_extract(view, '$.number') > ? ORDER BY file",
    ).pluck(),
    generationFiles: prepare<[], number>('SELECT DISTINCT file FROM undo_files ORDER BY file').pluck(),
    generationDrop: prepare<[number, number]>('DELETE FROM undo_files WHERE file = ? AND generation < ?'),
    generationDelete: prepare<[number, number]>('DELETE FROM undo_files WHERE file = ? AND generation = ?'),
    undoPut: prepare<[number, number, number, number, number, number, number, number]>(
      `INSERT INTO undo_objects (file, generation, idx, version_epoch, version_seq, length, crc32, slot)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    undoPutRange: prepare<[number, number, number, number, number, number]>(
      `INSERT INTO undo_objects (file, generation, idx, version_epoch, version_seq, length, crc32, slot)
        SELECT file, ?, idx, version_epoch, version_seq, length, crc32, slot FROM objects
        WHERE file = ? AND idx BETWEEN ? AND ? AND NOT (version_epoch = ? AND version_seq > ?)`,
    ),
    undoAfter: prepare<[number, number, number, number], UndoSlot>(
      `SELECT generation, idx AS "index", slot FROM undo_objects
        WHERE file = ? AND (generation, idx) > (?, ?) ORDER BY generation, idx LIMIT ?`,
    ),
    /** The object after so many. */
    undoSkip: prepare<[number, number, number], { generation: number; index: number }>(
      `SELECT generation, idx AS "index" FROM undo_objects WHERE file = ? AND generation < ?
        ORDER BY generation, idx LIMIT 1 OFFSET ?`,
    ),
    undoDrop: prepare<[number, number]>('DELETE FROM undo_objects WHERE file = ? AND generation < ?'),
    undoDropBefore: prepare<[number, number, number]>(
      'DELETE FROM undo_objects WHERE file = ? AND generation = ? AND idx < ?',
    ),
    removalList: prepare<[], PendingRemoval & { readonly file: number }>(
      'SELECT file, first, last, generation, epoch, seq FROM removals ORDER BY file',
    ),
    removalGet: prepare<[number], PendingRemoval>(
      'SELECT first, last, generation, epoch, seq FROM removals WHERE file = ?',
    ),
    removalPut: prepare<[number, number, number, number, number, number]>(
      'INSERT OR REPLACE INTO removals (file, first, last, generation, epoch, seq) VALUES (?, ?, ?, ?, ?, ?)',
    ),
    removalDelete: prepare<[number]>('DELETE FROM removals WHERE file = ?'),
    removalRestore: prepare<[number, number]>('DELETE FROM removals WHERE file = ? AND generation >= ?'),
    /** Objects of a removal that no state is older than. */
    removalComplete: prepare<[number, number, number]>(
      `DELETE FROM objects WHERE file = ?
        AND idx >= (SELECT first FROM removals WHERE file = ? AND generation < 0)
        AND idx <= (SELECT last FROM removals WHERE file = ? AND generation < 0)`,
    ),
    removalCompleted: prepare<[number]>('DELETE FROM removals WHERE file = ? AND generation < 0'),
    removalForget: prepare<[number, number]>(
      'UPDATE removals SET generation = -1 WHERE file = ? AND generation < ?',
    ),
    undoRestore: prepare<[number, number]>(
      `INSERT OR REPLACE INTO objects (file, idx, version_epoch, version_seq, length, crc32, slot)
        SELECT file, idx, version_epoch, version_seq, length, crc32, slot FROM undo_objects
        WHERE file = ? AND generation = ?`,
    ),
    undoDelete: prepare<[number, number]>('DELETE FROM undo_objects WHERE file = ? AND generation = ?'),
    removedPut: prepare<[number]>('INSERT OR IGNORE INTO removed (file) VALUES (?)'),
    removedDelete: prepare<[number]>('DELETE FROM removed WHERE file = ?'),
    removedList: prepare<[], number>('SELECT file FROM removed').pluck(),
  };
}

export function putFileRow(statements: IndexStatements, file: FileId, state: FileState): void {
  const { record, attributes } = state;
  statements.filePut.run(
    file,
    JSON.stringify(record.promised),
    JSON.stringify(record.installed),
    state.installedStart,
    attributes.objectBytes,
    ...stateValues(state),
    state.lender,
  );
}
