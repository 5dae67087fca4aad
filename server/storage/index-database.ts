import fs from 'node:fs';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { FileState } from './contents.ts';
import { damageOf } from './database-check.ts';
import { isCorruption } from './failures.ts';
import type { FileOps } from './file-ops.ts';
import { damagedFolder } from './folder-error.ts';
import { GenerationRows } from './generation-rows.ts';
import { IndexGuard } from './index-guard.ts';
import { type ObjectLengths, type ObjectRow, stateOf } from './index-rows.ts';
import { INDEX_FORMAT, prepareSchema } from './index-schema.ts';
import { type IndexStatements, prepareStatements, putFileRow } from './index-statements.ts';
import { type ClosingMark, type IndexFiles, IndexTransactions } from './index-transactions.ts';
import { LentRows } from './lent-rows.ts';
import { PendingRemovals } from './pending-removals.ts';

/** The index of a store in SQLite: the replicas, and the slot of each object. Its calls block, so they are short. */
export class IndexDatabase {
  readonly generations: GenerationRows;
  readonly lent: LentRows;
  readonly removals: PendingRemovals;
  readonly #statements: IndexStatements;
  readonly #guard: IndexGuard;
  readonly #transactions: IndexTransactions;

  private constructor(world: World, files: IndexFiles, onFailure: (error: unknown) => void) {
    this.#statements = prepareStatements(files.database);
    this.#guard = new IndexGuard(onFailure);
    this.#transactions = new IndexTransactions(world, files, this.#statements, onFailure);
    this.generations = new GenerationRows(this.#statements, this.#guard);
    this.lent = new LentRows(this.#statements);
    this.removals = new PendingRemovals(this.#statements, this.#guard);
  }

  /**
   * Opens the index, or creates it. Its directory entries are synced when this resolves.
   * @param onFailure called with a failure after which the index cannot be trusted
   * @param thorough reads all of it
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
      // With exclusive access, SQLite keeps the log's index in memory instead of a third file.
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
      const index = new IndexDatabase(world, { database, ops, logFd, databaseFd }, onFailure);
      await index.#transactions.checkpoint();
      const damage = thorough ? damageOf(database) : null;
      if (damage !== null) throw damagedFolder(path, damage);
      return index;
    } catch (error) {
      database.close();
      throw isCorruption(error) ? damagedFolder(path, error) : error;
    }
  }

  /** @see IndexTransactions.commit */
  commit(work: () => void): Promise<void> {
    return this.#transactions.commit(work);
  }

  flush(): Promise<void> {
    return this.#transactions.flush();
  }

  close(healthy: boolean, mark: ClosingMark): Promise<void> {
    return this.#transactions.close(healthy, mark);
  }

  copyBack(): void {
    this.#transactions.copyBack();
  }

  closeNow(): void {
    this.#transactions.closeNow();
  }

  file(file: FileId): FileState | null {
    const row = this.#guard.read(() => this.#statements.fileGet.get(file));
    return row === undefined ? null : stateOf(row);
  }

  list(after: number, countMax: number): FileId[] {
    return this.#guard.read(() => this.#statements.fileList.all(after, countMax) as FileId[]);
  }

  object(file: FileId, index: number): ObjectRow | null {
    return this.objectsUpTo(file, index, index, 1)[0] ?? null;
  }

  objects(file: FileId, first: number, last: number): ObjectRow[] {
    return this.objectsUpTo(file, first, last, Number.MAX_SAFE_INTEGER);
  }

  /** The first `countMax` of these objects. */
  objectsUpTo(file: FileId, first: number, last: number, countMax: number): ObjectRow[] {
    const rows: ObjectRow[] = [];
    for (const [from, to] of this.removals.visible(file, first, last)) {
      if (rows.length === countMax) break;
      const some = this.rowsUpTo(file, from, to, countMax - rows.length);
      for (const row of some) rows.push(row);
    }
    return rows;
  }

  /** As `objectsUpTo`, with objects that are removed, but of which the index still has rows. */
  rowsUpTo(file: FileId, first: number, last: number, countMax: number): ObjectRow[] {
    return this.#guard.read(() => this.#statements.objectsUpTo.all(file, first, last, countMax));
  }

  /** Index of the last row up to `last`, also of a removed object; −1 for none. */
  lastRow(file: FileId, last: number): number {
    return this.#guard.read(() => this.#statements.objectLast.get(file, last) ?? -1);
  }

  /** Count and total bytes of the next `countMax` objects after index `after`, and the index of the last of these. */
  lengthsAfter(file: FileId, after: number, countMax: number): ObjectLengths {
    let all: ObjectLengths = { count: 0, bytes: 0, last: -1 };
    for (const [from, to] of this.removals.visible(file, after + 1, Number.MAX_SAFE_INTEGER)) {
      if (all.count === countMax) break;
      const left = countMax - all.count;
      const found = this.#guard.read(() => this.#statements.lengthsUpTo.get(file, from, to, left));
      assert(found !== undefined, 'A sum is a row');
      all = {
        count: all.count + found.count,
        bytes: all.bytes + found.bytes,
        last: Math.max(all.last, found.last),
      };
    }
    return all;
  }

  /** Highest sequence number among objects `first` to `last` that were written in the epoch; 0 if none was. */
  newestSeq(file: FileId, first: number, last: number, epochCounter: number): number {
    const newest = this.removals
      .visible(file, first, last)
      .map(([from, to]) =>
        this.#guard.read(() => this.#statements.objectNewest.get(file, from, to, epochCounter) ?? 0),
      );
    return Math.max(0, ...newest);
  }

  /** Objects written by operations after `seq` of the epoch. */
  objectsSince(file: FileId, epochCounter: number, seq: number): ObjectRow[] {
    const removal = this.removals.get(file);
    return this.#guard
      .read(() => this.#statements.objectsSince.all(file, epochCounter, seq))
      .filter(({ index }) => removal === null || index < removal.first || index > removal.last);
  }

  filesWithViewAfter(number: number): FileId[] {
    return this.#guard.read(() => this.#statements.filesByView.all(number) as FileId[]);
  }

  borrowers(lender: FileId): FileId[] {
    return this.#guard.read(() => this.#statements.borrowers.all(lender) as FileId[]);
  }

  /** Files that were removed, and files whose preservation has begun: remains of them may be on the disk. */
  removedFiles(): FileId[] {
    return this.#guard.read(() => this.#statements.removedList.all() as FileId[]);
  }

  // Changes, within `commit` only -------------------------------------------------------------------------

  putFile(file: FileId, state: FileState): void {
    putFileRow(this.#statements, file, state);
  }

  /** Deletes a replica, and up to `countMax` of its rows. @returns whether rows are left, for `deleteRows` */
  deleteFile(file: FileId, countMax: number): boolean {
    this.#statements.fileDelete.run(file);
    this.removals.delete(file);
    this.#statements.removedPut.run(file);
    return this.deleteRows(file, countMax);
  }

  /** Deletes rows of a file that is not here. @returns whether some are left */
  deleteRows(file: FileId, countMax: number): boolean {
    const { changes } = this.#statements.objectsDeleteNext.run(file, file, countMax);
    return changes === countMax || this.generations.deleteBelow(file, Number.MAX_SAFE_INTEGER, countMax);
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
}
