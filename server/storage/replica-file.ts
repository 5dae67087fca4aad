import { assert, unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { releaseMemory } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { type FileOperation, partsWritten } from '../../wire/file-operation.ts';
import type { Containers } from './container.ts';
import {
  type FileState,
  fileStateApply,
  fileStateInstall,
  fileStatePreserved,
  objectsRemoved,
  operationApplies,
  type Removed,
  removedBy,
  sameObject,
} from './contents.ts';
import { storageError } from './failures.ts';
import { Generations } from './generations.ts';
import { IncrementalDigests } from './incremental-digests.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import { changesOf, type InstallSource, NO_PLAN, planInstall } from './install-plan.ts';
import type { ObjectDigests } from './object-digests.ts';
import { ObjectDrafts } from './object-draft.ts';
import type { ObjectEntry } from './object-entry.ts';
import { fetchedMismatch, type Mend, type RowChange, rowsOf } from './object-rows.ts';
import { ObjectWriter } from './object-writer.ts';
import { RangeRemoval } from './range-removal.ts';
import type { RecordChanges } from './record-changes.ts';
import {
  type ApplyItem,
  type CreationItem,
  type InstallItem,
  type Item,
  type ItemRequest,
  ReplicaQueue,
  type StageItem,
  type Waiter,
} from './replica-queue.ts';
import { ReplicaSlots } from './replica-slots.ts';
import { commitInSlices, type Slices } from './slices.ts';
import type { FetchedObject } from './store.ts';
import { StoredBytes } from './stored-bytes.ts';
import type { UnfinishedPreserves } from './unfinished-preserves.ts';

/** Bounds the work after a loss of power, and the wait for a sync at the end of a long file. */
const UNSYNCED_BYTES_MAX = 64 * 1024 * 1024;
/** Rows of the index that are deleted together with a replica's own; slices delete others. */
const ROWS_REMOVED_AT_ONCE = 16;
/** Staged objects that one tick of the event loop drops or keeps. */
const STAGED_PER_TICK = 4_000;
const NO_SESSIONS = new Uint8Array(0);

type Changes = readonly RowChange[] | 'many';

export interface StoreParts {
  readonly world: World;
  readonly index: IndexDatabase;
  readonly containers: Containers;
  readonly slices: Slices;
  readonly startCounter: number;
  /** The disk failed so that none of its answers can be trusted. */
  fail(cause: unknown): void;
  /** @throws ServiceError `no-space` if contents of this size would take the disk's reserve */
  assertSpace(bytes: number): void;
  check(): void;
  readonly mend: Mend;
  isHere(file: FileId): boolean;
  readonly unfinishedPreserves: UnfinishedPreserves;
  endLoans(lender: FileId, borrower: FileId): Promise<void>;
  onIdle(file: ReplicaFile): void;
  readonly recordChanges: RecordChanges;
}

/**
 * One replica on the disk. Changes go through a queue and happen one batch after the other, so that there is a single
 * order; reads bypass the queue and see the last commit.
 */
export class ReplicaFile {
  readonly id: FileId;
  readonly objectBytes: number;
  readonly #parts: StoreParts;
  /** As of the last commit. */
  state: FileState;
  /** Removed or being removed: the store does not return it any more. */
  removed = false;
  /** Created in memory and not in the index yet. */
  isUncommitted: boolean;
  readonly #queue: ReplicaQueue;
  readonly #slots: ReplicaSlots;
  readonly #writer: ObjectWriter;
  readonly #generations: Generations;
  readonly #digests: IncrementalDigests;
  readonly #storedBytes: StoredBytes;
  readonly #removal: RangeRemoval;
  /** The removed replica still has rows in the index. */
  #areRowsLeft = false;
  /** A `slice` is queued or in progress. */
  #isSlicing = false;
  #staged = new Map<number, ObjectRow>();
  /** Syncs in progress that the queue does not wait for. */
  #syncs = 0;
  #unsyncedBytes = 0;

  constructor(id: FileId, state: FileState, parts: StoreParts, isUncommitted: boolean) {
    this.id = id;
    this.state = state;
    this.objectBytes = state.attributes.objectBytes;
    this.#parts = parts;
    this.isUncommitted = isUncommitted;
    const { world, index, containers, slices, mend } = parts;
    const idle = () => parts.onIdle(this);
    this.#queue = new ReplicaQueue({
      file: id,
      sizeBytes: () => this.state.attributes.sizeBytes,
      perform: async (batch) => {
        await this.#perform(batch);
        this.#continueInSlices();
      },
      idle,
    });
    this.#slots = new ReplicaSlots(world, id, index);
    const { objectBytes } = this;
    this.#writer = new ObjectWriter({ file: id, objectBytes, index, containers, slots: this.#slots, mend });
    this.#generations = new Generations(
      id,
      index.generations,
      state.record.seq,
      isUncommitted,
      slices.rowsMax,
    );
    const rows = { world, file: id, index, check: () => this.#check(), idle };
    this.#digests = new IncrementalDigests(rows);
    this.#storedBytes = new StoredBytes(rows);
    const removal = { file: id, index, slots: this.#slots, generations: this.#generations, slices };
    this.#removal = new RangeRemoval(removal);
    // A removal that a restart has interrupted.
    this.#continueInSlices();
  }

  /** Only the store's table refers to this object: it may be dropped and loaded again. */
  get evictable(): boolean {
    return this.idle && !this.isUncommitted && !this.removed && this.#staged.size === 0;
  }

  /** The index has lost the replica, but a full disk has refused to delete all of its rows. */
  get isRemovalInterrupted(): boolean {
    return this.removed && this.#areRowsLeft && this.#queue.idle;
  }

  get idle(): boolean {
    const isRead = this.#slots.pinned || this.#digests.reading || this.#storedBytes.counting;
    return this.#queue.idle && this.#syncs === 0 && !isRead;
  }

  submit(request: ItemRequest): Promise<void> {
    return this.#queue.submit(request);
  }

  /** As `submit`, for the store's own work, which has no caller: ServiceErrors are dropped, others fail the store. */
  submitOwn(request: ItemRequest): void {
    this.submit(request).catch((error) => {
      if (!(error instanceof ServiceError)) this.#parts.fail(error);
    });
  }

  pin(rows: readonly ObjectRow[]): void {
    this.#slots.pin(rows);
  }

  unpin(rows: readonly ObjectRow[]): void {
    this.#slots.unpin(rows);
    if (!this.#slots.pinned) this.#parts.onIdle(this);
  }

  staged(index: number): ObjectRow | null {
    return this.#staged.get(index) ?? null;
  }

  digests(): Promise<ObjectDigests> {
    return this.#digests.all();
  }

  /** Bytes within the size that no object has; null if they are not counted yet. */
  get holeBytes(): number | null {
    const storedBytes = this.#storedBytes.get();
    return storedBytes === null ? null : this.state.attributes.sizeBytes - storedBytes;
  }

  whenHolesCounted(): Promise<void> {
    return this.#storedBytes.whenCounted();
  }

  endLoans(borrower: FileId): void {
    this.#slots.endLoans(borrower);
    this.#trimIfWorthwhile();
  }

  #check(): void {
    this.#parts.check();
    if (this.removed) throw new ServiceError('not-found', `This server has no replica of file ${this.id}`);
  }

  async #perform(batch: readonly Item[]): Promise<void> {
    const first = batch[0] as Item;
    if (first.kind === 'remove' && this.#areRowsLeft) this.#parts.check();
    else this.#check();
    switch (first.kind) {
      case 'create':
      case 'promise':
        await this.#createOrPromise(batch);
        return;
      case 'create-with-contents':
        await this.#createWithContents(first);
        break;
      case 'apply': {
        const removed = removedBy(first.operation, this.state.attributes.sizeBytes);
        if (first.operation.kind === 'preserve') await this.#applyPreserving(first, first.operation);
        else if (removed !== null) await this.#applyRemoving(first, removed);
        else await this.#applyWriting(batch as ApplyItem[]);
        break;
      }
      case 'slice':
        await this.#slice();
        break;
      case 'flush':
        this.#settleAfterSync(this.#makeDurable(), first);
        return;
      case 'stage':
        await this.#stage(batch as StageItem[]);
        return;
      case 'repair':
        await this.#repair(first.object);
        break;
      case 'unstage':
        await this.#unstage(first.keeps);
        break;
      case 'install':
        await this.#install(first);
        break;
      case 'trim':
        await this.#trim();
        break;
      case 'remove':
        await this.#remove();
        break;
      default:
        unreachable(first);
    }
    for (const item of batch) item.resolve();
  }

  /** Queues the next slice of what is left to delete, behind the requests that wait already. */
  #continueInSlices(): void {
    const isLeft = this.#removal.isPending || this.#generations.hasRest;
    if (!isLeft || this.#isSlicing || this.removed || this.#parts.slices.closed) return;
    this.#isSlicing = true;
    this.submit({ kind: 'slice' }).catch((error) => {
      // Refused with an operation before it, or by a full disk: the next request continues.
      this.#isSlicing = false;
      if (!(error instanceof ServiceError)) this.#parts.fail(error);
    });
  }

  /** Deletes rows of objects that a long removal has removed, or of states that are not restored any more. */
  async #slice(): Promise<void> {
    const { index, slices } = this.#parts;
    try {
      if (slices.closed) return;
      if (this.#removal.isPending) {
        await this.#removal.slice();
        if (!this.#removal.isPending) this.#trimIfWorthwhile();
      } else await slices.run(() => this.#generations.deleteSlice((work) => index.commit(work)));
    } finally {
      this.#isSlicing = false;
    }
  }

  // Creation ------------------------------------------------------------------------------------------------------

  /** Creates the replica, stores promises and installs epochs without a base in one transaction; promises synced. */
  async #createOrPromise(batch: readonly Item[]): Promise<void> {
    const { index, startCounter } = this.#parts;
    let next = this.state;
    let stamps = false;
    for (const item of batch) {
      if (item.kind === 'promise') next = { ...next, record: { ...next.record, promised: item.epoch } };
      if (item.kind !== 'install') continue;
      assert(next.record.seq === 0, 'Only a new replica is installed so');
      next = fileStateInstall(next, item.epoch, item.seq, item.sessions, null, startCounter);
      stamps = true;
    }
    await this.#commit(next, [], () => {
      if (stamps) this.#generations.forgetAll();
      // An earlier replica's container may still be there, for its borrowers.
      if (this.isUncommitted) index.forgetRemoved(this.id);
    });
    if (stamps) await this.#installed([], [], 0);
    // Only promises wait for the sync, not the next batch.
    const synced = batch.some(({ kind }) => kind === 'promise') ? index.flush() : null;
    for (const item of batch) {
      if (item.kind === 'promise' && synced !== null) this.#settleAfterSync(synced, item);
      else item.resolve();
    }
  }

  /** Creates the replica with its first operations, in one transaction; a loss of power may undo the operations. */
  async #createWithContents({ epoch, operations, gate }: CreationItem): Promise<void> {
    assert(this.isUncommitted, 'Only a new replica is created with contents');
    const { state } = this;
    const promised = { ...state, record: { ...state.record, promised: epoch } };
    this.state = fileStateInstall(promised, epoch, 0, NO_SESSIONS, null, this.#parts.startCounter);
    const drafts = new ObjectDrafts(this.objectBytes, () => null);
    let next = this.state;
    for (const [at, operation] of operations.entries()) {
      drafts.add(partsWritten(operation), at + 1);
      next = fileStateApply(next, at + 1, operation, NO_SESSIONS);
    }
    this.#parts.assertSpace(drafts.byteCount);
    const rows = await this.#writer.writeFirst(drafts.ordered(), epoch.counter);
    await gate.arrive();
    const changes = rows.map((row): RowChange => [null, row]);
    await this.#commitChange(next, changes, () => {
      for (const row of rows) this.#parts.index.putObject(this.id, row);
    });
    this.#countUnsynced(drafts.byteCount);
  }

  // Operations ----------------------------------------------------------------------------------------------------

  /** Applies a batch of operations that remove no bytes, in one transaction. */
  async #applyWriting(items: readonly ApplyItem[]): Promise<void> {
    const { index } = this.#parts;
    const written = items.flatMap(({ operation }) => partsWritten(operation));
    for (const { offset, bytes } of written) {
      const last = Math.floor((offset + bytes.length - 1) / this.objectBytes);
      await this.#removal.finish(Math.floor(offset / this.objectBytes), last);
    }
    const drafts = new ObjectDrafts(this.objectBytes, (at) => index.object(this.id, at));
    let next = this.state;
    for (const item of items) {
      this.#assertInstalled(item);
      if (operationApplies(next.attributes, item.operation))
        drafts.add(partsWritten(item.operation), item.seq);
      next = fileStateApply(next, item.seq, item.operation, item.sessions);
    }
    // Checked in the order of the queue: operations after a refused one are refused with it.
    if (drafts.byteCount > 0) this.#parts.assertSpace(drafts.byteCount);
    const ordered = drafts.ordered();
    const epoch = this.#epochCounter;
    const rows = await this.#writer.write(ordered, epoch);
    const replaced = rows.map((after, at) => ({ before: ordered[at]?.base ?? null, after }));
    const changes = replaced.map(({ before, after }): RowChange => [before, after]);
    try {
      await this.#commitChange(next, changes, () => {
        for (const { before, after } of replaced) {
          if (before !== null) this.#generations.keepObject(before, epoch);
          index.putObject(this.id, after);
        }
      });
    } catch (error) {
      for (const { before, after } of replaced) if (after.slot !== before?.slot) this.#slots.free(after.slot);
      throw error;
    }
    for (const { before, after } of replaced) {
      if (before === null) continue;
      const generation = this.#generations.generationWith(before, epoch);
      if (before.slot !== after.slot) this.#slots.retire(before.slot, generation);
      else if (generation !== null) this.#slots.keepForOlder(before.slot, generation);
    }
    this.#countUnsynced(drafts.byteCount);
    // At a backup the buffers are of the primary's message. A primary's own buffers are not from this memory: it keeps
    // them for lagging backups.
    for (const { operation } of items) for (const { bytes } of partsWritten(operation)) releaseMemory(bytes);
  }

  /**
   * Applies an operation that removes bytes: a truncate to a smaller size, a punch, or a delete. The rows of many
   * objects are deleted in slices, later.
   */
  async #applyRemoving(item: ApplyItem, removed: Removed): Promise<void> {
    this.#assertInstalled(item);
    const next = fileStateApply(this.state, item.seq, item.operation, item.sessions);
    if (!operationApplies(this.state.attributes, item.operation)) {
      await this.#commitChange(next, [], () => undefined);
      return;
    }
    const { index, slices } = this.#parts;
    const epoch = this.#epochCounter;
    const { first, last, edges } = objectsRemoved(removed, this.objectBytes);
    await this.#removal.finish();
    await this.#slots.load();
    const found = index.objectsUpTo(this.id, first, last, slices.rowsMax + 1);
    const isLong = found.length > slices.rowsMax;
    const deleted = isLong ? [] : found;
    const edgeChanges = await this.#writer.clear(edges, removed, epoch, item.seq);
    const changes = isLong ? 'many' : [...deleted.map((row): RowChange => [row, null]), ...edgeChanges];
    try {
      await this.#commitChange(next, changes, () => {
        if (isLong) this.#removal.begin(found[0]?.index ?? first, last, epoch);
        else {
          this.#generations.keepObjects(first, last, epoch);
          index.deleteObjects(this.id, first, last);
        }
        for (const [before, after] of edgeChanges) {
          this.#generations.keepObject(before, epoch);
          if (after === null) index.deleteObject(this.id, before.index);
          else index.putObject(this.id, after);
        }
      });
    } catch (error) {
      for (const [, after] of edgeChanges) if (after !== null) this.#slots.free(after.slot);
      throw error;
    }
    for (const row of [...deleted, ...edgeChanges.map(([before]) => before)])
      this.#slots.retire(row.slot, this.#generations.generationWith(row, epoch));
    this.#slots.forgetLastPlaced();
    // The space is free only after a sync, which no client may request.
    if (found.length > 0) this.submitOwn({ kind: 'flush' });
  }

  /**
   * Creates file `operation.as` with the same contents: it borrows the objects, whose slots are not reused until it is
   * removed. The contents are synced first, then the lent objects are added, then the file, so it is complete wherever
   * it exists. It is synced before the acknowledgment: a majority is asked for it only once.
   */
  async #applyPreserving(
    item: ApplyItem,
    operation: Extract<FileOperation, { kind: 'preserve' }>,
  ): Promise<void> {
    this.#assertInstalled(item);
    const { index, containers, startCounter, isHere, unfinishedPreserves } = this.#parts;
    await this.#removal.finish();
    const next = fileStateApply(this.state, item.seq, operation, item.sessions);
    const preserved = fileStatePreserved(this.state, operation, this.id, startCounter);
    const { as } = operation;
    if (preserved === null || isHere(as)) {
      await this.#commitChange(next, [], () => undefined);
      return;
    }
    unfinishedPreserves.begin(as, this.id);
    await this.#syncOrFail(containers.flush(this.id));
    try {
      await this.#lendAll(as);
      await this.#commitChange(next, [], () => index.lent.putBorrower(as, preserved));
    } catch (error) {
      await unfinishedPreserves.undo(as);
      throw error;
    }
    unfinishedPreserves.end(as);
    this.#parts.recordChanges.report(as, true);
    await this.#syncOrFail(index.flush());
  }

  /** Lends all objects to `borrower`, in several ticks; this file does not change meanwhile. */
  async #lendAll(borrower: FileId): Promise<void> {
    const { world, index, slices } = this.#parts;
    await commitInSlices(index, () => index.lent.delete(borrower, slices.rowsMax), slices);
    await index.commit(() => index.lent.begin(borrower));
    // Ends the loans of an earlier attempt that could not be undone.
    this.#slots.endLoans(borrower);
    // More than are deleted at once: on a full disk, a refused slice leaves the space that undoing the others takes.
    const all = rowsOf(world, index, this.id, -1, Number.MAX_SAFE_INTEGER, 2 * slices.rowsMax);
    for await (const rows of all) {
      const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? 0];
      await slices.run(() => index.commit(() => index.lent.lend(borrower, this.id, first, last)));
      this.#slots.lend(
        borrower,
        rows.map(({ slot }) => slot),
      );
    }
  }

  #assertInstalled(item: ApplyItem): void {
    assert(epochEqual(item.epoch, this.state.record.installed), 'Operations belong to the installed epoch');
  }

  get #epochCounter(): number {
    return this.state.record.installed.counter;
  }

  // Another replica's state ---------------------------------------------------------------------------------------

  /** Writes objects fetched from another replica into free slots, and refuses those that do not match their entries. */
  async #stage(items: readonly StageItem[]): Promise<void> {
    const good = items.filter((item) => {
      const unlike = fetchedMismatch(this.id, item.object, this.objectBytes, item.isLost);
      if (unlike !== null) item.reject(unlike);
      return unlike === null;
    });
    if (good.length === 0) return;
    const objects = good.map(({ object }) => object);
    const rows = await this.#writer.add(objects, (index) => this.#slots.takeRun(index, 1));
    for (const [at, row] of rows.entries()) {
      const before = this.#staged.get(row.index);
      if (before !== undefined) this.#slots.free(before.slot);
      this.#staged.set(row.index, row);
      good[at]?.resolve();
    }
  }

  async #unstage(keeps: (entry: ObjectEntry) => boolean): Promise<void> {
    let count = 0;
    for (const row of this.#staged.values()) {
      if (++count % STAGED_PER_TICK === 0) await this.#parts.world.nextTick();
      if (keeps(row)) continue;
      this.#staged.delete(row.index);
      this.#slots.free(row.slot);
    }
  }

  /** Replaces a damaged object by fetched bytes, in another slot, which are synced before the row refers to them. */
  async #repair(object: FetchedObject): Promise<void> {
    const { index, containers } = this.#parts;
    const damaged = index.object(this.id, object.entry.index);
    if (damaged === null || !sameObject(damaged, object.entry)) return;
    const unlike = fetchedMismatch(this.id, object, this.objectBytes);
    if (unlike !== null) throw unlike;
    const [row] = await this.#writer.add([object], () => this.#slots.takeAny());
    assert(row !== undefined, 'What was written has a row');
    try {
      await this.#syncOrFail(containers.flush(this.id));
      await this.#commit(this.state, [], () => index.putObject(this.id, row));
    } catch (error) {
      this.#slots.free(row.slot);
      throw error;
    }
    await this.#syncOrFail(index.flush());
    this.#slots.retire(damaged.slot, null);
  }

  /** Installs an epoch: with a base, from staged and local objects; else the contents stay. Synced unless it is new. */
  async #install(item: InstallItem): Promise<void> {
    const { epoch, seq, sessions, base } = item;
    const { index, containers, slices, startCounter } = this.#parts;
    if (base !== null) await this.#removal.finish();
    const next = fileStateInstall(this.state, epoch, seq, sessions, base, startCounter);
    if (base !== null) await this.#slots.load();
    const plan = base === null ? NO_PLAN : await planInstall(this.#asInstallSource(), base);
    const isLong = plan.appended.length > slices.rowsMax;
    if (isLong) await this.#removal.putHidden(plan.appended, (row) => this.#staged.delete(row.index));
    const puts = isLong ? plan.puts : [...plan.puts, ...plan.appended];
    // A new file has nothing to lose: a loss of power that takes the stamp takes all unsynced writes under it, and a
    // sync of those syncs the stamp, too.
    const isNew = base === null && seq === 0;
    // First the contents, then the transaction: it never refers to incomplete contents, and needs no undo.
    if (!isNew) await this.#syncOrFail(containers.flush(this.id));
    await this.#commit(next, isLong ? 'many' : changesOf(plan, puts), () => {
      for (const row of plan.deletes) index.deleteObject(this.id, row.index);
      for (const row of puts) index.putObject(this.id, row);
      if (isLong) index.removals.delete(this.id);
      if (this.isUncommitted) index.forgetRemoved(this.id);
      this.#generations.forgetAll();
    });
    if (!isNew) await this.#syncOrFail(index.flush());
    await this.#installed(plan.obsolete, puts, seq);
  }

  #asInstallSource(): InstallSource {
    const { installed, seq } = this.state.record;
    const { world, index } = this.#parts;
    return { world, file: this.id, index, position: { epoch: installed, seq }, staged: this.#staged };
  }

  /** Called after the commit of an installation: only the installed state refers to slots now; all others are freed. */
  async #installed(obsolete: readonly ObjectRow[], puts: readonly ObjectRow[], seq: number): Promise<void> {
    this.#generations.installed(seq);
    this.#unsyncedBytes = 0;
    for (const { slot } of obsolete) this.#slots.free(slot);
    this.#slots.freeAllOlder();
    for (const row of puts) this.#staged.delete(row.index);
    const dropped = this.#staged;
    // All in this tick: the next fetch must not count on any of them.
    this.#staged = new Map();
    let count = 0;
    for (const { slot } of dropped.values()) {
      if (++count % STAGED_PER_TICK === 0) await this.#parts.world.nextTick();
      this.#slots.free(slot);
    }
    this.#slots.forgetLastPlaced();
    this.#trimIfWorthwhile();
  }

  // Removal -------------------------------------------------------------------------------------------------------

  async #remove(): Promise<void> {
    const { index, containers, slices, endLoans } = this.#parts;
    this.removed = true;
    await this.#slots.whenUnpinned();
    try {
      // A small replica does not wait for the slices of large ones.
      const countMax = Math.min(slices.rowsMax, ROWS_REMOVED_AT_ONCE);
      await index.commit(() => {
        this.#areRowsLeft = index.deleteFile(this.id, countMax);
      });
    } catch (error) {
      this.removed = false;
      throw error;
    }
    index.removals.reload(this.id);
    this.isUncommitted = false;
    // The container is unlinked only once the index durably lacks the file.
    await this.#syncOrFail(index.flush());
    // Borrowers need its container: the last of them removes it, or this, if it ends later.
    const isLender = (): boolean => index.borrowers(this.id).length > 0;
    const isUnlinked = !isLender();
    if (isUnlinked) await containers.unlink(this.id);
    await this.#deleteRows();
    if (this.state.lender !== 0) await endLoans(this.state.lender as FileId, this.id);
    // Asked last: a borrower that ends after this finds no replica any more, and does the rest.
    if (this.#areRowsLeft || isLender()) return;
    if (!isUnlinked) await containers.unlink(this.id);
    await index.commit(() => index.forgetRemoved(this.id));
  }

  /**
   * Until the rows of a removed replica are deleted, no file of its number is created: it would find them. The next
   * start deletes what is left at the store's end.
   */
  async #deleteRows(): Promise<void> {
    const { index, slices } = this.#parts;
    if (!this.#areRowsLeft) return;
    const slice = (): boolean => {
      if (slices.closed) return false;
      this.#areRowsLeft = index.deleteRows(this.id, slices.rowsMax);
      return this.#areRowsLeft;
    };
    await commitInSlices(index, slice, slices);
  }

  async #trim(): Promise<void> {
    await this.#parts.containers.use(this.id, false, async (container) => {
      const neededBytes = this.#slots.end * this.objectBytes;
      if (container.sizeBytes > neededBytes) await container.truncate(neededBytes);
    });
  }

  #trimIfWorthwhile(): void {
    if (this.#slots.takeTrim(this.objectBytes)) this.submitOwn({ kind: 'trim' });
  }

  // Commits and syncs ---------------------------------------------------------------------------------------------

  /**
   * Commits `change` and the file's next state in one transaction of the index; only then it is the state here.
   * @param changes `many` if it begins or ends a removal
   */
  async #commit(next: FileState, changes: Changes, change: () => void): Promise<void> {
    const { index } = this.#parts;
    await index.commit(() => {
      change();
      index.putFile(this.id, next);
    });
    const isPlaced = this.isUncommitted || next.record.view !== this.state.record.view;
    this.isUncommitted = false;
    this.state = next;
    // In the tick of the new state: no read may see one without the other. Any change may forget older states, and with
    // them a pending removal's generation.
    if (changes === 'many' || this.#removal.isPending) index.removals.reload(this.id);
    if (changes === 'many') {
      this.#digests.forget();
      this.#storedBytes.forget();
    } else {
      this.#digests.update(changes);
      this.#storedBytes.update(changes);
    }
    this.#parts.recordChanges.report(this.id, isPlaced);
  }

  /** Commits a change with unsynced contents: the state before is kept until the contents are synced. */
  #commitChange(next: FileState, changes: Changes, change: () => void): Promise<void> {
    return this.#generations.commitKeepingState(this.state, (keep) =>
      this.#commit(next, changes, () => {
        keep();
        change();
      }),
    );
  }

  #countUnsynced(byteCount: number): void {
    this.#unsyncedBytes += byteCount;
    if (this.#unsyncedBytes < UNSYNCED_BYTES_MAX) return;
    this.#unsyncedBytes = 0;
    this.submitOwn({ kind: 'flush' });
  }

  /** Everything applied so far survives loss of power when it resolves. */
  async #makeDurable(): Promise<void> {
    const generation = this.#generations.advance(this.state.record.seq);
    this.#unsyncedBytes = 0;
    if (generation === null) return;
    await this.#parts.containers.flush(this.id);
    await this.#parts.index.flush();
    if (!this.#generations.synced(generation)) return;
    this.#slots.freeOlder(generation);
    this.#trimIfWorthwhile();
  }

  /** Settles `waiter` when the sync `work` ends, while the queue continues. */
  #settleAfterSync(work: Promise<void>, waiter: Waiter): void {
    this.#syncs++;
    work
      .then(waiter.resolve, (cause) => {
        this.#parts.fail(cause);
        waiter.reject(storageError(`Cannot sync file ${this.id}`, cause));
      })
      .finally(() => {
        this.#syncs--;
        this.#parts.onIdle(this);
      });
  }

  async #syncOrFail(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (cause) {
      this.#parts.fail(cause);
      throw cause;
    }
  }
}
