import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import {
  batchAtMs,
  decodeBatch,
  encodeBatch,
  executeBatch,
  executeRequests,
  startEpochInodes,
} from '../../catalog/batch.ts';
import type { NameChange } from '../../catalog/change-record.ts';
import { changesBelow } from '../../catalog/changes.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import type { CatalogNumbers } from '../../catalog/inode-numbers.ts';
import { leavingInodes } from '../../catalog/moving-volumes.ts';
import { type QueryOf, runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { Tables } from '../../catalog/tables.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochCompare, epochEqual } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { CommandRequest, Query, QueryResults, TreeChange } from '../../wire/catalog-api.ts';
import { CatalogChanges } from './catalog-changes.ts';
import { CatalogCheckpoint } from './catalog-checkpoint.ts';
import { CatalogDamage } from './catalog-damage.ts';
import {
  type CatalogRecord,
  closeConnections,
  ensureLogTables,
  ensureReplicaTables,
  type Handles,
  openHandles,
  readRecord,
  statement,
  writeRecord,
} from './catalog-database.ts';
import {
  appendToLog,
  boundsWithin,
  LOG_BOUNDS,
  type LogBounds,
  logBytesAfter,
  logTail,
} from './catalog-log.ts';
import type { PageSource, TransferCounts } from './catalog-pages.ts';
import {
  CatalogSnapshots,
  type FrozenDatabase,
  removeDatabase,
  removeLeftovers,
} from './catalog-snapshots.ts';
import {
  type CatalogSnapshot,
  type CatalogTail,
  encodeDescription,
  type LogEntry,
  type LogPosition,
  type PageComparison,
  type StagedCatalog,
} from './catalog-transfer.ts';
import { installedStartOfNew, trustOf } from './contents.ts';
import { damageIn, damageOf } from './database-check.ts';
import type { DatabaseMark, OpenDatabase } from './database-mark.ts';
import { errorCode, isCorruption, storageError } from './failures.ts';
import { diskFileOps, type FileOps, flushDirectory } from './file-ops.ts';
import { damagedFolder, FolderError } from './folder-error.ts';
import { SharedFlush } from './shared-flush.ts';
import type { NewTrust } from './store.ts';

export interface CatalogStoreOptions {
  readonly world: World;
  readonly folder: string;
  /** By default, the root catalog. */
  readonly catalog?: CatalogNumber;
  /** For a catalog that is created here; an existing one keeps its own. */
  readonly view: View;
  /** Of a replica that is created here: `lost` unless no earlier disk of this server can have had one. */
  readonly trustOfNew?: NewTrust;
  readonly mark?: DatabaseMark;
  readonly thorough?: boolean;
  readonly failed?: (reason: string) => void;
  readonly startCounter?: number;
  readonly powerLossStart?: number;
  readonly fileOps?: Pick<FileOps, 'datasync'>;
  readonly logFileBytesMax?: number;
  readonly logBounds?: Partial<LogBounds>;
  /** Checks a copy; by default in this thread. */
  readonly checkDatabase?: (file: string) => Promise<string | null>;
}

/** How long a copy waits for the end of a batch, rather than be taken with SQLite's slower means. */
const FREEZE_WAIT_MS = 100;

interface OpenBatch {
  body: Uint8Array | null;
  atMs: number;
  /** The replica's record after the commit; null before it is written. */
  record: CatalogRecord | null;
  /** Why it could not be written; everything is undone then. */
  refused: Error | null;
}

/**
 * One replica of the catalog: `catalog.db` holds the namespace, the replica's record and the recent operations, so that
 * a transaction changes all of them or none. Errors are `ServiceError` with code `no-space` or `storage`: the replica
 * then acknowledges nothing more.
 *
 * | user | methods |
 * | --- | --- |
 * | any | `open`, `record`, `trust`, `query`, `numbers`, `withTemporaryTables`, `flush`, `dump`, `close` |
 * | every replica | `promise`, `apply`, `install` |
 * | the primary | `begin`, `execute`, `prepare` (optional), then `finish` or `rollback`; `inTransaction` |
 * | a replica that gives its state | `describe`, `tail`, `snapshot` and what reads it, `closeSnapshot` |
 * | a replica that receives a state | `stageTail`, `installPart`, `stagePages`, `unstage`, then `install` |
 *
 * The primary executes a batch before any backup has it, in a transaction that stays open until a majority has it;
 * `query` does not see it. Meanwhile `promise`, `apply` and `install` must not be called: a primary that receives a
 * higher epoch rolls back first. The other reads are allowed at any time.
 *
 * Closing any descriptor of `catalog.db` or `catalog.db-shm` drops SQLite's locks on it: no other descriptor of them is
 * closed while the database is open. `catalog.db-wal` has a descriptor for syncs in the thread pool.
 */
export class CatalogStore {
  readonly #world: World;
  readonly #folder: string;
  readonly #path: string;
  readonly #startCounter: number;
  readonly #powerLossStart: number;
  readonly #flush: SharedFlush;
  readonly #mark: DatabaseMark | undefined;
  readonly #onFailure: (reason: string) => void;
  readonly #snapshots: CatalogSnapshots;
  #handles: Handles;
  readonly changes: CatalogChanges;
  readonly damage = new CatalogDamage();
  #record: CatalogRecord;
  readonly #wantedLogBounds: LogBounds;
  /** As wanted, or less on a disk that has little free space. */
  #logBounds: LogBounds;
  #open: OpenBatch | null = null;
  /** An installation or a copy of the log is in progress; the event loop runs meanwhile. */
  #exclusiveWork: Promise<unknown> | null = null;
  #failed: Error | null = null;
  /** Why the last operation of a backup was not applied; null once one was. */
  #refused: unknown = null;
  readonly #checkpoint: CatalogCheckpoint;
  readonly #pageReads = new Set<Promise<number>>();
  readonly #wantedFreezes = new Set<PromiseWithResolvers<FrozenDatabase | null>>();

  private constructor(options: CatalogStoreOptions, file: string, handles: Handles) {
    this.#world = options.world;
    this.#folder = options.folder;
    this.#path = file;
    this.#mark = options.mark;
    this.#onFailure = options.failed ?? (() => undefined);
    this.#startCounter = options.startCounter ?? 0;
    this.#powerLossStart = options.powerLossStart ?? 0;
    this.#handles = handles;
    this.#snapshots = new CatalogSnapshots(file, {
      nowMs: () => options.world.nowMs(),
      freeze: () => this.#freeze(),
      check: options.checkDatabase ?? (async (copy) => damageIn(copy)),
    });
    const ops = options.fileOps ?? diskFileOps;
    this.#flush = new SharedFlush(() => ops.datasync(this.#handles.logFd));
    this.#checkpoint = new CatalogCheckpoint(this.#flush, options.logFileBytesMax);
    this.#record = readRecord(handles.reader);
    this.#wantedLogBounds = { ...LOG_BOUNDS, ...options.logBounds };
    this.#logBounds = this.#wantedLogBounds;
    this.changes = new CatalogChanges(options.world, this.#record.last.seq);
  }

  /** Opens the catalog, or creates an empty one. @throws FolderError if the file is damaged */
  static async open(options: CatalogStoreOptions): Promise<CatalogStore> {
    const file = path.join(options.folder, 'catalog.db');
    options.mark?.check();
    await removeLeftovers(options.folder);
    let handles: Handles | null = null;
    try {
      handles = openHandles(file, (writer) => {
        ensureSchema(writer, options.catalog);
        const { number } = Tables.of(writer).own;
        if (number !== (options.catalog ?? ROOT_CATALOG))
          throw damagedFolder(file, `it is of catalog ${number}`);
        const { trustOfNew = 'lost', startCounter = 0 } = options;
        ensureReplicaTables(writer, options.view, installedStartOfNew(trustOfNew, startCounter));
      });
      const damage = options.thorough === true ? damageOf(handles.reader) : null;
      if (damage !== null) throw damagedFolder(file, damage);
      // Before the next await: the reader is used at once, by which the simulation knows whose connection it is.
      const store = new CatalogStore(options, file, handles);
      await diskFileOps.flushDirectory(options.folder);
      options.mark?.setOpen(store.#asOpenDatabase());
      return store;
    } catch (error) {
      if (handles !== null) closeConnections(handles);
      // As on a full disk: SQLite has copied its log back and removed it.
      options.mark?.closed();
      if (error instanceof FolderError) throw error;
      if (isCorruption(error)) throw damagedFolder(file, error);
      throw storageError(`Cannot open ${file}`, error);
    }
  }

  /** The replica's record. Its `sessions` is empty: the session table is part of the catalog's state. */
  record(): ReplicaRecord {
    const { view, promised, installed, last } = this.#record;
    return { view, promised, installed, seq: last.seq, sessions: new Uint8Array(0) };
  }

  /**
   * Of a new replica, as given, until the first install; `suspect` if power was lost since the last one; `damaged` if a
   * damaged page was met.
   */
  trust(): Trust {
    const trust = trustOf(this.#record.installedStart, this.#powerLossStart);
    return trust === 'intact' && this.damage.isKnown ? 'damaged' : trust;
  }

  get inTransaction(): boolean {
    return this.#open !== null;
  }

  query<Kind extends Query['kind']>(query: QueryOf<Kind> & { kind: Kind }): QueryResults[Kind] {
    this.#assertUsable();
    try {
      return runQuery<Kind>(this.#handles.reader, query);
    } catch (error) {
      if (error instanceof UnfilledDirectory) throw error;
      throw this.#readFailed('Cannot read the catalog', error);
    }
  }

  /** @see leavingInodes */
  leavingInodes(): ((inode: number) => boolean) | null {
    this.#assertUsable();
    try {
      return leavingInodes(Tables.of(this.#handles.reader));
    } catch (error) {
      throw this.#readFailed('Cannot read the catalog', error);
    }
  }

  /** Where the catalog is in its inode numbers, after the open batch if there is one. */
  numbers(): CatalogNumbers {
    this.#assertUsable();
    try {
      return Tables.of(this.#handles.writer).numbers.position();
    } catch (error) {
      throw this.#readFailed('Cannot read the catalog', error);
    }
  }

  /** Calls `work` with the handle that executes batches, for temporary tables; it may have a batch open. */
  withTemporaryTables<Result>(work: (writer: Database.Database) => Result): Result {
    this.#assertUsable();
    try {
      return work(this.#handles.writer);
    } catch (error) {
      throw this.#readFailed('Cannot count the rows of the catalog', error);
    }
  }

  changesBelow(directory: number, recursive: boolean, changes: readonly NameChange[]): TreeChange[] {
    this.#assertUsable();
    try {
      return changesBelow(this.#handles.reader, directory, recursive, changes);
    } catch (error) {
      throw this.#readFailed('Cannot read the catalog', error);
    }
  }

  *dump(): Generator<string> {
    yield* dumpCatalog(this.#handles.reader);
  }

  /** Resolves when everything committed before the call is synced. Concurrent callers share one sync. */
  async flush(): Promise<void> {
    this.#assertUsable();
    try {
      await this.#flush.request();
    } catch (error) {
      throw this.#fail(storageError('Cannot sync the catalog', error));
    }
  }

  /** Sets `promised` to the epoch, which is not below the one before. Synced when it resolves. */
  async promise(epoch: Epoch): Promise<void> {
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
    this.#assertMayChange();
    assert(epochCompare(epoch, this.#record.promised) >= 0, 'A promise never moves back');
    this.#commit('promise an epoch', { ...this.#record, promised: epoch });
    await this.flush();
  }

  // Primary ---------------------------------------------------------------------------------------

  get isReady(): boolean {
    return this.#exclusiveWork === null;
  }

  /** Resolves when a batch may begin; the caller begins it in the same tick, before another change does. */
  async ready(): Promise<void> {
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
  }

  begin(): void {
    this.#assertMayChange();
    try {
      this.#begin();
    } catch (error) {
      throw storageError('Cannot begin a batch', error);
    }
    this.#open = { body: null, atMs: 0, record: null, refused: null };
  }

  /**
   * Executes requests inside the open transaction, once.
   * @returns the outcomes, and the body of the operation to replicate. `touched` has the inodes that each request has
   * written. The body is null if nothing was executed (retries, early refusals): then the caller calls `rollback` and
   * may return the outcomes at once, because they derive from committed state.
   * @throws ServiceError if the disk refuses; the transaction is rolled back then
   */
  execute(
    requests: readonly CommandRequest[],
    context: CommandContext,
  ): {
    readonly body: Uint8Array | null;
    readonly outcomes: readonly Outcome[];
    readonly touched: readonly (readonly number[])[];
    readonly unfilled: ReadonlyMap<number, number>;
  } {
    const open = this.#open;
    assert(open !== null && open.body === null, 'Requests are executed once, after begin');
    try {
      const seq = this.#record.last.seq + 1;
      const { writer } = this.#handles;
      startEpochInodes(writer, this.#record.installed.counter);
      const { batch, outcomes, touched, unfilled } = executeRequests(writer, seq, requests, context);
      if (batch.commands.length > 0) open.body = encodeBatch(batch);
      open.atMs = batchAtMs(batch);
      return { body: open.body, outcomes, touched, unfilled };
    } catch (error) {
      this.#open = null;
      throw this.#undoFailed('Cannot execute a batch', error);
    }
  }

  /** Writes log entry and record into the open transaction, for the commit. Idempotent; `finish` throws its error. */
  prepare(): void {
    const open = this.#open;
    assert(open !== null && open.body !== null, 'What is prepared was executed');
    if (open.record !== null || open.refused !== null) return;
    const { installed: epoch, last } = this.#record;
    const seq = last.seq + 1;
    const record = { ...this.#record, last: { seq, epoch } };
    try {
      appendToLog(
        this.#handles.writer,
        this.#logBounds,
        { seq, epoch, body: open.body, view: null },
        open.atMs,
      );
      writeRecord(this.#handles.writer, record);
      open.record = record;
    } catch (error) {
      open.refused = this.#undoFailed(`Cannot commit batch ${seq}`, error);
    }
  }

  /** Commits the executed batch as operation `seq`, the next one; a majority has it. Applied when it resolves. */
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
      throw this.#undoFailed(`Cannot commit batch ${seq}`, error);
    }
    this.#checkpointIfDue();
  }

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

  // Backup ----------------------------------------------------------------------------------------

  /**
   * Executes operation `seq`, the next one. Applied when it resolves.
   * @param view given if the operation changes the view; then the body is empty, and the primary, too, applies it
   */
  async apply(epoch: Epoch, seq: number, body: Uint8Array, view: View | null = null): Promise<void> {
    assert(view === null || body.length === 0, 'What changes the view changes nothing else');
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
    this.#assertMayChange();
    // The caller passed this operation before it learned that the disk refused an earlier one.
    if (this.#refused !== null && seq > this.#record.last.seq + 1) throw this.#refused;
    this.#assertNext(epoch, seq);
    const record = { ...this.#record, view: view ?? this.#record.view, last: { seq, epoch } };
    try {
      this.#commit(`apply batch ${seq}`, record, (writer) => {
        startEpochInodes(writer, epoch.counter);
        const batch = decodeBatch(body);
        executeBatch(writer, seq, batch);
        appendToLog(writer, this.#logBounds, { seq, epoch, body, view }, batchAtMs(batch));
      });
      this.#refused = null;
      this.changes.append(seq, Tables.of(this.#handles.writer).takeChanges());
    } catch (error) {
      Tables.of(this.#handles.writer).takeChanges();
      this.#refused = error;
      throw error;
    }
  }

  /** Sets `installed`, with the staged state or the local one, atomically and synced; `promised` never moves back. */
  async install(epoch: Epoch, seq: number, staged: StagedCatalog | null): Promise<void> {
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
    this.#assertMayChange();
    this.#refused = null;
    const expected = staged === null ? this.#record.last.seq : staged.position.seq;
    assert(seq === expected, 'The installed state is at the given position');
    assert(epochCompare(epoch, this.#record.installed) >= 0, 'An installed epoch never moves back');
    if (staged === null || staged.kind === 'tail') {
      assert(staged === null || !staged.isPart, 'A part of the log is not the base');
      const entries = staged?.entries ?? [];
      const view = staged?.view ?? this.#record.view;
      const record = this.#installedRecord(epoch, view, entries.at(-1) ?? this.#record.last);
      await this.#installEntries(record, entries);
    } else {
      const old = this.#installSnapshot(epoch, seq, staged.file);
      // Only now is no sync of the old log in progress any more.
      await this.flush();
      await this.#closeDescriptors(old);
      await this.#snapshots.dropPartial();
    }
  }

  /**
   * Applies a part of another replica's log, atomically and synced. `installed` becomes the epoch of its last
   * operation. What this replica may have lost is still missing: `trust` does not change.
   */
  async installPart(staged: StagedCatalog): Promise<void> {
    assert(staged.kind === 'tail' && staged.isPart, 'A copy is installed as a whole');
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
    this.#assertMayChange();
    const { promised, installed } = this.#record;
    const { position, view, entries } = staged;
    assert(epochCompare(position.epoch, installed) >= 0, 'An installed epoch never moves back');
    assert(epochCompare(position.epoch, promised) <= 0, 'Nothing is installed without a promise');
    const last = { seq: position.seq, epoch: position.epoch };
    await this.#installEntries({ ...this.#record, view, installed: position.epoch, last }, entries);
  }

  // Giving a state -------------------------------------------------------------------------------

  describe(last: LogPosition = this.#record.last): Uint8Array {
    const { installed } = this.#record;
    return encodeDescription(installed, last);
  }

  /**
   * @param from the last operation that the asking replica has
   * @returns the operations after it; null if this replica was never in that state, or its log begins later
   */
  tail(from: LogPosition, bytesMax: number): CatalogTail | null {
    this.#assertUsable();
    const { installed, last } = this.#record;
    if (from.seq > last.seq) return null;
    if (from.seq === last.seq) {
      return epochEqual(from.epoch, last.epoch) ? { installed, entries: [], more: false } : null;
    }
    try {
      return logTail(this.#handles.reader, this.#record, from, bytesMax);
    } catch (error) {
      throw this.#readFailed("Cannot read the catalog's log", error);
    }
  }

  /** @returns the bytes of the log after an operation; of operations that an earlier release logged, none */
  bytesAfter(from: LogPosition): number {
    this.#assertUsable();
    return logBytesAfter(this.#handles.reader, from.seq, this.#record.last.seq);
  }

  async snapshot(): Promise<CatalogSnapshot> {
    this.#assertUsable();
    try {
      return await this.#snapshots.take();
    } catch (error) {
      throw this.#readFailed('Cannot copy the catalog', error);
    }
  }

  /** Another replica has found the snapshot damaged: checks it here, which reads all of it. */
  async checkSnapshot(id: number): Promise<void> {
    this.#assertUsable();
    const damage = await this.#snapshots.check(id);
    if (damage !== null) this.damage.notice(damage);
  }

  async readSnapshot(id: number, offset: number, length: number): Promise<Uint8Array> {
    return this.#snapshots.read(id, offset, length);
  }

  comparePages({ id, firstRange, hashes }: PageComparison): Promise<readonly (Uint8Array | null)[]> {
    return this.#snapshots.compare(id, firstRange, hashes);
  }

  readPages(id: number, pages: readonly number[]): Promise<Uint8Array> {
    return this.#snapshots.readPages(id, pages);
  }

  async closeSnapshot(id: number): Promise<void> {
    await this.#snapshots.close(id);
  }

  // Receiving a state ----------------------------------------------------------------------------

  /** Checks a piece of another replica's log; nothing is stored. @throws MalformedError if it does not continue here */
  stageTail({ installed, entries, more }: CatalogTail): StagedCatalog {
    let { seq, epoch } = this.#record.last;
    for (const entry of entries) {
      seq += 1;
      if (entry.seq !== seq) throw new MalformedError(`The catalog's log has a gap before ${entry.seq}`);
      epoch = entry.epoch;
    }
    const view = entries.findLast((entry) => entry.view !== null)?.view ?? this.#record.view;
    // Up to here, the base of the last operation's epoch is complete; that of the installed one may not be.
    const position = { epoch: more ? epoch : installed, seq };
    return { kind: 'tail', position, view, entries, isPart: more };
  }

  async stageSnapshot(chunks: AsyncIterable<Uint8Array>): Promise<StagedCatalog> {
    return this.#snapshots.stage(chunks);
  }

  /** Puts another replica's snapshot together from the pages here that are equal, and those of the source. */
  async stagePages(
    source: PageSource,
  ): Promise<{ readonly staged: StagedCatalog; readonly counts: TransferCounts }> {
    while (this.#exclusiveWork !== null) await this.#exclusiveWork;
    // While the source took its snapshot, this replica may have become primary.
    if (this.#open !== null)
      throw new ServiceError('precondition-failed', 'A primary fetches no copy of the catalog');
    this.#assertMayChange();
    // Pages that are only in SQLite's log would be fetched.
    if (!this.damage.isKnown) {
      this.#exclusiveWork = this.#copyBack().finally(() => {
        this.#exclusiveWork = null;
      });
      await this.#exclusiveWork;
    }
    const { databaseFd } = this.#handles;
    return this.#snapshots.stagePages(source, (buffer, position) =>
      this.#readPage(databaseFd, buffer, position),
    );
  }

  /** Through the descriptor that stays open: closing another one would drop SQLite's locks. */
  async #readPage(databaseFd: number, buffer: Uint8Array, position: number): Promise<number> {
    this.#assertUsable();
    if (databaseFd !== this.#handles.databaseFd)
      throw new ServiceError('precondition-failed', 'The catalog was replaced meanwhile');
    const reading = diskFileOps.read(databaseFd, buffer, position);
    this.#pageReads.add(reading);
    try {
      return await reading;
    } finally {
      this.#pageReads.delete(reading);
    }
  }

  /** Closes the descriptors of a database that SQLite has closed, once nothing reads through them. */
  async #closeDescriptors({ logFd, databaseFd }: Handles): Promise<void> {
    await Promise.allSettled(this.#pageReads);
    await diskFileOps.close(logFd);
    await diskFileOps.close(databaseFd);
  }

  async unstage(staged: StagedCatalog): Promise<void> {
    if (staged.kind === 'snapshot') await removeDatabase(staged.file);
  }

  async close(): Promise<void> {
    if (this.#exclusiveWork !== null) await this.#exclusiveWork;
    this.rollback();
    await this.#snapshots.closeAll();
    this.#snapshots.endCopies();
    const healthy = this.#failed === null;
    if (healthy) await this.flush();
    this.#failed ??= new ServiceError('storage', 'The catalog is closed');
    if (healthy) {
      this.#copyBackNow();
      this.#mark?.setClosed();
    }
    this.#closeHandles();
    if (!healthy) this.#mark?.closed();
    await this.#closeDescriptors(this.#handles);
  }

  #asOpenDatabase(): OpenDatabase {
    return { copyBack: () => this.#copyBackNow(), close: () => this.#closeHandles() };
  }

  #copyBackNow(): void {
    this.#snapshots.endCopies();
    const { writer } = this.#handles;
    if (writer.inTransaction) writer.exec('ROLLBACK');
    writer.pragma('synchronous = FULL');
    writer.pragma('wal_checkpoint(TRUNCATE)');
  }

  #closeHandles(): void {
    closeConnections(this.#handles);
  }

  /** @throws if a change must not begin now. The caller begins it in the same tick, before another change does. */
  #assertMayChange(): void {
    this.#assertUsable();
    assert(this.#exclusiveWork === null, 'One thing at a time changes the catalog');
    assert(this.#open === null, 'The primary has rolled back before anything else changes the catalog');
  }

  #assertUsable(): void {
    if (this.#failed !== null) throw this.#failed;
  }

  #assertNext(epoch: Epoch, seq: number): void {
    assert(seq === this.#record.last.seq + 1, 'Operations are applied without gaps');
    assert(epochEqual(epoch, this.#record.installed), 'Operations belong to the installed epoch');
  }

  #begin(): void {
    statement(this.#handles.writer, 'BEGIN IMMEDIATE').run();
  }

  #commit(action: string, record: CatalogRecord, work?: (writer: Database.Database) => void): void {
    const { writer } = this.#handles;
    try {
      this.#begin();
      work?.(writer);
      writeRecord(writer, record);
      statement(writer, 'COMMIT').run();
      this.#record = record;
    } catch (error) {
      throw this.#undoFailed(`Cannot ${action}`, error, work === undefined);
    }
    this.#checkpointIfDue();
  }

  /** Called after each commit: once SQLite's log is long, syncs it, and next copies it back into the database. */
  #checkpointIfDue(): void {
    if (this.#exclusiveWork === null && this.#freezeIfWanted()) return;
    const next = this.#checkpoint.afterCommit(this.#handles.logFd, this.#exclusiveWork === null);
    if (next === 'nothing') return;
    if (next === 'flush') {
      this.flush().catch(() => undefined);
      return;
    }
    this.#exclusiveWork = this.#copyBack().finally(() => {
      this.#exclusiveWork = null;
    });
  }

  /** After the installation of a piece of another replica's log, which may have changed many pages. */
  async #copyBackIfLong(): Promise<void> {
    if (this.#checkpoint.isDue(this.#handles.logFd)) await this.#copyBack();
  }

  /** @returns whether all of the log is in the database */
  async #copyBack(): Promise<boolean> {
    try {
      const isWhole = await this.#checkpoint.copyBack(this.#handles);
      const { bavail, bsize } = await fs.promises.statfs(this.#folder);
      this.#logBounds = boundsWithin(this.#wantedLogBounds, bavail * bsize);
      return isWhole;
    } catch (error) {
      // On a full disk the log stays as it is, and grows until commits are refused as well.
      if (errorCode(error) !== 'SQLITE_FULL') this.#fail(storageError('Cannot copy the log back', error));
      return false;
    }
  }

  /**
   * Keeps `catalog.db` as it is, for a copy, while commits continue: once all of the log is copied back, SQLite copies
   * back no more of it while a reader uses the database alone.
   * @returns null if the log cannot be copied back as a whole soon
   */
  async #freeze(): Promise<FrozenDatabase | null> {
    const wanted = Promise.withResolvers<FrozenDatabase | null>();
    this.#wantedFreezes.add(wanted);
    // A primary for which `ready` has resolved begins its batch first.
    await this.#world.nextTick();
    if (this.#exclusiveWork === null && this.#open === null) this.#freezeIfWanted();
    // An open batch may wait for the replica that wants the copy.
    const timer = this.#world.after(FREEZE_WAIT_MS, () => {
      if (this.#wantedFreezes.delete(wanted)) wanted.resolve(null);
    });
    const frozen = await wanted.promise.finally(() => timer.cancel());
    this.#assertUsable();
    return frozen;
  }

  /** Called when no batch is open, and none is about to begin. @returns whether commits have to wait */
  #freezeIfWanted(): boolean {
    const [wanted] = this.#wantedFreezes;
    if (wanted === undefined || this.#failed !== null) return false;
    this.#wantedFreezes.delete(wanted);
    const freezing = this.#copyBack().then((isWhole) => (isWhole ? this.#openFrozen() : null));
    this.#exclusiveWork = freezing.then(wanted.resolve, wanted.reject).finally(() => {
      this.#exclusiveWork = null;
    });
    return true;
  }

  #openFrozen(): FrozenDatabase {
    const { databaseFd } = this.#handles;
    const { source, record, bytes } = this.#snapshots.openSource();
    return {
      record,
      bytes,
      read: async (buffer, position) => {
        const count = await this.#readPage(databaseFd, buffer, position);
        // Without this reader the database may have changed meanwhile.
        if (!source.open) throw new ServiceError('precondition-failed', 'The copy was aborted');
        return count;
      },
      end: () => this.#snapshots.closeSource(source),
    };
  }

  #readFailed(action: string, cause: unknown): Error {
    this.damage.noticeIn(cause);
    return storageError(action, cause);
  }

  /**
   * Undoes a failed transaction. After `SQLITE_FULL` the catalog continues in its earlier state; after a damaged page,
   * too, until another replica's state replaces it. After any other error of SQLite its contents are unknown, and it
   * fails until a restart.
   * @param isOnlyRecord if a damaged page prevents even that, no other state can be installed: the catalog fails, too
   */
  #undoFailed(action: string, cause: unknown, isOnlyRecord = false): Error {
    const error = storageError(action, cause);
    const code = errorCode(cause);
    const isReplaceable = !isOnlyRecord && this.damage.noticeIn(cause);
    if (code.startsWith('SQLITE_') && code !== 'SQLITE_FULL' && !isReplaceable) return this.#fail(error);
    try {
      this.#undo();
    } catch (undoing) {
      return this.#fail(storageError('Cannot undo a batch', undoing));
    }
    return error;
  }

  #undo(): void {
    const { writer } = this.#handles;
    // SQLite rolls some failures back by itself.
    if (writer.inTransaction) statement(writer, 'ROLLBACK').run();
  }

  async #installEntries(record: CatalogRecord, entries: readonly LogEntry[]): Promise<void> {
    const installing = this.#executeEntries(record, entries).then(() => this.#copyBackIfLong());
    this.#exclusiveWork = installing.catch(() => {});
    try {
      await installing;
    } finally {
      this.#exclusiveWork = null;
    }
    await this.flush();
    await this.#snapshots.dropPartial();
  }

  async #executeEntries(record: CatalogRecord, entries: readonly LogEntry[]): Promise<void> {
    const { writer } = this.#handles;
    const { seq } = record.last;
    let next = this.#record.last.seq + 1;
    try {
      this.#begin();
      for (const entry of entries) {
        assert(entry.seq === next, 'A tail continues the own state without gaps');
        next += 1;
        startEpochInodes(writer, entry.epoch.counter);
        const batch = decodeBatch(entry.body);
        executeBatch(writer, entry.seq, batch);
        appendToLog(writer, this.#logBounds, entry, batchAtMs(batch));
        // A piece of the log takes half a second; the server's heartbeats continue meanwhile.
        await this.#world.nextTick();
      }
      assert(next === seq + 1, 'A tail ends at the given position');
      writeRecord(writer, record);
      writer.exec('COMMIT');
      this.#record = record;
      this.changes.append(seq, Tables.of(writer).takeChanges());
    } catch (error) {
      throw this.#undoFailed(`Cannot install the catalog's log up to ${seq}`, error, entries.length === 0);
    }
  }

  /**
   * Replaces the local database by the staged one, in one tick, so that no promise is made meanwhile that the staged
   * record lacks. SQLite would replay the old database's log into the new one: so it is first removed, synced, and only
   * then does the rename exchange them. A crash before the rename leaves the whole old state, one after it the new one.
   * @returns the handles of the old database; the caller closes the descriptors
   */
  #installSnapshot(epoch: Epoch, seq: number, file: string): Handles {
    try {
      const incoming = new Database(file, { fileMustExist: true, timeout: 0 });
      try {
        incoming.pragma('synchronous = FULL');
        const theirs = readRecord(incoming);
        assert(theirs.last.seq === seq, 'A snapshot is at the given position');
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
      this.#snapshots.endCopies();
      reader.close();
      writer.pragma('synchronous = FULL');
      writer.pragma('wal_checkpoint(TRUNCATE)');
      this.#mark?.setClosed();
      const mode = writer.pragma('journal_mode = DELETE', { simple: true });
      assert(mode === 'delete', 'A database with one connection can remove its log');
      writer.close();
      assert(
        !fs.existsSync(`${this.#path}-wal`),
        'The old log is removed before the new database replaces the old one',
      );
      flushDirectory(this.#folder);
      fs.renameSync(file, this.#path);
      flushDirectory(this.#folder);
      this.#handles = openHandles(this.#path, ensureLogTables);
      flushDirectory(this.#folder);
      this.#mark?.setOpen(this.#asOpenDatabase());
      this.#record = readRecord(this.#handles.reader);
      this.changes.reset(this.#record.last.seq);
      this.damage.replaced();
    } catch (error) {
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

  /** Called if the contents are unknown: the store refuses all work until a restart. Reports the first error. */
  #fail(error: Error): Error {
    if (this.#failed !== null) return error;
    this.#failed = error;
    this.#onFailure(error.message);
    return error;
  }
}
