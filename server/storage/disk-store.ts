import fs from 'node:fs';
import fsPromises from 'node:fs/promises';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { RecentMap } from '../../base/recent-map.ts';
import { crc32 } from '../../platform/crc32.ts';
import { type Epoch, POSITION_ZERO } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { CONTAINERS_FOLDER, type FileLocations, LOCATED_OBJECTS_MAX } from '../../wire/locations.ts';
import { Containers } from './container.ts';
import { fileStateNew, installedStartOfNew, mismatchingBytes, sameObject, trustOf } from './contents.ts';
import type { DataFolder } from './data-folder.ts';
import type { DatabaseMark } from './database-mark.ts';
import { DirectWrites, type DirectWritesOptions } from './direct-writes.ts';
import { FailureState } from './failure-state.ts';
import { isDamage, isNoSpace, storageError } from './failures.ts';
import { diskFileOps, type FileOps } from './file-ops.ts';
import { Gate } from './gate.ts';
import { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import type { ObjectDigests } from './object-digests.ts';
import type { ObjectEntry } from './object-entry.ts';
import { extentsOf, ObjectReader } from './object-reader.ts';
import { entryOf } from './object-rows.ts';
import { type RecoveryReport, recoverFromPowerLoss } from './power-loss.ts';
import { RecordChanges } from './record-changes.ts';
import { ReplicaFile, type StoreParts } from './replica-file.ts';
import type { ItemRequest } from './replica-queue.ts';
import { DiskReserve } from './reserve.ts';
import { commitInSlices, ROWS_PER_SLICE, Slices } from './slices.ts';
import type {
  FetchedObject,
  FileAttributes,
  FileDifference,
  FileStore,
  FirstState,
  NewReplica,
  NewTrust,
  StoreSpace,
} from './store.ts';
import { UnfinishedPreserves } from './unfinished-preserves.ts';

const FILES_LOADED_MAX = 4096;
const EVICTION_CANDIDATES_MAX = 16;
const CLOSING_FLUSHES_MAX = 32;
/** A read of more objects depends on the last change of the whole file. */
const DEPENDENCY_OBJECTS_MAX = 4_096;

export interface DiskStoreOptions {
  readonly fileOps?: FileOps;
  readonly failed?: (reason: string) => void;
  readonly directWrites?: DirectWritesOptions;
  /** Absent if damaged objects are not fetched from other servers. */
  readonly objectRepair?: ObjectRepair;
  /** Rows of the index that long work changes in one tick of the event loop. */
  readonly rowsPerSlice?: number;
}

/** Fetches a damaged object's bytes, which the store checks. @returns null if no reachable server has this version */
export type ObjectRepair = (file: FileId, entry: ObjectEntry) => Promise<Uint8Array | null>;

/**
 * Replicas in a data folder: an index in SQLite, and one container file per replica. Overwriting an object writes it to
 * a free slot (decision 0001). FORMAT.md describes the bytes and why a crash at any moment leaves a consistent state.
 */
export class DiskStore implements FileStore {
  readonly #folder: DataFolder;
  readonly #index: IndexDatabase;
  readonly #containers: Containers;
  readonly #direct: DirectWrites;
  readonly #parts: StoreParts;
  readonly #reader: ObjectReader;
  readonly #files = new RecentMap<FileId, ReplicaFile>();
  readonly #uncommitted = new Set<FileId>();
  /** Replicas without a state that a full disk has refused to delete. */
  readonly #undiscarded = new Map<FileId, ReplicaFile>();
  readonly #discarding = new Map<FileId, Promise<void>>();
  /** Removals in progress: until they commit, the index lists their replicas. */
  #removals = 0;
  readonly #unfinishedPreserves: UnfinishedPreserves;
  readonly recordChanges = new RecordChanges();
  /** Space that contents must not take. */
  readonly reserve: DiskReserve;
  readonly #failure: FailureState;
  readonly #mark: DatabaseMark;
  readonly #slices: Slices;
  #recovery: RecoveryReport = { filesChecked: 0, rolledBack: [] };
  readonly #mender: ObjectRepair;
  #closed = false;
  /** Release what is pinned for processes that read this disk directly. */
  readonly #releases = new Set<() => void>();
  #allIdle: (() => void) | null = null;

  private constructor(
    folder: DataFolder,
    index: IndexDatabase,
    containers: Containers,
    direct: DirectWrites,
    failure: FailureState,
    mark: DatabaseMark,
    mender: ObjectRepair,
    slices: Slices,
  ) {
    this.#folder = folder;
    this.#slices = slices;
    this.#mender = mender;
    this.reserve = new DiskReserve(
      () => spaceOf(fs.statfsSync(folder.path)),
      () => folder.world.nowMs(),
    );
    this.#index = index;
    this.#containers = containers;
    this.#direct = direct;
    this.#failure = failure;
    this.#mark = mark;
    this.#unfinishedPreserves = new UnfinishedPreserves(index, (lender, borrower) =>
      this.#endLoans(lender, borrower),
    );
    this.#parts = {
      world: folder.world,
      index,
      containers,
      slices,
      startCounter: folder.startCounter,
      fail: (cause) => failure.set(cause),
      check: () => failure.check(),
      assertSpace: (bytes) => this.reserve.assertFor(bytes),
      mend: (file, row, cause) => this.#mend(file, row, cause),
      isHere: (file) => this.#files.has(file) || index.file(file) !== null,
      unfinishedPreserves: this.#unfinishedPreserves,
      endLoans: (lender, borrower) => this.#endLoans(lender, borrower),
      onIdle: (file) => this.#onIdle(file),
      recordChanges: this.recordChanges,
    };
    this.#reader = new ObjectReader(containers, this.#parts.mend);
  }

  /** Opens the store of a folder; after a loss of power, it first checks all contents that may be unsynced. */
  static async open(folder: DataFolder, options: DiskStoreOptions = {}): Promise<DiskStore> {
    const ops = options.fileOps ?? diskFileOps;
    const nowMs = (): number => folder.world.nowMs();
    const failure = new FailureState((reason) => {
      folder.markFailed();
      options.failed?.(reason);
    });
    const onFailure = (cause: unknown): void => failure.set(cause);
    const mark = folder.mark('index.db');
    mark.check();
    const index = await IndexDatabase.open(
      folder.world,
      folder.path,
      folder.file('index.db'),
      ops,
      onFailure,
      folder.readsWhole,
    ).catch((error: unknown) => {
      // Closed again, as on a full disk: SQLite has copied its log back and removed it.
      mark.closed();
      throw error;
    });
    mark.setOpen({ copyBack: () => index.copyBack(), close: () => index.closeNow() });
    const direct = new DirectWrites(nowMs, options.directWrites);
    const containers = new Containers(nowMs, folder.file(CONTAINERS_FOLDER), ops, direct, onFailure);
    const store = new DiskStore(
      folder,
      index,
      containers,
      direct,
      failure,
      mark,
      options.objectRepair ?? noRepair,
      new Slices(options.rowsPerSlice ?? ROWS_PER_SLICE),
    );
    // Files that were being removed, or preserved, but not completely.
    for (const file of index.removedFiles())
      if (index.file(file) === null)
        await commitInSlices(index, () => index.deleteRows(file, ROWS_PER_SLICE));
    const removed = index.removedFiles().filter((file) => index.borrowers(file).length === 0);
    for (const file of removed) await containers.unlink(file);
    if (removed.length > 0)
      await index.commit(() => removed.forEach((file) => void index.forgetRemoved(file)));
    if (folder.lostPower) store.#recovery = await recoverFromPowerLoss(index, containers);
    // The replica continues its removal.
    for (const file of index.removals.files()) store.#find(file);
    return store;
  }

  /** Why the store has failed until a restart; null while it works. */
  get failure(): string | null {
    return this.#failure.reason;
  }

  get directBytes(): number {
    return this.#direct.bytes;
  }

  /** Files of which slices still delete objects that an operation has removed. */
  get removalsPending(): number {
    return this.#index.removals.files().length;
  }

  get recovery(): RecoveryReport {
    return this.#recovery;
  }

  /** Does not load the replica: background work reads the records of all. */
  record(file: FileId): ReplicaRecord | null {
    if (this.#files.has(file)) return this.#find(file)?.state.record ?? null;
    this.#check();
    return this.#index.file(file)?.record ?? null;
  }

  trust(file: FileId): Trust {
    return trustOf(this.#findOrThrow(file).state.installedStart, this.#folder.powerLossStart);
  }

  list(after: FileId, countMax: number): FileId[] {
    this.#check();
    const uncommitted = [...this.#uncommitted].filter((file) => file > after);
    const files = new Set([...this.#index.list(after, countMax + this.#removals), ...uncommitted]);
    return [...files]
      .filter((file) => this.#files.get(file)?.removed !== true)
      .sort((a, b) => a - b)
      .slice(0, countMax);
  }

  filesWithViewAfter(number: number): FileId[] {
    this.#check();
    return this.#index.filesWithViewAfter(number);
  }

  /** Creates an empty replica, in the background, unless there is one. @throws `busy` while an old one is removed */
  create(file: FileId, view: View, objectBytes: number, trust: NewTrust = 'intact'): void {
    this.#check();
    if (this.#files.get(file)?.removed === true) {
      void this.#discardAgain(file);
      throw new ServiceError('busy', `Cannot create file ${file}: an earlier replica is being removed`);
    }
    if (this.#find(file) !== null) return;
    if (this.#unfinishedPreserves.has(file)) {
      this.#unfinishedPreserves.undoIfFailedInBackground(file, (cause) => this.#failure.set(cause));
      throw new ServiceError('busy', `Cannot create file ${file}: it is being created with contents`);
    }
    const replica = new ReplicaFile(
      file,
      fileStateNew(view, objectBytes, installedStartOfNew(trust, this.#folder.startCounter)),
      this.#parts,
      true,
    );
    this.#uncommitted.add(file);
    this.#addLoaded(replica);
    replica.submitOwn({ kind: 'create' });
  }

  /** Stores new files' replicas, all operations applied. @returns for each null, or the error: then it is not stored */
  async createWithContents(
    replicas: readonly NewReplica[],
    epoch: Epoch,
    view: View,
    objectBytes: number,
  ): Promise<(Error | null)[]> {
    this.#check();
    // All contents are written concurrently; their index rows share one transaction.
    const gate = new Gate(replicas.length);
    return Promise.all(
      replicas.map(({ file, operations }) => {
        assert(this.#find(file) === null, 'A file that is created with contents has no replica here');
        const replica = new ReplicaFile(
          file,
          fileStateNew(view, objectBytes, this.#folder.startCounter),
          this.#parts,
          true,
        );
        this.#uncommitted.add(file);
        this.#addLoaded(replica);
        return replica.submit({ kind: 'create-with-contents', epoch, operations, gate }).then(
          () => null,
          async (error: unknown) => {
            gate.leave();
            await this.#containers.unlink(file).catch((cause: unknown) => this.#failure.set(cause));
            this.#uncommitted.delete(file);
            this.#files.delete(file);
            this.recordChanges.report(file, false);
            return error as Error;
          },
        );
      }),
    );
  }

  async createWithState(
    file: FileId,
    { view, epoch, attributes }: FirstState,
    objects: AsyncIterable<FetchedObject>,
  ): Promise<void> {
    await this.#discardAgain(file);
    this.#check();
    assert(this.#find(file) === null, 'A file that is created with a state has no replica here');
    const { objectBytes } = attributes;
    const empty = fileStateNew(view, objectBytes, this.#folder.startCounter);
    const promised = { ...empty, record: { ...empty.record, promised: epoch } };
    const replica = new ReplicaFile(file, promised, this.#parts, true);
    this.#uncommitted.add(file);
    this.#addLoaded(replica);
    try {
      // As of a removed replica: a start finds and deletes what is there without a state, also after a loss of power.
      await this.#deleteRows(file);
      await this.flushIndex();
      const changes = new Map<number, ObjectEntry>();
      for await (const object of objects) {
        this.#check();
        this.#parts.assertSpace(object.bytes.length);
        await replica.submit({ kind: 'stage', object });
        changes.set(object.entry.index, object.entry);
      }
      const record = { ...promised.record, installed: epoch, seq: 1 };
      const base = { record, attributes, from: POSITION_ZERO, changes };
      await replica.submit({ kind: 'install', epoch, seq: 1, sessions: record.sessions, base });
    } catch (error) {
      if (!this.#closed && !this.#failure.failed) await this.#discard(replica);
      throw storageError(`Cannot create file ${file}`, error);
    }
  }

  #discard(replica: ReplicaFile): Promise<void> {
    const discarding = this.#deleteUncommitted(replica).finally(() => this.#discarding.delete(replica.id));
    this.#discarding.set(replica.id, discarding);
    return discarding;
  }

  /** Deletes what a full disk has refused to delete before, if there is any. Never rejects. */
  #discardAgain(file: FileId): Promise<void> {
    const replica = this.#undiscarded.get(file);
    if (replica !== undefined && this.#undiscarded.delete(file)) return this.#discard(replica);
    return this.#discarding.get(file) ?? Promise.resolve();
  }

  /** Deletes a replica of which no state was committed. */
  async #deleteUncommitted(replica: ReplicaFile): Promise<void> {
    const file = replica.id;
    replica.removed = true;
    try {
      await this.#deleteRows(file);
      await this.#containers.unlink(file);
      await this.#index.commit(() => this.#index.forgetRemoved(file));
    } catch (cause) {
      // On a full disk, as `remove`: until a retry or the next start, no empty replica of its number is created.
      if (isNoSpace(cause)) this.#undiscarded.set(file, replica);
      else this.#failure.set(cause);
      return;
    }
    this.#uncommitted.delete(file);
    this.#files.delete(file);
    this.recordChanges.report(file, false);
  }

  /** Deletes all rows of a file that is not here, and records that, until `forgetRemoved`. */
  #deleteRows(file: FileId): Promise<void> {
    const { slices } = this.#parts;
    return commitInSlices(this.#index, () => this.#index.deleteFile(file, slices.rowsMax), slices);
  }

  promise(file: FileId, epoch: Epoch): Promise<void> {
    return this.#submit(file, { kind: 'promise', epoch });
  }

  async apply(
    file: FileId,
    epoch: Epoch,
    seq: number,
    operation: FileOperation,
    sessions: Uint8Array,
  ): Promise<void> {
    return this.#submit(file, { kind: 'apply', epoch, seq, operation, sessions });
  }

  /** Syncs the index. Called when files are about to get other primaries, so that the promises for them are quick. */
  async flushIndex(): Promise<void> {
    try {
      await this.#index.flush();
    } catch (cause) {
      this.#failure.set(cause);
      throw storageError('Cannot sync the index', cause);
    }
  }

  flush(file: FileId): Promise<void> {
    return this.#submit(file, { kind: 'flush' });
  }

  attributes(file: FileId): FileAttributes {
    return this.#findOrThrow(file).state.attributes;
  }

  holeBytes(file: FileId): number | null {
    return this.#findOrThrow(file).holeBytes;
  }

  whenHolesCounted(file: FileId): Promise<void> {
    return this.#findOrThrow(file).whenHolesCounted();
  }

  readDependsOn(file: FileId, offset: number, length: number): number {
    const { state, objectBytes } = this.#findOrThrow(file);
    const { counter } = state.record.installed;
    const { versionEpoch, versionSeq } = state.attributes;
    if (length > DEPENDENCY_OBJECTS_MAX * objectBytes) return versionEpoch === counter ? versionSeq : 0;
    const ofSize = state.sizeEpoch === counter ? state.sizeSeq : 0;
    const end = Math.min(offset + length, state.attributes.sizeBytes);
    if (offset >= end) return ofSize;
    const first = Math.floor(offset / objectBytes);
    const last = Math.floor((end - 1) / objectBytes);
    return Math.max(ofSize, this.#index.newestSeq(file, first, last, counter));
  }

  async read(file: FileId, offset: number, length: number): Promise<Uint8Array> {
    const replica = this.#findOrThrow(file);
    const { objectBytes } = replica;
    const end = Math.min(offset + length, replica.state.attributes.sizeBytes);
    if (offset >= end) return new Uint8Array(0);
    const first = Math.floor(offset / objectBytes);
    const last = Math.floor((end - 1) / objectBytes);
    const rows = this.#index.objects(file, first, last);
    replica.pin(rows);
    try {
      return await this.#reader.range(replica, rows, offset, end);
    } catch (cause) {
      throw storageError(`Cannot read file ${file}`, cause);
    } finally {
      replica.unpin(rows);
    }
  }

  locate(file: FileId, offset: number, length: number, pinnedMs: number): FileLocations {
    const replica = this.#findOrThrow(file);
    const { objectBytes } = replica;
    const { sizeBytes } = replica.state.attributes;
    const first = Math.floor(offset / objectBytes);
    const lastEnd = (first + LOCATED_OBJECTS_MAX) * objectBytes;
    const end = Math.min(offset + length, lastEnd, sizeBytes);
    if (end <= offset) return { sizeBytes, end: Math.min(offset, sizeBytes), extents: [] };
    const rows = this.#index.objects(file, first, Math.ceil(end / objectBytes) - 1);
    this.#pinFor(replica, rows, pinnedMs);
    return { sizeBytes, end, extents: extentsOf(replica, rows) };
  }

  entries(file: FileId, first: number, last: number, countMax: number): ObjectEntry[] {
    this.#findOrThrow(file);
    return this.#index.objectsUpTo(file, first, last, countMax).map(entryOf);
  }

  digests(file: FileId): Promise<ObjectDigests> {
    return this.#findOrThrow(file).digests();
  }

  /** Reads an object, which repairs a damaged one. @returns null unless the replica has exactly this version of it */
  async readObject(
    file: FileId,
    index: number,
    versionEpoch: number,
    versionSeq: number,
  ): Promise<Uint8Array | null> {
    const replica = this.#findOrThrow(file);
    const row = this.#index.object(file, index);
    if (row === null || row.versionEpoch !== versionEpoch || row.versionSeq !== versionSeq) return null;
    replica.pin([row]);
    try {
      return await this.#reader.object(replica, row);
    } catch (cause) {
      throw storageError(`Cannot read object ${index} of file ${file}`, cause);
    } finally {
      replica.unpin([row]);
    }
  }

  /** Checks an object on this disk only. @returns its bytes, `damaged`, or `absent` if this version is not here */
  async inspect(file: FileId, entry: ObjectEntry): Promise<Uint8Array | 'damaged' | 'absent'> {
    const replica = this.#find(file);
    const row = replica === null ? null : this.#index.object(file, entry.index);
    if (replica === null || row === null || !sameObject(row, entry)) return 'absent';
    replica.pin([row]);
    try {
      return (await this.#reader.objectHere(replica, row)) ?? 'damaged';
    } catch (cause) {
      if (isDamage(cause)) return 'damaged';
      throw storageError(`Cannot read object ${entry.index} of file ${file}`, cause);
    } finally {
      replica.unpin([row]);
    }
  }

  repair(file: FileId, object: FetchedObject): Promise<void> {
    return this.#submit(file, { kind: 'repair', object });
  }

  async stage(file: FileId, object: FetchedObject): Promise<void> {
    this.reserve.assertFor(object.bytes.length);
    return this.#submit(file, { kind: 'stage', object });
  }

  stageLost(file: FileId, entry: ObjectEntry): Promise<void> {
    return this.#submit(file, {
      kind: 'stage',
      object: { entry, bytes: mismatchingBytes(entry) },
      isLost: true,
    });
  }

  staged(file: FileId, index: number): ObjectEntry | null {
    const row = this.#findOrThrow(file).staged(index);
    return row === null ? null : entryOf(row);
  }

  unstage(file: FileId, keeps: (entry: ObjectEntry) => boolean = () => false): void {
    this.#findOrThrow(file).submitOwn({ kind: 'unstage', keeps });
  }

  install(
    file: FileId,
    epoch: Epoch,
    seq: number,
    sessions: Uint8Array,
    base: FileDifference | null,
  ): Promise<void> {
    return this.#submit(file, { kind: 'install', epoch, seq, sessions, base });
  }

  async remove(file: FileId): Promise<void> {
    const loaded = this.#files.get(file);
    const replica = loaded?.isRemovalInterrupted === true ? loaded : this.#find(file);
    if (replica === null) return;
    this.#removals++;
    try {
      await replica.submit({ kind: 'remove' });
    } finally {
      this.#removals--;
    }
    this.#uncommitted.delete(file);
    this.#files.delete(file);
    this.recordChanges.report(file, false);
  }

  async space(): Promise<StoreSpace> {
    this.#check();
    try {
      return spaceOf(await fsPromises.statfs(this.#folder.path));
    } catch (cause) {
      throw storageError(`Cannot read the free space of ${this.#folder.path}`, cause);
    }
  }

  /** Syncs all contents, and closes the store. Its caller closes the folder after this. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#slices.close();
    for (const release of [...this.#releases]) release();
    await this.#whenIdle();
    if (!this.#failure.failed) await this.#makeAllDurable();
    await this.#containers.close();
    const healthy = !this.#failure.failed;
    await this.#index.close(healthy, this.#mark);
    if (healthy && !this.#failure.failed) this.#folder.markClean();
  }

  #pinFor(replica: ReplicaFile, rows: readonly ObjectRow[], pinnedMs: number): void {
    if (rows.length === 0) return;
    replica.pin(rows);
    const release = (): void => {
      timer.cancel();
      this.#releases.delete(release);
      replica.unpin(rows);
    };
    const timer = this.#folder.world.after(pinnedMs, release);
    timer.unref();
    this.#releases.add(release);
  }

  #check(): void {
    if (this.#closed) throw new ServiceError('storage', 'Cannot use the store: it is closed');
    this.#failure.check();
  }

  /** Returns the file's replica, loaded from the index if necessary; null if there is none or it is being removed. */
  #find(file: FileId): ReplicaFile | null {
    this.#check();
    const loaded = this.#files.get(file);
    if (loaded !== undefined) {
      if (loaded.removed) return null;
      this.#files.set(file, loaded);
      return loaded;
    }
    const state = this.#index.file(file);
    if (state === null) return null;
    const replica = new ReplicaFile(file, state, this.#parts, false);
    this.#addLoaded(replica);
    return replica;
  }

  #findOrThrow(file: FileId): ReplicaFile {
    const replica = this.#find(file);
    if (replica === null) throw new ServiceError('not-found', `This server has no replica of file ${file}`);
    return replica;
  }

  async #submit(file: FileId, request: ItemRequest): Promise<void> {
    await this.#findOrThrow(file).submit(request);
  }

  #addLoaded(replica: ReplicaFile): void {
    this.#files.set(replica.id, replica);
    if (this.#files.size <= FILES_LOADED_MAX) return;
    for (const [file, candidate] of this.#files.entries(EVICTION_CANDIDATES_MAX)) {
      if (candidate.evictable && candidate !== replica) {
        this.#files.delete(file);
        return;
      }
    }
  }

  #onIdle(replica: ReplicaFile): void {
    if (!replica.isUncommitted) this.#uncommitted.delete(replica.id);
    if (this.#allIdle !== null && this.#isIdle()) this.#allIdle();
  }

  #isIdle(): boolean {
    return this.#files.entries().every(([, replica]) => replica.idle);
  }

  async #whenIdle(): Promise<void> {
    if (this.#isIdle()) return;
    await new Promise<void>((resolve) => {
      this.#allIdle = resolve;
    });
    this.#allIdle = null;
  }

  /** Syncs all contents that this process or earlier ones wrote, so that the next start need not check them. */
  async #makeAllDurable(): Promise<void> {
    try {
      const files = this.#index.generations.files();
      for (let at = 0; at < files.length; at += CLOSING_FLUSHES_MAX) {
        const some = files.slice(at, at + CLOSING_FLUSHES_MAX);
        await Promise.all(some.map((file) => this.#containers.flush(file)));
      }
      await this.#index.generations.deleteAll(this.#index, files);
      await this.#index.flush();
    } catch (cause) {
      this.#failure.set(cause);
    }
  }

  /**
   * Called when a borrower's replica was removed. If the lender's was, the last borrower removes its container; while
   * the lender's is being removed, it does that itself, once its rows are deleted.
   */
  async #endLoans(lender: FileId, borrower: FileId): Promise<void> {
    const replica = this.#files.get(lender);
    if (replica !== undefined) {
      if (!replica.removed) replica.endLoans(borrower);
    } else if (this.#index.file(lender) === null && this.#index.borrowers(lender).length === 0) {
      await this.#containers.unlink(lender);
      await this.#index.commit(() => this.#index.forgetRemoved(lender));
    }
  }

  /** @returns a damaged object's bytes, from another server; the object here is repaired in the background */
  async #mend(file: FileId, row: ObjectRow, cause: unknown): Promise<Uint8Array> {
    if (!isDamage(cause)) throw cause;
    const entry = entryOf(row);
    const bytes = await this.#mender(file, entry);
    if (bytes === null || bytes.length !== row.length || crc32(bytes) !== row.crc32) throw cause;
    // The read neither waits for the repair on disk, nor fails if there is no space for it.
    this.repair(file, { entry, bytes }).catch((error: unknown) => {
      if (!(error instanceof ServiceError)) this.#failure.set(error);
    });
    return bytes;
  }
}

const noRepair: ObjectRepair = async () => null;

function spaceOf({ bsize, blocks, bavail }: fs.StatsFs): StoreSpace {
  return { totalBytes: blocks * bsize, freeBytes: bavail * bsize };
}
