import fs from 'node:fs';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests, inodesBegin } from '../../catalog/batch.ts';
import type { NameChange } from '../../catalog/change-record.ts';
import { changesBelow } from '../../catalog/changes.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { type QueryOf, runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { Tables } from '../../catalog/tables.ts';
import type { Epoch, Position, ReplicaRecord, Trust, View } from '../../replica/actions.ts';
import { readEpoch, writeEpoch } from '../../replica/codec.ts';
import { EPOCH_ZERO, epochCompare, epochEqual } from '../../replica/epoch.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import type { CommandRequest, Query, QueryResults, TreeChange } from '../../wire/catalog-api.ts';
import { viewFormat, viewParse } from '../../wire/file-operation.ts';
import { CatalogChanges } from './catalog-changes.ts';
import { LOST_START, trustOf } from './contents.ts';
import { hasLogReached } from './database-log.ts';
import type { DatabaseMark, OpenDatabase } from './database-mark.ts';
import { errorCode, storageError } from './failures.ts';
import { diskFileOps, type FileOps } from './file-ops.ts';
import { FolderError } from './folder-error.ts';
import { SharedFlush } from './shared-flush.ts';

/** Batches kept for replicas that lag: so many, and so many bytes of them. */
export const LOG_BATCHES_MAX = 1000;
export const LOG_BYTES_MAX = 16 * 1024 * 1024;
/** Snapshots that are kept open for replicas that fetch them; the oldest goes first. */
const SNAPSHOTS_MAX = 4;
/** Pages that one step of a snapshot copies: a few milliseconds of the event loop. */
const SNAPSHOT_STEP_PAGES = 1000;
/** The log is copied back into the database when it has grown to this, which is looked at every so many commits. */
const LOG_FILE_BYTES_MAX = 16 * 1024 * 1024;
const LOG_LOOK_COMMITS = 64;
/** It goes to the disk so many commits before. */
const LOG_AHEAD_COMMITS = 16;
/** Its file is made shorter where it is so many times as long. */
const LOG_FILE_TIMES_MAX = 4;

/** The last operation of a replica's state, and the epoch that sequenced it: equal ones, equal states. */
export interface LogPosition {
  readonly seq: number;
  readonly epoch: Epoch;
}

/** What a replica tells another of its state. */
export interface CatalogDescription {
  /** Where the replica stands: its installed epoch, and its last operation. */
  readonly position: Position;
  readonly last: LogPosition;
}

/** An operation of the log. */
export interface LogEntry extends LogPosition {
  /** A batch of commands; empty where the operation changes the view. */
  readonly body: Uint8Array;
  /** The view from here on; null where it stays. */
  readonly view: View | null;
}

/** What follows a position in the log. */
export interface CatalogTail {
  /** Installed epoch of the replica that tells it. */
  readonly installed: Epoch;
  readonly entries: readonly LogEntry[];
  /** More follow the last entry: ask again from there. */
  readonly more: boolean;
}

/** A copy of a replica's whole state, to be read in pieces. */
export interface CatalogSnapshot {
  readonly id: number;
  readonly bytes: number;
  readonly position: Position;
}

/** Another replica's state, checked and lying beside the own one until `install` or `unstage`. */
export type StagedCatalog =
  | {
      readonly kind: 'tail';
      readonly position: Position;
      readonly view: View;
      readonly entries: readonly LogEntry[];
    }
  | { readonly kind: 'snapshot'; readonly position: Position; readonly view: View; readonly file: string };

export interface CatalogStoreOptions {
  readonly folder: string;
  /** Members of the catalog's cell, for a catalog that is new here; one that exists keeps its own. */
  readonly view: View;
  /** What the folder remembers of `catalog.db`; absent where nobody would miss it. */
  readonly mark?: DatabaseMark;
  /** Told once, where the catalog is over until a restart. */
  readonly failed?: (reason: string) => void;
  /** The folder's start counters (see `DataFolder`), for `trust`. */
  readonly startCounter?: number;
  readonly powerLossStart?: number;
  /** What syncs the log of the database. */
  readonly fileOps?: Pick<FileOps, 'datasync'>;
  /** The log of the database is copied back when it has grown to this. */
  readonly logFileBytesMax?: number;
}

interface CatalogRecord {
  readonly view: View;
  readonly promised: Epoch;
  readonly installed: Epoch;
  readonly last: LogPosition;
  readonly installedStart: number;
}

/** A batch that the primary has executed and not yet committed. */
interface OpenBatch {
  body: Uint8Array | null;
  /** What the commit makes the record of the replica; null before it is written. */
  record: CatalogRecord | null;
  /** Why it could not be written; everything is undone then. */
  refused: Error | null;
}

interface Snapshot {
  readonly file: string;
  readonly handle: fs.promises.FileHandle;
}

interface Handles {
  readonly writer: Database.Database;
  /** Sees what is committed, also while the writer has a transaction open. */
  readonly reader: Database.Database;
  readonly logFd: number;
  /** Closed after SQLite's own: closing any descriptor drops the locks that the process has on the file. */
  readonly databaseFd: number;
}

/**
 * One replica of the catalog: `catalog.db`, which holds the namespace, the replica's record and the
 * recent operations, so that a transaction changes all of them or none.
 *
 * "Applied" survives the death of the process, "synced" survives loss of power. Errors are
 * `ServiceError` with code `no-space` or `storage`: the replica then acknowledges nothing more.
 *
 * | for | methods |
 * | --- | --- |
 * | anybody | `open`, `record`, `trust`, `query`, `flush`, `dump`, `close` |
 * | every replica | `promise`, `apply`, `install` |
 * | the primary | `begin`, `execute`, `prepare` if there is time for it, then `finish` or `rollback`; `inTransaction` |
 * | who gives its state | `describe`, `tail`, `snapshot`, `readSnapshot`, `closeSnapshot` |
 * | who takes a state | `stageTail`, `stageSnapshot`, `unstage`, then `install` |
 *
 * The primary executes a batch before anybody else has it, inside a transaction that stays open until
 * a majority does; `query` does not see it. While it is open, `promise`, `apply` and `install` must not
 * be called: whoever hears of a higher epoch rolls back first. `flush`, `query`, `describe`, `tail`
 * and `snapshot` may be called at any time.
 *
 * SQLite holds its locks by descriptors of `catalog.db` and `catalog.db-shm`, and closing any descriptor
 * of a file drops the locks that the process has on it: neither is ever opened here. A commit is in
 * `catalog.db-wal`, of which we have a descriptor of our own to sync in the thread pool.
 */
export class CatalogStore {
  readonly #folder: string;
  readonly #path: string;
  readonly #startCounter: number;
  readonly #powerLossStart: number;
  readonly #flush: SharedFlush;
  readonly #mark: DatabaseMark | undefined;
  readonly #onFailure: (reason: string) => void;
  readonly #snapshots = new Map<number, Snapshot>();
  /** Connections that copy a snapshot; they end before the database is exchanged. */
  readonly #copying = new Set<Database.Database>();
  #handles: Handles;
  /** What the latest operations changed, for those who watch. */
  readonly changes: CatalogChanges;
  #record: CatalogRecord;
  #logBytes: number;
  #open: OpenBatch | null = null;
  /** An installation is under way, which lets the event loop run in between. */
  #installing: Promise<void> | null = null;
  #failed: Error | null = null;
  /** Why the last operation of a backup was not applied; null once one was. */
  #refused: unknown = null;
  #fileNumber = 0;
  readonly #logFileBytesMax: number;
  #commitsUntilLook = LOG_LOOK_COMMITS;
  /** The log is to be copied back at the next look, and on its way to the disk already. */
  #isLogLeaving = false;

  private constructor(options: CatalogStoreOptions, file: string, handles: Handles) {
    this.#folder = options.folder;
    this.#path = file;
    this.#mark = options.mark;
    this.#onFailure = options.failed ?? (() => undefined);
    this.#startCounter = options.startCounter ?? 0;
    this.#powerLossStart = options.powerLossStart ?? 0;
    this.#handles = handles;
    this.#logFileBytesMax = options.logFileBytesMax ?? LOG_FILE_BYTES_MAX;
    const ops = options.fileOps ?? diskFileOps;
    this.#flush = new SharedFlush(() => ops.datasync(this.#handles.logFd));
    this.#record = readRecord(handles.reader);
    this.#logBytes = readLogBytes(handles.reader);
    this.changes = new CatalogChanges(this.#record.last.seq);
  }

  /**
   * Opens the catalog, making an empty one where there is none.
   * @throws FolderError where the file is damaged
   */
  static async open(options: CatalogStoreOptions): Promise<CatalogStore> {
    const file = path.join(options.folder, 'catalog.db');
    options.mark?.check();
    await removeLeftovers(options.folder);
    try {
      const handles = openHandles(file, (writer) => {
        ensureSchema(writer);
        ensureReplicaTables(writer, options.view);
      });
      await diskFileOps.flushDirectory(options.folder);
      const store = new CatalogStore(options, file, handles);
      options.mark?.opened(store.#asOpen());
      return store;
    } catch (error) {
      if (['SQLITE_CORRUPT', 'SQLITE_NOTADB'].includes(errorCode(error))) {
        throw new FolderError(
          'damaged',
          `Cannot open ${file}: it is damaged (${error instanceof Error ? error.message : String(error)}). ` +
            'Start with --rebuild, which puts what is in the data folder aside and fills an empty one from the other servers',
          { cause: error },
        );
      }
      throw storageError(`Cannot open ${file}`, error);
    }
  }

  /** The session table is part of the catalog's state, so `sessions` is empty. */
  record(): ReplicaRecord {
    const { view, promised, installed, last } = this.#record;
    return { view, promised, installed, seq: last.seq, sessions: new Uint8Array(0) };
  }

  /**
   * How far the replica can be trusted to have what it acknowledged. `lost` until its first install, for the
   * store cannot know what was here before; `suspect` where power was lost since the last one.
   */
  trust(): Trust {
    return trustOf(this.#record.installedStart, this.#powerLossStart);
  }

  /** The primary has executed a batch that is not committed. */
  get inTransaction(): boolean {
    return this.#open !== null;
  }

  /** Answers from the latest committed state. */
  query<Kind extends Query['kind']>(query: QueryOf<Kind> & { kind: Kind }): QueryResults[Kind] {
    this.#assertUsable();
    try {
      return runQuery<Kind>(this.#handles.reader, query);
    } catch (error) {
      throw storageError('Cannot read the catalog', error);
    }
  }

  /** Of changes, those in a directory or below it, as the latest committed state has their paths. */
  changesBelow(directory: number, recursive: boolean, changes: readonly NameChange[]): TreeChange[] {
    this.#assertUsable();
    try {
      return changesBelow(this.#handles.reader, directory, recursive, changes);
    } catch (error) {
      throw storageError('Cannot read the catalog', error);
    }
  }

  /** The committed catalog as text, for comparing replicas. */
  *dump(): Generator<string> {
    yield* dumpCatalog(this.#handles.reader);
  }

  /** Everything committed before the call is synced when it resolves. Many callers share one sync. */
  async flush(): Promise<void> {
    this.#assertUsable();
    try {
      await this.#flush.request();
    } catch (error) {
      throw this.#fail(storageError('Cannot sync the catalog', error));
    }
  }

  /** promised := epoch, which is not below the one before. Synced when it resolves. */
  async promise(epoch: Epoch): Promise<void> {
    while (this.#installing !== null) await this.#installing;
    this.#assertFree();
    assert(epochCompare(epoch, this.#record.promised) >= 0, 'A promise never moves back');
    this.#commit('promise an epoch', { ...this.#record, promised: epoch }, () => {});
    await this.flush();
  }

  // The primary's way ----------------------------------------------------------------------------

  /** Resolves when a batch may begin, which is to be in the same turn: something else may be next. */
  async ready(): Promise<void> {
    while (this.#installing !== null) await this.#installing;
  }

  /** Opens the transaction of the next batch. */
  begin(): void {
    this.#assertFree();
    try {
      statement(this.#handles.writer, 'BEGIN IMMEDIATE').run();
    } catch (error) {
      throw storageError('Cannot begin a batch', error);
    }
    this.#open = { body: null, record: null, refused: null };
  }

  /**
   * Executes requests inside the open transaction, once.
   *
   * @returns the outcomes in the order of the requests, and the body of the operation to replicate.
   *   `touched` tells for each request the inodes of which it has written something.
   *   The body is null where nothing was executed (retries, refusals before execution): then
   *   `rollback`, and the outcomes may be told at once, for they stem from committed state.
   * @throws ServiceError where the disk refuses; the transaction is rolled back then
   */
  execute(
    requests: readonly CommandRequest[],
    context: CommandContext,
  ): {
    readonly body: Uint8Array | null;
    readonly outcomes: readonly Outcome[];
    readonly touched: readonly (readonly number[])[];
  } {
    const open = this.#open;
    assert(open !== null && open.body === null, 'Requests are executed once, after begin');
    try {
      const seq = this.#record.last.seq + 1;
      const { writer } = this.#handles;
      inodesBegin(writer, this.#record.installed.counter);
      const { batch, outcomes, touched } = executeRequests(writer, seq, requests, context);
      if (batch.length > 0) open.body = encodeBatch(batch);
      return { body: open.body, outcomes, touched };
    } catch (error) {
      this.#open = null;
      throw this.#undone('Cannot execute a batch', error);
    }
  }

  /**
   * Writes into the open transaction what the next operation leaves beside what it changes, its place in the log and the record, so that
   * `finish` has no more to do than to commit. Nobody sees it before. Nothing happens where it was done before; a failure is told by `finish`.
   */
  prepare(): void {
    const open = this.#open;
    assert(open !== null && open.body !== null, 'What is prepared was executed');
    if (open.record !== null || open.refused !== null) return;
    const { installed: epoch, last } = this.#record;
    const seq = last.seq + 1;
    const record = { ...this.#record, last: { seq, epoch } };
    try {
      this.#appendLog({ seq, epoch, body: open.body, view: null });
      writeRecord(this.#handles.writer, record);
      open.record = record;
    } catch (error) {
      open.refused = this.#undone(`Cannot commit batch ${seq}`, error);
    }
  }

  /** Commits what was executed as operation `seq`, the next one. Applied when it resolves. */
  async finish(epoch: Epoch, seq: number): Promise<void> {
    this.#assertNext(epoch, seq);
    this.prepare();
    const { record, refused } = this.#open as OpenBatch;
    this.#open = null;
    if (refused !== null) throw refused;
    assert(record !== null, 'What is committed was prepared');
    const { writer } = this.#handles;
    try {
      statement(writer, 'COMMIT').run();
      this.#record = record;
      this.changes.append(seq, Tables.of(writer).takeChanges());
    } catch (error) {
      throw this.#undone(`Cannot commit batch ${seq}`, error);
    }
    this.#lookAtLog();
  }

  /** Undoes what was executed. Nothing happens where no transaction is open. */
  rollback(): void {
    if (this.#open === null) return;
    this.#open = null;
    Tables.of(this.#handles.writer).takeChanges();
    try {
      this.#undo();
    } catch (error) {
      this.#fail(storageError('Cannot undo a batch', error));
    }
  }

  // The backups' way -----------------------------------------------------------------------------

  /**
   * Executes operation `seq`, which is the next one, in one transaction. Applied when it resolves.
   * @param view given where the operation changes the view; the body is then empty. At the primary too
   *   such an operation is applied, not executed and finished.
   */
  async apply(epoch: Epoch, seq: number, body: Uint8Array, view: View | null = null): Promise<void> {
    assert(view === null || body.length === 0, 'What changes the view changes nothing else');
    while (this.#installing !== null) await this.#installing;
    this.#assertFree();
    // Ordered in the same turn as one before that the disk refused: who ordered it has not heard of that yet.
    if (this.#refused !== null && seq > this.#record.last.seq + 1) throw this.#refused;
    this.#assertNext(epoch, seq);
    const record = { ...this.#record, view: view ?? this.#record.view, last: { seq, epoch } };
    try {
      this.#commit(`apply batch ${seq}`, record, (writer) => {
        inodesBegin(writer, epoch.counter);
        executeBatch(writer, seq, decodeBatch(body));
        this.#appendLog({ seq, epoch, body, view });
      });
      this.#refused = null;
      this.changes.append(seq, Tables.of(this.#handles.writer).takeChanges());
    } catch (error) {
      Tables.of(this.#handles.writer).takeChanges();
      this.#refused = error;
      throw error;
    }
  }

  /**
   * installed := epoch, together with the staged state if there is one, or with the own. All of it or
   * nothing, whenever the process ends. Synced when it resolves; `promised` never goes back.
   */
  async install(epoch: Epoch, seq: number, staged: StagedCatalog | null): Promise<void> {
    while (this.#installing !== null) await this.#installing;
    this.#assertFree();
    this.#refused = null;
    const expected = staged === null ? this.#record.last.seq : staged.position.seq;
    assert(seq === expected, 'The state that is installed is at the position that is told');
    assert(epochCompare(epoch, this.#record.installed) >= 0, 'An installed epoch never moves back');
    if (staged === null || staged.kind === 'tail') {
      const installing = this.#installTail(epoch, seq, staged?.entries ?? []);
      // Whoever waits for its turn wants to know that this ended, not how.
      this.#installing = installing.catch(() => {});
      try {
        await installing;
      } finally {
        this.#installing = null;
      }
      await this.flush();
    } else {
      const old = this.#installSnapshot(epoch, seq, staged.file);
      // Only now is no sync of the old log under way any more.
      await this.flush();
      await diskFileOps.close(old.logFd);
      await diskFileOps.close(old.databaseFd);
    }
  }

  // Giving a state -------------------------------------------------------------------------------

  /**
   * @param last instead of the own last operation: the last one of a log that is being fetched
   * @returns what `decodeDescription` reads
   */
  describe(last: LogPosition = this.#record.last): Uint8Array {
    const { installed } = this.#record;
    return writeLogPosition(writeEpoch(new ByteWriter(128), installed), last).finish();
  }

  /**
   * @param from the last operation of the replica that asks, or of what it was told so far
   * @returns what follows it here; null where `from` is not a state that this one went through, or
   *   lies too far back: then the replica needs a snapshot
   */
  tail(from: LogPosition, bytesMax: number): CatalogTail | null {
    this.#assertUsable();
    const { installed, last } = this.#record;
    if (from.seq > last.seq) return null;
    if (from.seq === last.seq) {
      return epochEqual(from.epoch, last.epoch) ? { installed, entries: [], more: false } : null;
    }
    const { reader } = this.#handles;
    try {
      if (from.seq > 0) {
        const here = reader.prepare('SELECT epoch FROM replica_log WHERE seq = ?').pluck().get(from.seq);
        if (typeof here !== 'string' || !epochEqual(parseEpoch(here), from.epoch)) return null;
      }
      const entries: LogEntry[] = [];
      let bytes = 0;
      const rows = reader
        .prepare('SELECT seq, epoch, body, view FROM replica_log WHERE seq > ? ORDER BY seq')
        .iterate(from.seq) as IterableIterator<{
        seq: number;
        epoch: string;
        body: Buffer;
        view: string | null;
      }>;
      for (const row of rows) {
        // The log may begin behind the first operation.
        if (row.seq !== from.seq + 1 + entries.length) return null;
        bytes += row.body.length;
        if (entries.length > 0 && bytes > bytesMax) return { installed, entries, more: true };
        const view = row.view === null ? null : (JSON.parse(row.view) as View);
        entries.push({ seq: row.seq, epoch: parseEpoch(row.epoch), body: row.body, view });
      }
      assert(from.seq + entries.length === last.seq, 'The log ends with the last operation');
      return { installed, entries, more: false };
    } catch (error) {
      throw storageError("Cannot read the catalog's log", error);
    }
  }

  /** Copies the committed state as it is now, in steps between which the event loop runs. */
  async snapshot(): Promise<CatalogSnapshot> {
    this.#assertUsable();
    this.#fileNumber += 1;
    const id = this.#fileNumber;
    const file = `${this.#path}.snapshot-${id}`;
    try {
      const record = await this.#copy(file);
      const handle = await fs.promises.open(file, 'r');
      this.#snapshots.set(id, { file, handle });
      const { size } = await handle.stat();
      const [oldest] = this.#snapshots.keys();
      if (this.#snapshots.size > SNAPSHOTS_MAX && oldest !== undefined) await this.closeSnapshot(oldest);
      return { id, bytes: size, position: { epoch: record.installed, seq: record.last.seq } };
    } catch (error) {
      await fs.promises.rm(file, { force: true });
      throw storageError('Cannot copy the catalog', error);
    }
  }

  /** Shorter than `length` at the end. `not-found` where the snapshot is closed. */
  async readSnapshot(id: number, offset: number, length: number): Promise<Uint8Array> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined)
      throw new ServiceError('not-found', `There is no snapshot ${id} of the catalog`);
    const bytes = Buffer.alloc(length);
    try {
      let filled = 0;
      while (filled < length) {
        const { bytesRead } = await snapshot.handle.read(bytes, filled, length - filled, offset + filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return bytes.subarray(0, filled);
    } catch (error) {
      throw storageError('Cannot read a copy of the catalog', error);
    }
  }

  async closeSnapshot(id: number): Promise<void> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined) return;
    this.#snapshots.delete(id);
    // Waits for reads that are under way.
    await snapshot.handle.close();
    await fs.promises.rm(snapshot.file, { force: true });
  }

  // Taking a state -------------------------------------------------------------------------------

  /** @param pieces what another replica's `tail` gave, one after the other, from this replica's last operation on */
  stageTail(pieces: readonly CatalogTail[]): StagedCatalog {
    const entries = pieces.flatMap((piece) => piece.entries);
    let seq = this.#record.last.seq;
    for (const entry of entries) {
      seq += 1;
      if (entry.seq !== seq) throw new MalformedError(`A log has a gap before ${entry.seq}`);
    }
    const installed = pieces.at(-1)?.installed;
    assert(installed !== undefined, 'A tail has a piece at least');
    const view = entries.findLast((entry) => entry.view !== null)?.view ?? this.#record.view;
    return { kind: 'tail', position: { epoch: installed, seq }, view, entries };
  }

  /** Writes another replica's snapshot beside the own state, and checks it. */
  async stageSnapshot(chunks: AsyncIterable<Uint8Array>): Promise<StagedCatalog> {
    this.#fileNumber += 1;
    const file = `${this.#path}.incoming-${this.#fileNumber}`;
    try {
      const handle = await fs.promises.open(file, 'wx', 0o600);
      try {
        for await (const chunk of chunks) await handle.writeFile(chunk);
        await handle.sync();
      } finally {
        await handle.close();
      }
      const record = checkSnapshot(file);
      const position = { epoch: record.installed, seq: record.last.seq };
      return { kind: 'snapshot', position, view: record.view, file };
    } catch (error) {
      await removeDatabase(file);
      throw storageError('Cannot take a copy of the catalog', error);
    }
  }

  /** Forgets a staged state that is not to be installed. */
  async unstage(staged: StagedCatalog): Promise<void> {
    if (staged.kind === 'snapshot') await removeDatabase(staged.file);
  }

  /** Rolls back what is open, finishes what is under way, syncs and closes. */
  async close(): Promise<void> {
    if (this.#installing !== null) await this.#installing;
    this.rollback();
    for (const id of [...this.#snapshots.keys()]) await this.closeSnapshot(id);
    this.#closeCopies();
    const healthy = this.#failed === null;
    if (healthy) await this.flush();
    this.#failed ??= new ServiceError('storage', 'The catalog is closed');
    const { logFd, databaseFd } = this.#handles;
    if (healthy) {
      this.#copyBackNow();
      this.#mark?.closing();
    }
    this.#closeHandles();
    if (!healthy) this.#mark?.closed();
    await diskFileOps.close(logFd);
    await diskFileOps.close(databaseFd);
  }

  // ----------------------------------------------------------------------------------------------

  #asOpen(): OpenDatabase {
    return { copyBack: () => this.#copyBackNow(), close: () => this.#closeHandles() };
  }

  #copyBackNow(): void {
    const { writer } = this.#handles;
    if (writer.inTransaction) writer.exec('ROLLBACK');
    writer.pragma('synchronous = FULL');
    writer.pragma('wal_checkpoint(TRUNCATE)');
  }

  #closeHandles(): void {
    const { reader, writer } = this.#handles;
    reader.close();
    writer.close();
  }

  /** Said where the caller then runs without a pause: nobody else is changing the catalog. */
  #assertFree(): void {
    this.#assertUsable();
    assert(this.#installing === null, 'One thing at a time changes the catalog');
    assert(this.#open === null, 'The primary has rolled back before anything else changes the catalog');
  }

  #assertUsable(): void {
    if (this.#failed !== null) throw this.#failed;
  }

  #assertNext(epoch: Epoch, seq: number): void {
    assert(seq === this.#record.last.seq + 1, 'Operations are applied without gaps');
    assert(epochEqual(epoch, this.#record.installed), 'Operations belong to the installed epoch');
  }

  /** One transaction that changes what `work` changes, and the record. */
  #commit(action: string, record: CatalogRecord, work: (writer: Database.Database) => void): void {
    const { writer } = this.#handles;
    try {
      writer.exec('BEGIN IMMEDIATE');
      work(writer);
      writeRecord(writer, record);
      writer.exec('COMMIT');
      this.#record = record;
    } catch (error) {
      throw this.#undone(`Cannot ${action}`, error);
    }
    this.#lookAtLog();
  }

  #lookAtLog(): void {
    this.#commitsUntilLook -= 1;
    if (this.#commitsUntilLook > 0 || this.#installing !== null) return;
    this.#commitsUntilLook = LOG_LOOK_COMMITS;
    if (!hasLogReached(this.#handles.logFd, this.#logFileBytesMax)) return;
    if (!this.#isLogLeaving) {
      this.#isLogLeaving = true;
      this.#commitsUntilLook = LOG_AHEAD_COMMITS;
      // A failure ends the catalog, of which whoever commits next is told.
      this.flush().catch(() => undefined);
      return;
    }
    this.#isLogLeaving = false;
    this.#installing = this.#copyLogBack()
      .catch((error: unknown) => {
        // With a full disk the log stays as it is, and grows until commits are refused as well.
        if (errorCode(error) !== 'SQLITE_FULL') this.#fail(storageError('Cannot copy the log back', error));
      })
      .finally(() => {
        this.#installing = null;
      });
  }

  /**
   * Copies the log back into the database. SQLite would do that by itself, with its
   * syncs in the way of the event loop: on a busy disk they take seconds, and leases end meanwhile.
   * Here they run in the thread pool, and nothing commits until they are over: SQLite begins the
   * log anew once all of it is copied, and until then the copies have to be synced.
   *
   * It is not emptied. The next commit writes over its beginning, and SQLite syncs the header first, by which what is left of
   * the old log is none of the new one. To give the memory and the room of 16 MiB back takes
   * the event loop 20 ms, and to get them again is a third of what a commit costs the disk.
   */
  async #copyLogBack(): Promise<void> {
    const { writer, databaseFd, logFd } = this.#handles;
    await this.#flush.request();
    writer.pragma('synchronous = OFF');
    try {
      writer.pragma('wal_checkpoint(PASSIVE)');
    } finally {
      writer.pragma('synchronous = NORMAL');
    }
    await diskFileOps.datasync(databaseFd);
    // So long after somebody who reads has kept SQLite from beginning it anew.
    if (fs.fstatSync(logFd).size <= LOG_FILE_TIMES_MAX * this.#logFileBytesMax) return;
    writer.pragma('wal_checkpoint(TRUNCATE)');
    await this.#flush.request();
  }

  /**
   * Undoes a transaction that failed. With a full disk the catalog stays as it was; after anything else that
   * SQLite tells, nobody knows what it holds, and it is over until a restart.
   * @returns the failure, to be thrown
   */
  #undone(action: string, cause: unknown): Error {
    const error = storageError(action, cause);
    const code = errorCode(cause);
    if (code.startsWith('SQLITE_') && code !== 'SQLITE_FULL') return this.#fail(error);
    this.#undo();
    return error;
  }

  #undo(): void {
    const { writer } = this.#handles;
    // SQLite rolls some failures back by itself.
    if (writer.inTransaction) writer.exec('ROLLBACK');
    this.#logBytes = readLogBytes(writer);
  }

  #appendLog({ seq, epoch, body, view }: LogEntry): void {
    const { writer } = this.#handles;
    const row = [
      seq,
      formatEpoch(epoch),
      Buffer.from(body.buffer, body.byteOffset, body.byteLength),
      view === null ? null : JSON.stringify(view),
    ];
    statement(writer, 'INSERT INTO replica_log (seq, epoch, body, view) VALUES (?, ?, ?, ?)').run(...row);
    this.#logBytes += body.length;
    const trimmed = statement(
      writer,
      'DELETE FROM replica_log WHERE seq <= ? RETURNING LENGTH(body) AS bytes',
    );
    for (const { bytes } of trimmed.all(seq - LOG_BATCHES_MAX) as { bytes: number }[])
      this.#logBytes -= bytes;
    const oldest = statement(
      writer,
      `DELETE FROM replica_log WHERE seq = (SELECT MIN(seq) FROM replica_log) AND seq < ?
       RETURNING LENGTH(body) AS bytes`,
    );
    while (this.#logBytes > LOG_BYTES_MAX) {
      const row = oldest.get(seq) as { bytes: number } | undefined;
      if (row === undefined) break;
      this.#logBytes -= row.bytes;
    }
  }

  async #installTail(epoch: Epoch, seq: number, entries: readonly LogEntry[]): Promise<void> {
    const { writer } = this.#handles;
    const view = entries.findLast((entry) => entry.view !== null)?.view ?? this.#record.view;
    const record = this.#installedRecord(epoch, view, entries.at(-1) ?? this.#record.last);
    let next = this.#record.last.seq + 1;
    try {
      writer.exec('BEGIN IMMEDIATE');
      for (const entry of entries) {
        assert(entry.seq === next, 'A tail continues the own state without gaps');
        next += 1;
        inodesBegin(writer, entry.epoch.counter);
        executeBatch(writer, entry.seq, decodeBatch(entry.body));
        this.#appendLog(entry);
        // A long log takes seconds; the server's heartbeats go on meanwhile.
        await nextTurn();
      }
      assert(record.last.seq === seq, 'A tail ends at the position that is told');
      writeRecord(writer, record);
      writer.exec('COMMIT');
      this.#record = record;
      this.changes.append(seq, Tables.of(writer).takeChanges());
    } catch (error) {
      throw this.#undone(`Cannot install the catalog's log up to ${seq}`, error);
    }
  }

  /**
   * Puts the staged database in the place of the own. It runs without a pause, so nothing is promised
   * meanwhile that the staged record does not know.
   *
   * The danger is the old database's log: SQLite would play it into the new one. So the old database
   * first gives up its log, synced, and only then does the rename, which is one step, exchange them.
   * A crash before it leaves the old state, whole; after it the new one.
   *
   * @returns the handles of the old database, of which the caller closes the descriptors
   */
  #installSnapshot(epoch: Epoch, seq: number, file: string): Handles {
    try {
      const incoming = new Database(file, { fileMustExist: true, timeout: 0 });
      try {
        incoming.pragma('synchronous = FULL');
        const theirs = readRecord(incoming);
        assert(theirs.last.seq === seq, 'A snapshot is at the position that is told');
        // The view is part of the sequence, and so of the copy.
        writeRecord(incoming, this.#installedRecord(epoch, theirs.view, theirs.last));
      } finally {
        incoming.close();
      }
    } catch (error) {
      throw storageError('Cannot stamp a copy of the catalog', error);
    }

    const old = this.#handles;
    const { reader, writer } = old;
    try {
      this.#closeCopies();
      reader.close();
      writer.pragma('synchronous = FULL');
      writer.pragma('wal_checkpoint(TRUNCATE)');
      this.#mark?.closing();
      const mode = writer.pragma('journal_mode = DELETE', { simple: true });
      assert(mode === 'delete', 'A database that nobody else has open gives up its log');
      writer.close();
      assert(!fs.existsSync(`${this.#path}-wal`), 'The old log is gone before the new database comes');
      flushDirectory(this.#folder);
      fs.renameSync(file, this.#path);
      flushDirectory(this.#folder);
      this.#handles = openHandles(this.#path, ensureLogView);
      flushDirectory(this.#folder);
      this.#mark?.opened(this.#asOpen());
      this.#record = readRecord(this.#handles.reader);
      this.changes.reset(this.#record.last.seq);
      this.#logBytes = readLogBytes(this.#handles.reader);
    } catch (error) {
      // Which of the two is there now, the next start finds out.
      throw this.#fail(storageError('Cannot exchange the catalog', error));
    }
    assert(epochEqual(this.#record.installed, epoch), 'What was installed is what is there');
    return old;
  }

  #installedRecord(epoch: Epoch, view: View, { seq, epoch: lastEpoch }: LogPosition): CatalogRecord {
    const { promised } = this.#record;
    return {
      view,
      promised: epochCompare(promised, epoch) >= 0 ? promised : epoch,
      installed: epoch,
      last: { seq, epoch: lastEpoch },
      installedStart: this.#startCounter,
    };
  }

  /** Copies what is committed now; later commits do not show, because a read transaction is open meanwhile. */
  async #copy(file: string): Promise<CatalogRecord> {
    const source = new Database(this.#path, { readonly: true, fileMustExist: true, timeout: 0 });
    this.#copying.add(source);
    try {
      source.exec('BEGIN');
      const record = readRecord(source);
      await source.backup(file, { progress: () => SNAPSHOT_STEP_PAGES });
      return record;
    } finally {
      this.#copying.delete(source);
      source.close();
    }
  }

  #closeCopies(): void {
    for (const source of this.#copying) source.close();
    this.#copying.clear();
  }

  #fail(error: Error): Error {
    if (this.#failed !== null) return error;
    this.#failed = error;
    this.#onFailure(error.message);
    return error;
  }
}

export function decodeDescription(bytes: Uint8Array): CatalogDescription {
  const reader = new ByteReader(bytes);
  const installed = readEpoch(reader);
  const last = readLogPosition(reader);
  reader.end();
  return { position: { epoch: installed, seq: last.seq }, last };
}

export function encodeTail(tail: CatalogTail): Uint8Array {
  const writer = writeEpoch(new ByteWriter(4096), tail.installed);
  writer.uint8(tail.more ? 1 : 0).uint32(tail.entries.length);
  for (const entry of tail.entries) {
    writeLogPosition(writer, entry).bytes(entry.body);
    writer.text(entry.view === null ? '' : viewFormat(entry.view));
  }
  return writer.finish();
}

/** The bodies are views into `bytes`. */
export function decodeTail(bytes: Uint8Array): CatalogTail {
  const reader = new ByteReader(bytes);
  const installed = readEpoch(reader);
  const more = reader.uint8() === 1;
  const entries: LogEntry[] = [];
  for (let left = reader.uint32(); left > 0; left--) {
    const position = readLogPosition(reader);
    const body = reader.bytes();
    const view = reader.text();
    entries.push({ ...position, body, view: view === '' ? null : viewParse(view) });
  }
  reader.end();
  return { installed, entries, more };
}

function writeLogPosition(writer: ByteWriter, { seq, epoch }: LogPosition): ByteWriter {
  return writeEpoch(writer.uint53(seq), epoch);
}

function readLogPosition(reader: ByteReader): LogPosition {
  const seq = reader.uint53();
  return { seq, epoch: readEpoch(reader) };
}

// The database ------------------------------------------------------------------------------------

function openHandles(file: string, prepare: (writer: Database.Database) => void): Handles {
  const writer = new Database(file, { timeout: 0 });
  try {
    writer.pragma('journal_mode = WAL');
    writer.pragma('synchronous = NORMAL');
    writer.pragma('wal_autocheckpoint = 0');
    writer.pragma('cache_size = -16384');
    prepare(writer);
    // Reading makes the log's file, if there is none yet.
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

function ensureReplicaTables(writer: Database.Database, view: View): void {
  const known = writer.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'replica_record'").get();
  if (known !== undefined) {
    ensureLogView(writer);
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
      LOST_START,
    );
  writer.exec('COMMIT');
}

/** A log of before knows no operations that change the view. */
function ensureLogView(writer: Database.Database): void {
  const columns = writer.pragma('table_info(replica_log)') as { name: string }[];
  if (!columns.some(({ name }) => name === 'view'))
    writer.exec('ALTER TABLE replica_log ADD COLUMN view TEXT');
}

interface RecordRow {
  readonly view: string;
  readonly promised: string;
  readonly installed: string;
  readonly seq: number;
  readonly last: string;
  readonly installed_start: number;
}

function readRecord(db: Database.Database): CatalogRecord {
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

function writeRecord(db: Database.Database, record: CatalogRecord): void {
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

function readLogBytes(db: Database.Database): number {
  return db.prepare('SELECT COALESCE(SUM(LENGTH(body)), 0) FROM replica_log').pluck().get() as number;
}

function formatEpoch({ counter, server, incarnation }: Epoch): string {
  return JSON.stringify([counter, server, incarnation]);
}

/** Only what `formatEpoch` wrote comes here. */
function parseEpoch(text: string): Epoch {
  const [counter, server, incarnation] = JSON.parse(text) as [number, Epoch['server'], Epoch['incarnation']];
  return { counter, server, incarnation };
}

const prepared = new WeakMap<Database.Database, Map<string, Database.Statement>>();

function statement(db: Database.Database, sql: string): Database.Statement {
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

// Files -------------------------------------------------------------------------------------------

/** Checks a copy, and takes its log away, so that it is one file. */
function checkSnapshot(file: string): CatalogRecord {
  const db = new Database(file, { fileMustExist: true, timeout: 0 });
  try {
    const verdict = db.pragma('quick_check(1)', { simple: true });
    if (verdict !== 'ok') throw new ServiceError('storage', `The copy is damaged: ${String(verdict)}`);
    ensureSchema(db);
    const record = readRecord(db);
    const mode = db.pragma('journal_mode = DELETE', { simple: true });
    assert(mode === 'delete', 'A copy that nobody else has open gives up its log');
    return record;
  } finally {
    db.close();
  }
}

async function removeDatabase(file: string): Promise<void> {
  for (const suffix of ['', '-wal', '-shm', '-journal'])
    await fs.promises.rm(`${file}${suffix}`, { force: true });
}

/** Copies that an earlier life of the process was making or taking. */
async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.promises.readdir(folder)) {
    if (/^catalog\.db\.(snapshot|incoming)-/.test(name)) await fs.promises.rm(path.join(folder, name));
  }
}

function flushDirectory(folder: string): void {
  const fd = fs.openSync(folder, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}
