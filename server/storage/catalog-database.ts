/** The file `catalog.db`: its connections, its descriptors, the replica's tables in it, and the replica's record. */
import fs from 'node:fs';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { EPOCH_ZERO } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import type { LogPosition } from './catalog-transfer.ts';

export interface CatalogRecord {
  readonly view: View;
  readonly promised: Epoch;
  readonly installed: Epoch;
  readonly last: LogPosition;
  readonly installedStart: number;
}

export interface Handles {
  readonly writer: Database.Database;
  /** Sees only committed state, also while the writer has a transaction open. */
  readonly reader: Database.Database;
  readonly logFd: number;
  /** Closed after SQLite's own: closing any descriptor drops the locks that the process has on the file. */
  readonly databaseFd: number;
}

export function openHandles(file: string, prepare: (writer: Database.Database) => void): Handles {
  const writer = new Database(file, { timeout: 0 });
  try {
    writer.pragma('journal_mode = WAL');
    writer.pragma('synchronous = NORMAL');
    writer.pragma('wal_autocheckpoint = 0');
    writer.pragma('cache_size = -16384');
    prepare(writer);
    // A read creates the log's file if there is none yet.
    readRecord(writer);
    const reader = new Database(file, { readonly: true, fileMustExist: true, timeout: 0 });
    return {
      writer,
      reader,
      logFd: fs.openSync(`${file}-wal`, 'r+'),
      databaseFd: fs.openSync(file, 'r+'),
    };
  } catch (error) {
    writer.close();
    throw error;
  }
}

/** Closes SQLite's connections; the caller closes the descriptors. */
export function closeConnections({ reader, writer }: Handles): void {
  reader.close();
  writer.close();
}

/** @param installedStart of a replica that is created here; see `trustOf` */
export function ensureReplicaTables(writer: Database.Database, view: View, installedStart: number): void {
  const known = writer.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'replica_record'").get();
  if (known !== undefined) {
    ensureLogTables(writer);
    return;
  }
  writer.exec(`
    BEGIN IMMEDIATE;
    CREATE TABLE replica_record (
      id               INTEGER PRIMARY KEY CHECK (id = 1),
      view             TEXT NOT NULL,
      promised         TEXT NOT NULL,
      installed        TEXT NOT NULL,
      seq              INTEGER NOT NULL,
      -- the epoch that sequenced the last operation
      last             TEXT NOT NULL,
      -- start counter of the data folder when the base was installed, -1 before
      installed_start  INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE replica_log (
      seq INTEGER PRIMARY KEY, epoch TEXT NOT NULL, body BLOB NOT NULL, view TEXT
    ) STRICT;
  `);
  writer
    .prepare('INSERT INTO replica_record VALUES (1, ?, ?, ?, 0, ?, ?)')
    .run(
      JSON.stringify(view),
      formatEpoch(EPOCH_ZERO),
      formatEpoch(EPOCH_ZERO),
      formatEpoch(EPOCH_ZERO),
      installedStart,
    );
  writer.exec('COMMIT');
  ensureLogTables(writer);
}

/**
 * Adds what the logs of earlier releases lack: the column for operations that change the view, and the table of sizes.
 * The sizes have a table of their own, because SQLite reads all of a long body to reach a column behind it.
 */
export function ensureLogTables(writer: Database.Database): void {
  const columns = writer.pragma('table_info(replica_log)') as { name: string }[];
  if (!columns.some(({ name }) => name === 'view'))
    writer.exec('ALTER TABLE replica_log ADD COLUMN view TEXT');
  writer.exec(`
    CREATE TABLE IF NOT EXISTS replica_log_sizes (
      seq        INTEGER PRIMARY KEY,
      -- when the primary executed the operation, in milliseconds since 1970
      at_ms      INTEGER NOT NULL,
      bytes      INTEGER NOT NULL,
      -- bytes of this operation and all before it
      end_bytes  INTEGER NOT NULL
    ) STRICT;
  `);
}

interface RecordRow {
  readonly view: string;
  readonly promised: string;
  readonly installed: string;
  readonly seq: number;
  readonly last: string;
  readonly installed_start: number;
}

/** @throws ServiceError `storage` if there is no record */
export function readRecord(db: Database.Database): CatalogRecord {
  const row = db.prepare('SELECT * FROM replica_record').get() as RecordRow | undefined;
  if (row === undefined) throw new ServiceError('storage', "The catalog's record is missing");
  return {
    view: JSON.parse(row.view) as View,
    promised: parseEpoch(row.promised),
    installed: parseEpoch(row.installed),
    last: { seq: row.seq, epoch: parseEpoch(row.last) },
    installedStart: row.installed_start,
  };
}

export function writeRecord(db: Database.Database, record: CatalogRecord): void {
  statement(
    db,
    'UPDATE replica_record SET view = ?, promised = ?, installed = ?, seq = ?, last = ?, installed_start = ?',
  ).run(
    JSON.stringify(record.view),
    formatEpoch(record.promised),
    formatEpoch(record.installed),
    record.last.seq,
    formatEpoch(record.last.epoch),
    record.installedStart,
  );
}

export function formatEpoch({ counter, server, incarnation }: Epoch): string {
  return JSON.stringify([counter, server, incarnation]);
}

export function parseEpoch(text: string): Epoch {
  const [counter, server, incarnation] = JSON.parse(text) as [number, Epoch['server'], Epoch['incarnation']];
  return { counter, server, incarnation };
}

const prepared = new WeakMap<Database.Database, Map<string, Database.Statement>>();

export function statement(db: Database.Database, sql: string): Database.Statement {
  let ofHandle = prepared.get(db);
  if (ofHandle === undefined) {
    ofHandle = new Map();
    prepared.set(db, ofHandle);
  }
  let known = ofHandle.get(sql);
  if (known === undefined) {
    known = db.prepare(sql);
    ofHandle.set(sql, known);
  }
  return known;
}
