import fs from 'node:fs';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { SEALS, type Seal } from '../../wire/file-operation.ts';
import type { FileState } from './contents.ts';
import { errorCode, isCorruption, storageError } from './failures.ts';
import type { FileOps } from './file-ops.ts';
import { damagedFolder, FolderError } from './folder-error.ts';
import type { ObjectEntry } from './object-entry.ts';
import { SharedFlush } from './shared-flush.ts';

const APPLICATION_ID = 0x4c48_6f6c; // "LHol"
/** 2: a generation has its view. 3: a file may be sealed. 4: a file may borrow objects of another. */
export const INDEX_FORMAT = 4;

/** The log is copied back into the database beyond this size. */
const LOG_BYTES_MAX = 16 * 1024 * 1024;
/** Commits between two looks at the size of the log. */
const LOG_LOOK_COMMITS = 32;

/**
 * Databases into which the log was copied without a sync yet. If the process exits then, SQLite closes
 * the database on its way out and deletes the log, the only copy that is synced: so they are synced first.
 */
const copiedUnsynced = new Set<number>();
process.once('exit', () => {
  for (const fd of copiedUnsynced) fs.fdatasyncSync(fd);
});

/**
 * An object of the index: what the face tells of it, and the slot of the container that holds it. Below zero: the slot `-1 - slot` of the container
 * of the file that lends it.
 */
export interface ObjectRow extends ObjectEntry {
  readonly slot: number;
}

/** A state of a file to which a loss of power may throw it back; see FORMAT.md, "Loss of power". */
export interface Generation {
  readonly number: number;
  readonly state: FileState;
}

interface FileRow {
  readonly view: string;
  readonly promised: string;
  readonly installed: string;
  readonly seq: number;
  readonly sessions: Buffer;
  readonly objectBytes: number;
  readonly sizeBytes: number;
  readonly modifiedS: number;
  readonly modifiedNs: number;
  readonly versionEpoch: number;
  readonly versionSeq: number;
  readonly sizeEpoch: number;
  readonly sizeSeq: number;
  readonly dead: number;
  readonly seal: number;
  readonly lender: number;
  readonly installedStart: number;
}

interface Work {
  readonly run: () => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const STATE_COLUMNS = `
  view TEXT NOT NULL,
  seq INTEGER NOT NULL,
  sessions BLOB NOT NULL,
  size_bytes INTEGER NOT NULL,
  modified_s INTEGER NOT NULL,
  modified_ns INTEGER NOT NULL,
  version_epoch INTEGER NOT NULL,
  version_seq INTEGER NOT NULL,
  size_epoch INTEGER NOT NULL,
  size_seq INTEGER NOT NULL,
  dead INTEGER NOT NULL,
  seal INTEGER NOT NULL DEFAULT 0`;

const OBJECT_COLUMNS = `
  idx INTEGER NOT NULL,
  version_epoch INTEGER NOT NULL,
  version_seq INTEGER NOT NULL,
  length INTEGER NOT NULL,
  crc32 INTEGER NOT NULL,
  slot INTEGER NOT NULL`;

const SCHEMA = `
CREATE TABLE files (
  file INTEGER PRIMARY KEY,
  promised TEXT NOT NULL,
  installed TEXT NOT NULL,
  installed_start INTEGER NOT NULL,
  object_bytes INTEGER NOT NULL, ${STATE_COLUMNS},
  lender INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX borrowers ON files (lender) WHERE lender > 0;
CREATE TABLE objects (file INTEGER NOT NULL, ${OBJECT_COLUMNS}, PRIMARY KEY (file, idx)) STRICT, WITHOUT ROWID;
CREATE TABLE undo_files (
  file INTEGER NOT NULL, generation INTEGER NOT NULL, ${STATE_COLUMNS},
  PRIMARY KEY (file, generation)
) STRICT, WITHOUT ROWID;
CREATE TABLE undo_objects (
  file INTEGER NOT NULL, generation INTEGER NOT NULL, ${OBJECT_COLUMNS},
  PRIMARY KEY (file, generation, idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE removed (file INTEGER PRIMARY KEY) STRICT;
PRAGMA application_id = ${APPLICATION_ID};
PRAGMA user_version = ${INDEX_FORMAT};`;

const OBJECT_SELECT = `idx AS "index", version_epoch AS versionEpoch, version_seq AS versionSeq, length, crc32, slot`;
const STATE_SELECT = `view, seq, sessions, size_bytes AS sizeBytes, modified_s AS modifiedS, modified_ns AS modifiedNs,
  version_epoch AS versionEpoch, version_seq AS versionSeq, size_epoch AS sizeEpoch, size_seq AS sizeSeq, dead, seal`;

/**
 * The index of a store: which replicas there are and which slot holds which object, in SQLite.
 *
 * Its calls block, so they are short, and changes of one turn of the event loop share one
 * transaction. A sync inside SQLite would block the event loop for as long as a disk takes; so the
 * syncs that `synchronous = FULL` would do are done here, in the thread pool and in the order
 * that SQLite's log needs; see FORMAT.md, "The index".
 */
export class IndexDatabase {
  readonly #world: World;
  readonly #database: Database.Database;
  readonly #ops: FileOps;
  readonly #onFailure: (error: unknown) => void;
  readonly #logFd: number;
  /** Closed only after SQLite's own: closing any descriptor of a file drops the process's locks on it. */
  readonly #databaseFd: number;
  readonly #logFlush: SharedFlush;
  readonly #statements: ReturnType<typeof prepareAll>;
  #works: Work[] = [];
  #scheduled = false;
  /** Commits wait while the log is copied back. */
  #held = false;
  #checkpointing: Promise<void> | null = null;
  #commitsUntilLook = LOG_LOOK_COMMITS;

  private constructor(
    world: World,
    database: Database.Database,
    ops: FileOps,
    logFd: number,
    databaseFd: number,
    onFailure: (error: unknown) => void,
  ) {
    this.#world = world;
    this.#database = database;
    this.#ops = ops;
    this.#logFd = logFd;
    this.#databaseFd = databaseFd;
    this.#onFailure = onFailure;
    this.#logFlush = new SharedFlush(() => ops.datasync(logFd));
    this.#statements = prepareAll(database);
  }

  /**
   * Opens the index, making it where there is none. Its names are synced when this resolves.
   * @param onFailure told of a failure after which the index is not to be trusted
   * @param thorough reads all of it, as after a loss of power
   * @throws FolderError `damaged`
   */
  static async open(
    world: World,
    folder: string,
    path: string,
    ops: FileOps,
    onFailure: (error: unknown) => void,
    thorough = false,
  ): Promise<IndexDatabase> {
    const database = new Database(path, { timeout: 0 });
    try {
      // Alone on the database, SQLite keeps the log's index in memory instead of a third file.
      database.pragma('locking_mode = EXCLUSIVE');
      database.pragma('journal_mode = WAL');
      database.pragma('synchronous = NORMAL');
      database.pragma('wal_autocheckpoint = 0');
      database.pragma('cache_size = -16384');
      prepareSchema(database, path);
      // The log exists from the first transaction on.
      database.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${INDEX_FORMAT}; COMMIT`);
      const logFd = await ops.open(`${path}-wal`, fs.constants.O_RDWR);
      const databaseFd = await ops.open(path, fs.constants.O_RDWR);
      await ops.flushDirectory(folder);
      const index = new IndexDatabase(world, database, ops, logFd, databaseFd, onFailure);
      await index.#checkpoint();
      const verdict = thorough ? database.pragma('quick_check(1)', { simple: true }) : 'ok';
      if (verdict !== 'ok') throw damagedFolder(path, String(verdict));
      return index;
    } catch (error) {
      database.close();
      throw isCorruption(error) ? damagedFolder(path, error) : error;
    }
  }

  /**
   * Runs `work`, which changes the index and nothing else, in the transaction that ends this turn of
   * the event loop. It survives the death of the process when the promise resolves.
   */
  commit(work: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#works.push({ run: work, resolve, reject });
      this.#schedule();
    });
  }

  /** Everything committed before the call survives loss of power when it resolves. */
  flush(): Promise<void> {
    return this.#logFlush.request();
  }

  /**
   * Ends the process's use of the index; everything in it is synced.
   * @param copiedBack called where its log, which goes, is not needed any more
   */
  async close(healthy: boolean, copiedBack: () => void): Promise<void> {
    if (this.#checkpointing !== null) await this.#checkpointing;
    assert(this.#works.length === 0, 'The index is closed after its last commit');
    try {
      // So that closing, which copies the log back and deletes it, has nothing left to block for.
      if (healthy) {
        await this.#checkpoint();
        copiedBack();
      }
    } finally {
      copiedUnsynced.delete(this.#databaseFd);
      this.#database.close();
      await this.#ops.close(this.#logFd);
      await this.#ops.close(this.#databaseFd);
    }
  }

  /** Where nobody can wait any more, because the process ends. */
  copyBack(): void {
    fs.fdatasyncSync(this.#logFd);
    this.#database.pragma('wal_checkpoint(PASSIVE)');
    fs.fdatasyncSync(this.#databaseFd);
  }

  closeNow(): void {
    copiedUnsynced.delete(this.#databaseFd);
    this.#database.close();
  }

  // --- reading -----------------------------------------------------------------------------------------

  file(file: FileId): FileState | null {
    const row = this.#read(() => this.#statements.fileGet.get(file));
    return row === undefined ? null : stateOf(row);
  }

  list(after: number, countMax: number): FileId[] {
    return this.#read(() => this.#statements.fileList.all(after, countMax) as FileId[]);
  }

  object(file: FileId, index: number): ObjectRow | null {
    return this.#read(() => this.#statements.objectGet.get(file, index) ?? null);
  }

  /** Objects `first` to `last`, in order. */
  objects(file: FileId, first: number, last: number): ObjectRow[] {
    return this.#read(() => this.#statements.objectRange.all(file, first, last));
  }

  /** The first `countMax` of objects `first` to `last`, in order. */
  objectsUpTo(file: FileId, first: number, last: number, countMax: number): ObjectRow[] {
    return this.#read(() => this.#statements.objectsUpTo.all(file, first, last, countMax));
  }

  /** The next `countMax` objects after `after`: for walks that let others have a turn in between. */
  objectsAfter(file: FileId, after: number, countMax: number): ObjectRow[] {
    return this.#read(() => this.#statements.objectsAfter.all(file, after, countMax));
  }

  /** Highest sequence number among objects `first` to `last` that were written in the epoch; 0 if none was. */
  newestSeq(file: FileId, first: number, last: number, epochCounter: number): number {
    return this.#read(() => this.#statements.objectNewest.get(file, first, last, epochCounter) ?? 0);
  }

  /** Objects written by operations after `seq` of the epoch. */
  objectsSince(file: FileId, epochCounter: number, seq: number): ObjectRow[] {
    return this.#read(() => this.#statements.objectsSince.all(file, epochCounter, seq));
  }

  undoSlots(file: FileId): { readonly slot: number; readonly generation: number }[] {
    return this.#read(() => this.#statements.undoSlots.all(file));
  }

  newestGeneration(file: FileId): number | null {
    return this.#read(() => this.#statements.generationNewest.get(file) ?? null);
  }

  /** Generations of a file, the newest first. */
  generations(file: FileId): Generation[] {
    const current = this.#read(() => this.#statements.fileGet.get(file));
    if (current === undefined) return [];
    return this.#read(() => this.#statements.generationList.all(file)).map((row) => ({
      number: row.generation,
      state: stateOf({ ...current, ...row }),
    }));
  }

  filesWithViewAfter(number: number): FileId[] {
    return this.#read(() => this.#statements.filesByView.all(number) as FileId[]);
  }

  filesWithGenerations(): FileId[] {
    return this.#read(() => this.#statements.generationFiles.all() as FileId[]);
  }

  /** Files that have objects in the container of the file. */
  borrowers(lender: FileId): FileId[] {
    return this.#read(() => this.#statements.borrowers.all(lender) as FileId[]);
  }

  /** Slots of its lender's container that a file has objects in. Reads all of them at once. */
  borrowedSlots(file: FileId): number[] {
    return this.#read(() => this.#statements.borrowedSlots.all(file));
  }

  removedFiles(): FileId[] {
    return this.#read(() => this.#statements.removedList.all() as FileId[]);
  }

  /** What cannot be read may be anything: the index is not to be trusted any more. */
  #read<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      this.#onFailure(error);
      throw storageError('Cannot read the index', error);
    }
  }

  // --- changing, within `commit` only -------------------------------------------------------------------

  putFile(file: FileId, state: FileState): void {
    const { record, attributes } = state;
    this.#statements.filePut.run(
      file,
      JSON.stringify(record.promised),
      JSON.stringify(record.installed),
      state.installedStart,
      attributes.objectBytes,
      ...stateValues(state),
      state.lender,
    );
  }

  /** A file whose objects were lent to it before. */
  putBorrower(file: FileId, state: FileState): void {
    this.putFile(file, state);
    this.forgetRemoved(file);
  }

  /** A range of the objects of its lender as they are now. */
  lendObjects(file: FileId, lender: FileId, first: number, last: number): void {
    this.#statements.objectsLend.run(file, lender, first, last);
  }

  /**
   * Objects of a file that is not there yet.
   *
   * @param isBegun some are about to come: the next start removes them, unless the file comes, too
   */
  deleteLent(file: FileId, isBegun = false): void {
    this.deleteObjects(file, 0, Number.MAX_SAFE_INTEGER);
    if (isBegun) this.#statements.removedPut.run(file);
    else this.forgetRemoved(file);
  }

  deleteFile(file: FileId): void {
    this.#statements.fileDelete.run(file);
    this.#statements.objectsDelete.run(file, 0, Number.MAX_SAFE_INTEGER);
    this.dropGenerations(file, Number.MAX_SAFE_INTEGER);
    this.#statements.removedPut.run(file);
  }

  forgetRemoved(file: FileId): void {
    this.#statements.removedDelete.run(file);
  }

  putObject(file: FileId, row: ObjectRow): void {
    this.#statements.objectPut.run(
      file,
      row.index,
      row.versionEpoch,
      row.versionSeq,
      row.length,
      row.crc32,
      row.slot,
    );
  }

  deleteObject(file: FileId, index: number): void {
    this.#statements.objectDelete.run(file, index);
  }

  deleteObjects(file: FileId, first: number, last: number): void {
    this.#statements.objectsDelete.run(file, first, last);
  }

  putGeneration(file: FileId, generation: number, state: FileState): void {
    this.#statements.generationPut.run(file, generation, ...stateValues(state));
  }

  putUndo(file: FileId, generation: number, row: ObjectRow): void {
    this.#statements.undoPut.run(
      file,
      generation,
      row.index,
      row.versionEpoch,
      row.versionSeq,
      row.length,
      row.crc32,
      row.slot,
    );
  }

  /** As `putUndo`, for those of objects `first` to `last` that the generation's state has. */
  putUndoRange(
    file: FileId,
    generation: number,
    first: number,
    last: number,
    epochCounter: number,
    seq: number,
  ): void {
    this.#statements.undoPutRange.run(generation, file, first, last, epochCounter, seq);
  }

  /** Forgets generations below `generation`. */
  dropGenerations(file: FileId, generation: number): void {
    this.#statements.generationDrop.run(file, generation);
    this.#statements.undoDrop.run(file, generation);
  }

  /** Throws the file back to the newest generation, which is thereby used up. */
  rollBack(file: FileId, generation: Generation): void {
    const { record } = generation.state;
    this.#statements.objectsDeleteSince.run(file, record.installed.counter, record.seq);
    this.#statements.undoRestore.run(file, generation.number);
    this.putFile(file, generation.state);
    this.#statements.generationDelete.run(file, generation.number);
    this.#statements.undoDelete.run(file, generation.number);
  }

  // --- transactions ---------------------------------------------------------------------------------------

  #schedule(): void {
    if (this.#scheduled || this.#held) return;
    this.#scheduled = true;
    this.#world.soon(() => {
      this.#scheduled = false;
      if (!this.#held) this.#commitAll();
    });
  }

  #commitAll(): void {
    const works = this.#works;
    this.#works = [];
    try {
      this.#statements.begin.run();
      for (const work of works) work.run();
      this.#statements.commit.run();
    } catch (error) {
      if (this.#database.inTransaction) this.#statements.rollback.run();
      // A full disk leaves the index as it was. Anything else leaves us without knowing what it holds.
      if (errorCode(error) !== 'SQLITE_FULL') this.#onFailure(error);
      for (const work of works) work.reject(error);
      return;
    }
    for (const work of works) work.resolve();
    this.#commitsUntilLook--;
    if (this.#commitsUntilLook <= 0) {
      this.#commitsUntilLook = LOG_LOOK_COMMITS;
      if (this.#checkpointing === null && fs.fstatSync(this.#logFd).size > LOG_BYTES_MAX) {
        this.#checkpointing = this.#checkpoint()
          .catch((error) => {
            // With a full disk the log stays as it is, and grows until commits are refused as well.
            if (errorCode(error) !== 'SQLITE_FULL') this.#onFailure(error);
          })
          .finally(() => {
            this.#checkpointing = null;
          });
      }
    }
  }

  /**
   * Copies the log back into the database and empties it. In between commits wait: SQLite would begin
   * the log anew once all of it is copied, while neither the copies nor the new beginning are synced.
   */
  async #checkpoint(): Promise<void> {
    // Most of the log goes to the disk before anybody has to wait.
    await this.#logFlush.request();
    this.#held = true;
    try {
      await this.#logFlush.request();
      copiedUnsynced.add(this.#databaseFd);
      this.#database.pragma('synchronous = OFF');
      try {
        this.#database.pragma('wal_checkpoint(PASSIVE)');
      } finally {
        this.#database.pragma('synchronous = NORMAL');
      }
      await this.#ops.datasync(this.#databaseFd);
      copiedUnsynced.delete(this.#databaseFd);
      this.#database.pragma('wal_checkpoint(TRUNCATE)');
      await this.#logFlush.request();
    } finally {
      this.#held = false;
      if (this.#works.length > 0) this.#schedule();
    }
  }
}

function prepareSchema(database: Database.Database, path: string): void {
  const format = database.pragma('user_version', { simple: true });
  const application = database.pragma('application_id', { simple: true });
  if (format === 0 && application === 0) {
    database.exec(`BEGIN IMMEDIATE; ${SCHEMA} COMMIT`);
    return;
  }
  if (application === APPLICATION_ID && format === INDEX_FORMAT) return;
  if (application === APPLICATION_ID && (format === 1 || format === 2 || format === 3)) {
    // Views did not change in format 1, so a generation has its file's.
    const views = `
      ALTER TABLE undo_files ADD COLUMN view TEXT NOT NULL DEFAULT '';
      UPDATE undo_files SET view = (SELECT view FROM files WHERE files.file = undo_files.file);`;
    const seals = `
      ALTER TABLE files ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE undo_files ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;`;
    database.exec(`BEGIN IMMEDIATE; ${format === 1 ? views : ''} ${format === 3 ? '' : seals}
      ALTER TABLE files ADD COLUMN lender INTEGER NOT NULL DEFAULT 0;
      CREATE INDEX borrowers ON files (lender) WHERE lender > 0;
      PRAGMA user_version = ${INDEX_FORMAT}; COMMIT`);
    return;
  }
  throw new FolderError(
    'unknown-format',
    `Cannot open ${path}: it has format ${String(format)}, and this program knows ${INDEX_FORMAT}. ` +
      'Run the version that wrote it',
  );
}

function prepareAll(database: Database.Database) {
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
    objectGet: prepare<[number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND idx = ?`,
    ),
    objectRange: prepare<[number, number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND idx BETWEEN ? AND ? ORDER BY idx`,
    ),
    objectsUpTo: prepare<[number, number, number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND idx BETWEEN ? AND ? ORDER BY idx LIMIT ?`,
    ),
    objectsAfter: prepare<[number, number, number], ObjectRow>(
      `SELECT ${OBJECT_SELECT} FROM objects WHERE file = ? AND idx > ? ORDER BY idx LIMIT ?`,
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
    borrowedSlots: prepare<[number], number>(
      'SELECT -1 - slot FROM objects WHERE file = ? AND slot < 0',
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
    undoSlots: prepare<[number], { slot: number; generation: number }>(
      'SELECT slot, max(generation) AS generation FROM undo_objects WHERE file = ? GROUP BY slot',
    ),
    undoDrop: prepare<[number, number]>('DELETE FROM undo_objects WHERE file = ? AND generation < ?'),
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

function stateValues(state: FileState): unknown[] {
  const { record, attributes } = state;
  return [
    JSON.stringify(record.view),
    record.seq,
    record.sessions,
    attributes.sizeBytes,
    Number(attributes.modifiedNs / 1_000_000_000n),
    Number(attributes.modifiedNs % 1_000_000_000n),
    attributes.versionEpoch,
    attributes.versionSeq,
    state.sizeEpoch,
    state.sizeSeq,
    attributes.dead ? 1 : 0,
    SEALS.indexOf(attributes.seal),
  ];
}

function stateOf(row: FileRow): FileState {
  return {
    record: {
      view: JSON.parse(row.view) as View,
      promised: JSON.parse(row.promised) as Epoch,
      installed: JSON.parse(row.installed) as Epoch,
      seq: row.seq,
      sessions: new Uint8Array(row.sessions.buffer, row.sessions.byteOffset, row.sessions.length),
    },
    attributes: {
      sizeBytes: row.sizeBytes,
      modifiedNs: BigInt(row.modifiedS) * 1_000_000_000n + BigInt(row.modifiedNs),
      versionEpoch: row.versionEpoch,
      versionSeq: row.versionSeq,
      objectBytes: row.objectBytes,
      dead: row.dead !== 0,
      seal: sealOf(row.seal),
    },
    sizeEpoch: row.sizeEpoch,
    sizeSeq: row.sizeSeq,
    lender: row.lender,
    installedStart: row.installedStart,
  };
}

function sealOf(code: number): Seal {
  const seal = SEALS[code];
  assert(seal !== undefined, 'The index has the seals that we know');
  return seal;
}
