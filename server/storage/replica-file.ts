import { assert, unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { giveBack } from '../../base/lent-memory.ts';
import type { Epoch } from '../../replica/actions.ts';
import { type FileOperation, partsWritten } from '../../wire/file-operation.ts';
import { crc32Of } from './checksum.ts';
import type { Chunk, Container, Containers } from './container.ts';
import {
  bytesWithout,
  epochEquals,
  type FileState,
  fileStateApply,
  fileStateInstall,
  fileStatePreserved,
  operationApplies,
  type Removed,
  removedBy,
  removedWithin,
  sizeAfter,
  writePieces,
} from './contents.ts';
import { storageError } from './failures.ts';
import type { IndexDatabase, ObjectRow } from './index-database.ts';
import { ObjectDigests } from './object-digests.ts';
import { type DraftOutcome, ObjectDraft } from './object-draft.ts';
import { SlotMap } from './slot-map.ts';
import type { FetchedObject, FileDescription, FileDifference, ObjectEntry } from './store.ts';

/** Operations and bytes that go to the disk together. */
const BATCH_COUNT_MAX = 256;
const BATCH_BYTES_MAX = 8 * 1024 * 1024;
/**
 * A file is synced without being asked once this much of it is not: it bounds the work after a loss of power, and whoever
 * asks at the end of a long file does not wait for all of it, for the disk has begun meanwhile.
 */
const UNSYNCED_BYTES_MAX = 64 * 1024 * 1024;
/** Rows of the index between two turns of the event loop. */
const ROWS_PER_TURN = 10_000;
/** Rows whose digests are taken, or which are looked up one by one, between two turns: a millisecond or two. */
const DIGESTS_PER_TURN = 1_000;
const LOOKUPS_PER_TURN = 200;
/** Objects that are lent to another file between two turns: three milliseconds or so. */
const LENT_PER_TURN = 2_000;
/** A change of more objects than this forgets the digests, which costs less than to follow it. */
const DIGESTED_CHANGES_MAX = 10_000;
/** A container is cut once this many bytes at its end are free. */
const TRIM_BYTES_MIN = 16 * 1024 * 1024;

/** What the files of one store share. */
export interface StoreParts {
  readonly index: IndexDatabase;
  readonly containers: Containers;
  /** Start counter of the folder. */
  readonly start: number;
  /** The disk failed in a way after which nothing that it says is to be believed. */
  fail(cause: unknown): void;
  /** @throws ServiceError `no-space` where contents of so many bytes would take what is kept for names */
  assertRoom(bytes: number): void;
  /** @throws ServiceError once `fail` was called */
  check(): void;
  /**
   * Bytes of a damaged object, from another replica that has the same version.
   * @param cause how the damage was met; thrown where it is none, or nobody has the bytes
   */
  mend(file: FileId, row: ObjectRow, cause: unknown): Promise<Uint8Array>;
  /** Whether there is a replica of the file, or one that is about to go. */
  isHere(file: FileId): boolean;
  /** Files that are about to be here, with what they borrow. */
  readonly arriving: Set<FileId>;
  /** A replica is gone, for good, that borrowed objects of another. */
  returned(lender: FileId, borrower: FileId): Promise<void>;
  /** The file has nothing under way any more. */
  idle(file: ReplicaFile): void;
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

interface ApplyItem extends Waiter {
  readonly kind: 'apply';
  readonly epoch: Epoch;
  readonly seq: number;
  readonly operation: FileOperation;
  readonly sessions: Uint8Array;
}

interface StageItem extends Waiter {
  readonly kind: 'stage' | 'repair';
  readonly object: FetchedObject;
  /** The bytes stand for ones that nobody has: they are not to match. */
  readonly isLost?: true;
}

interface InstallItem extends Waiter {
  readonly kind: 'install';
  readonly epoch: Epoch;
  readonly seq: number;
  readonly sessions: Uint8Array;
  readonly base: FileDescription | FileDifference | null;
}

interface UnstageItem extends Waiter {
  readonly kind: 'unstage';
  readonly keeps: (entry: ObjectEntry) => boolean;
}

interface BearItem extends Waiter {
  readonly kind: 'bear';
  readonly epoch: Epoch;
  readonly operations: readonly FileOperation[];
  readonly gate: Gate;
}

/** Where those wait for each other that are to share a transaction. */
export class Gate {
  readonly #opened = Promise.withResolvers<void>();
  #missing: number;

  constructor(count: number) {
    this.#missing = count;
  }

  /** Resolves when all have arrived, or left. */
  async arrive(): Promise<void> {
    this.leave();
    await this.#opened.promise;
  }

  /** One that is not to be waited for any more. */
  leave(): void {
    if (--this.#missing <= 0) this.#opened.resolve();
  }
}

/** An object before and after a change: null where there is none. */
type RowChange = readonly [ObjectRow | null, ObjectRow | null];

/** How the rows of the index become a base's. */
interface InstallPlan {
  readonly puts: readonly ObjectRow[];
  readonly deletes: readonly ObjectRow[];
  /** Rows that are here now and not in the base. */
  readonly dropped: readonly ObjectRow[];
}

const ACTIONS = {
  apply: 'apply an operation to',
  bear: 'bear',
  stage: 'stage objects of',
  repair: 'repair an object of',
  install: 'install a state of',
  promise: 'store a promise for',
  create: 'create',
  flush: 'sync',
  unstage: 'forget staged objects of',
  trim: 'trim',
  remove: 'remove',
} as const satisfies Record<Item['kind'], string>;

type Item =
  | ApplyItem
  | BearItem
  | StageItem
  | InstallItem
  | UnstageItem
  | (Waiter & { readonly kind: 'promise'; readonly epoch: Epoch })
  | (Waiter & { readonly kind: 'create' | 'flush' | 'trim' | 'remove' });

/** Whether the item may share the transaction that makes a replica, or stores its promise: nothing is replaced by it. */
function isOfBeginning(item: Item | undefined): boolean {
  if (item?.kind === 'install') return item.base === null && item.seq === 0;
  return item?.kind === 'promise';
}

export type ItemRequest = Item extends infer Kind
  ? Kind extends Item
    ? Omit<Kind, keyof Waiter>
    : never
  : never;

/**
 * One replica on the disk. Changes go through a queue and happen one batch after the other, so that
 * there is a single order; reads go past the queue, on what the last batch committed.
 */
export class ReplicaFile {
  readonly id: FileId;
  readonly #parts: StoreParts;
  /** As of the last commit. */
  state: FileState;
  /** Removed or about to be: nobody finds it any more. */
  removed = false;
  /** Made in memory and not in the index yet. */
  unborn: boolean;
  #queue: Item[] = [];
  #running = false;
  #flushes = 0;

  /** Null until something is written: built from the index then. */
  #slots: SlotMap | null = null;
  /** Slots with objects of files that borrow them, by borrower, and how many have each. Known where `#slots` is. */
  readonly #lentTo = new Map<FileId, readonly number[]>();
  readonly #lent = new Map<number, number>();
  /** Lent slots that nothing of the own refers to. */
  readonly #onlyLent = new Set<number>();
  /** Slots that a read under way looks at, with the number of reads. */
  readonly #pins = new Map<number, number>();
  readonly #freeWhenUnpinned = new Set<number>();
  #unpinned: (() => void) | null = null;
  /** Where the last new object went: the next one goes behind it. */
  #lastPlaced = { index: -2, slot: -2 };
  readonly #staged = new Map<number, ObjectRow>();
  /** Digests of the objects up to an index; null until somebody asks. */
  #digests: { readonly tree: ObjectDigests; upTo: number } | null = null;
  #digesting: Promise<void> | null = null;
  /** End of the slots that were in use since the container was last cut. */
  #placedEnd = 0;

  // Generations: see FORMAT.md, "Loss of power".
  /** The generation that changes are recorded against. Its state is the one after `#baseSeq`. */
  #generation: number;
  #baseSeq: number;
  /** The index has the generation's state: something was applied since it began. */
  #generationSaved = false;
  /** The newest generation whose state is known to be synced; −1 for none since the file was loaded. */
  #durableGeneration: number;
  /** The index may have generations older than the durable one. */
  #olderGenerations: boolean;
  /** Slots that only older states refer to, with the newest generation that does. */
  #retired: { readonly slot: number; readonly generation: number }[] = [];
  /** Slots in use to which a generation also refers with a smaller length. */
  readonly #heldSlots = new Map<number, number>();
  #unsyncedBytes = 0;

  constructor(id: FileId, state: FileState, parts: StoreParts, unborn: boolean) {
    this.id = id;
    this.state = state;
    this.#parts = parts;
    this.unborn = unborn;
    const newest = unborn ? null : parts.index.newestGeneration(id);
    this.#generation = newest === null ? 0 : newest + 1;
    this.#durableGeneration = newest === null ? 0 : -1;
    this.#olderGenerations = newest !== null;
    this.#baseSeq = state.record.seq;
  }

  get objectBytes(): number {
    return this.state.attributes.objectBytes;
  }

  /** Nothing refers to this object but the store's table: it may be forgotten and loaded again. */
  get evictable(): boolean {
    return this.idle && !this.unborn && !this.removed && this.#staged.size === 0;
  }

  get idle(): boolean {
    const isQueueIdle = !this.#running && this.#queue.length === 0 && this.#flushes === 0;
    return isQueueIdle && this.#pins.size === 0 && this.#digesting === null;
  }

  submit(request: ItemRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ ...request, resolve, reject } as Item);
      if (!this.#running) {
        this.#running = true;
        void this.#run();
      }
    });
  }

  /** As `submit`, for work of the store's own. Its failures end the store, or somebody else hears of them. */
  submitOwn(kind: 'create' | 'flush' | 'trim'): void {
    this.#own(this.submit({ kind }));
  }

  /** Forgets what was staged and is not kept. */
  unstage(keeps: (entry: ObjectEntry) => boolean): void {
    this.#own(this.submit({ kind: 'unstage', keeps }));
  }

  #own(work: Promise<void>): void {
    work.catch((error) => {
      if (!(error instanceof ServiceError)) this.#parts.fail(error);
    });
  }

  // --- reading ---------------------------------------------------------------------------------------------

  /** Keeps the slots of the rows from being used again until `unpin`. */
  pin(rows: readonly ObjectRow[]): void {
    for (const { slot } of rows) this.#pins.set(slot, (this.#pins.get(slot) ?? 0) + 1);
  }

  unpin(rows: readonly ObjectRow[]): void {
    for (const { slot } of rows) {
      const count = this.#pins.get(slot);
      assert(count !== undefined, 'What is unpinned was pinned');
      if (count > 1) {
        this.#pins.set(slot, count - 1);
        continue;
      }
      this.#pins.delete(slot);
      if (this.#freeWhenUnpinned.delete(slot)) this.#slots?.free(slot);
    }
    if (this.#pins.size > 0) return;
    this.#unpinned?.();
    this.#unpinned = null;
    this.#parts.idle(this);
  }

  /** @returns the object of this index that lies staged, or null */
  staged(index: number): ObjectRow | null {
    return this.#staged.get(index) ?? null;
  }

  /** Digests of all objects, as of the last commit in the turn in which the promise is fulfilled. */
  async digests(): Promise<ObjectDigests> {
    while (this.#digests?.upTo !== Infinity) {
      this.#digesting ??= this.#readDigests().finally(() => {
        this.#digesting = null;
        this.#parts.idle(this);
      });
      await this.#digesting;
    }
    return this.#digests.tree;
  }

  /** Goes on beside the queue: what is committed meanwhile is followed as far as the rows were read. */
  async #readDigests(): Promise<void> {
    const digests = { tree: new ObjectDigests(), upTo: -1 };
    this.#digests = digests;
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      this.#parts.check();
      if (this.removed) throw new ServiceError('not-found', `This server has no replica of file ${this.id}`);
      // Forgotten meanwhile: whoever waits begins anew.
      if (this.#digests !== digests) return;
      const rows = this.#parts.index.objectsAfter(this.id, digests.upTo, DIGESTS_PER_TURN);
      for (const row of rows) digests.tree.replace(null, row);
      const last = rows.at(-1);
      if (last === undefined || rows.length < DIGESTS_PER_TURN) {
        digests.upTo = Infinity;
        return;
      }
      digests.upTo = last.index;
    }
  }

  #digest(changes: readonly RowChange[]): void {
    const digests = this.#digests;
    if (digests === null) return;
    if (changes.length > DIGESTED_CHANGES_MAX) {
      this.#digests = null;
      return;
    }
    for (const [before, after] of changes) {
      const index = after?.index ?? before?.index ?? Infinity;
      if (index <= digests.upTo) digests.tree.replace(before, after);
    }
  }

  // --- the queue ---------------------------------------------------------------------------------------------

  async #run(): Promise<void> {
    // What is asked for in the same step may share a transaction.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = this.#takeBatch();
      try {
        this.#parts.check();
        await this.#perform(batch);
      } catch (cause) {
        const first = batch[0] as Item;
        const error = storageError(`Cannot ${ACTIONS[first.kind]} file ${this.id}`, cause);
        // What was to follow an operation that did not happen must not happen either.
        const isBeside = first.kind === 'stage' || first.kind === 'repair' || first.kind === 'trim';
        const rest = isBeside ? [] : this.#queue.splice(0);
        for (const item of [...batch, ...rest]) item.reject(error);
      }
    }
    this.#running = false;
    this.#parts.idle(this);
  }

  #takeBatch(): Item[] {
    const first = this.#queue[0] as Item;
    let count = 1;
    if (first.kind === 'apply' && isAlone(first.operation)) return this.#queue.splice(0, 1);
    if (first.kind === 'apply' && removedBy(first.operation, this.state.attributes.sizeBytes) === null) {
      let sizeBytes = sizeAfter(this.state.attributes.sizeBytes, first.operation);
      let byteCount = operationBytes(first.operation);
      for (; count < this.#queue.length && count < BATCH_COUNT_MAX; count++) {
        const item = this.#queue[count] as Item;
        if (item.kind !== 'apply' || isAlone(item.operation)) break;
        if (removedBy(item.operation, sizeBytes) !== null) break;
        byteCount += operationBytes(item.operation);
        if (byteCount > BATCH_BYTES_MAX) break;
        sizeBytes = sizeAfter(sizeBytes, item.operation);
      }
    } else if (first.kind === 'stage') {
      let byteCount = first.object.bytes.length;
      for (; count < this.#queue.length && count < BATCH_COUNT_MAX; count++) {
        const item = this.#queue[count] as Item;
        if (item.kind !== 'stage') break;
        byteCount += item.object.bytes.length;
        if (byteCount > BATCH_BYTES_MAX) break;
      }
    } else if (first.kind === 'create' || first.kind === 'promise') {
      while (count < BATCH_COUNT_MAX && isOfBeginning(this.#queue[count])) count++;
    }
    return this.#queue.splice(0, count);
  }

  async #perform(batch: readonly Item[]): Promise<void> {
    const first = batch[0] as Item;
    if (this.removed) throw new ServiceError('not-found', `This server has no replica of file ${this.id}`);
    switch (first.kind) {
      case 'create':
      case 'promise':
        await this.#beginBatch(batch);
        return;
      case 'bear':
        await this.#bear(first);
        break;
      case 'apply': {
        const removed = removedBy(first.operation, this.state.attributes.sizeBytes);
        if (first.operation.kind === 'preserve') await this.#applyPreserving(first, first.operation);
        else if (removed !== null) await this.#applyRemoving(first, removed);
        else await this.#applyBatch(batch as ApplyItem[]);
        break;
      }
      case 'flush':
        this.#background(this.#makeDurable(), first);
        return;
      case 'stage':
        await this.#stageBatch(batch as StageItem[]);
        return;
      case 'repair':
        await this.#repair(first.object);
        break;
      case 'unstage':
        for (const row of [...this.#staged.values()]) {
          if (first.keeps(row)) continue;
          this.#staged.delete(row.index);
          this.#freeSlot(row.slot);
        }
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

  #background(work: Promise<void>, waiter: Waiter): void {
    this.#flushes++;
    work
      .then(waiter.resolve, (cause) => {
        this.#parts.fail(cause);
        waiter.reject(storageError(`Cannot sync file ${this.id}`, cause));
      })
      .finally(() => {
        this.#flushes--;
        this.#parts.idle(this);
      });
  }

  // --- beginnings ----------------------------------------------------------------------------------------------

  /** Makes a replica, stores promises, and stamps a replica to which nothing was applied yet: all in one transaction. */
  async #beginBatch(batch: readonly Item[]): Promise<void> {
    let next = this.state;
    let stamps = false;
    for (const item of batch) {
      if (item.kind === 'promise') next = { ...next, record: { ...next.record, promised: item.epoch } };
      if (item.kind !== 'install') continue;
      assert(next.record.seq === 0, 'Only what is new is stamped so');
      next = fileStateInstall(next, item.epoch, item.seq, item.sessions, null, this.#parts.start);
      stamps = true;
    }
    await this.#commit(next, [], () => {
      if (stamps) this.#parts.index.dropGenerations(this.id, Number.MAX_SAFE_INTEGER);
      // An earlier replica's container may still be there, for those who borrow of it.
      if (this.unborn) this.#parts.index.forgetRemoved(this.id);
    });
    if (stamps) this.#beginGenerations(NO_PLAN, 0);
    // Promises wait to be synced; the next batch need not.
    const synced = batch.some(({ kind }) => kind === 'promise') ? this.#flushIndex() : null;
    for (const item of batch) {
      if (item.kind === 'promise' && synced !== null) this.#background(synced, item);
      else item.resolve();
    }
  }

  /** A beginning and the first operations, in one transaction; a loss of power throws it back to the beginning at the most. */
  async #bear({ epoch, operations, gate }: BearItem): Promise<void> {
    assert(this.unborn, 'Only what is new is borne');
    const { state } = this;
    const promised = { ...state, record: { ...state.record, promised: epoch } };
    this.state = fileStateInstall(promised, epoch, 0, NO_SESSIONS, null, this.#parts.start);
    const slots = new SlotMap();
    this.#slots = slots;
    const drafts = new Map<number, ObjectDraft>();
    let next = this.state;
    let byteCount = 0;
    for (const [place, operation] of operations.entries()) {
      for (const { offset, bytes } of partsWritten(operation)) {
        byteCount += bytes.length;
        for (const piece of writePieces(offset, bytes, this.objectBytes)) {
          const draft = drafts.get(piece.index) ?? new ObjectDraft(piece.index, null);
          drafts.set(piece.index, draft);
          draft.add(piece.at, piece.bytes, place + 1);
        }
      }
      next = fileStateApply(next, place + 1, operation, NO_SESSIONS);
    }
    this.#parts.assertRoom(byteCount);
    const ordered = [...drafts.values()].sort((a, b) => a.index - b.index);
    const rows = await this.#parts.containers.useOnce(this.id, (container) =>
      this.#writeTo(container, slots, ordered),
    );
    await gate.arrive();
    const changes = rows.map((row): RowChange => [null, row]);
    await this.#commitChange(next, changes, () => {
      for (const row of rows) this.#parts.index.putObject(this.id, row);
    });
    this.#count(byteCount);
  }

  // --- operations ----------------------------------------------------------------------------------------------

  async #applyBatch(items: readonly ApplyItem[]): Promise<void> {
    const drafts = new Map<number, ObjectDraft>();
    let next = this.state;
    let byteCount = 0;
    for (const item of items) {
      this.#assertInstalled(item);
      const written = operationApplies(next.attributes, item.operation) ? partsWritten(item.operation) : [];
      for (const { offset, bytes } of written) {
        byteCount += bytes.length;
        for (const piece of writePieces(offset, bytes, this.objectBytes)) {
          let draft = drafts.get(piece.index);
          if (draft === undefined) {
            draft = new ObjectDraft(piece.index, this.#parts.index.object(this.id, piece.index));
            drafts.set(piece.index, draft);
          }
          draft.add(piece.at, piece.bytes, item.seq);
        }
      }
      next = fileStateApply(next, item.seq, item.operation, item.sessions);
    }
    // In the order of the queue: what is to follow an operation that is refused is refused with it.
    if (byteCount > 0) this.#parts.assertRoom(byteCount);
    const ordered = [...drafts.values()].sort((a, b) => a.index - b.index);
    const rows = await this.#writeDrafts(ordered);
    const changes = rows.map((row, at): RowChange => [ordered[at]?.base ?? null, row]);
    try {
      await this.#commitChange(next, changes, () => {
        for (const [at, row] of rows.entries()) {
          const base = ordered[at]?.base ?? null;
          if (base !== null && this.#inBase(base)) this.#parts.index.putUndo(this.id, this.#generation, base);
          this.#parts.index.putObject(this.id, row);
        }
      });
    } catch (error) {
      for (const [at, row] of rows.entries()) {
        if (row.slot !== ordered[at]?.base?.slot) this.#freeSlot(row.slot);
      }
      throw error;
    }
    for (const [at, { base }] of ordered.entries()) {
      if (base === null) continue;
      if (base.slot !== rows[at]?.slot) this.#dropSlot(base);
      else if (this.#inBase(base)) this.#heldSlots.set(base.slot, this.#generation);
    }
    this.#count(byteCount);
    // What came from a primary came for this alone. What a primary keeps for those who lag was not lent.
    for (const { operation } of items) for (const { bytes } of partsWritten(operation)) giveBack(bytes);
  }

  /** Brings the drafts to the disk, where nothing refers to them yet. @returns their rows, in the same order */
  async #writeDrafts(drafts: readonly ObjectDraft[]): Promise<ObjectRow[]> {
    if (drafts.length === 0) return [];
    const slots = this.#slots ?? (await this.#loadSlots());
    const done = await this.#parts.containers.use(this.id, true, (container) =>
      this.#writeTo(container, slots, drafts),
    );
    assert(done !== null, 'The container was made');
    return done;
  }

  async #writeTo(container: Container, slots: SlotMap, drafts: readonly ObjectDraft[]): Promise<ObjectRow[]> {
    const bases = await Promise.all(
      drafts.map((draft) =>
        draft.needsBase
          ? readSoundRow(this.#parts, container, this.id, draft.base as ObjectRow, this.objectBytes)
          : null,
      ),
    );
    const outcomes = drafts.map((draft, at) => draft.finish(bases[at] ?? null));
    const placed = this.#place(slots, drafts, outcomes);
    try {
      const writing = container.write(
        outcomes.map((outcome, at) => {
          const begin = outcome.kind === 'append' ? (drafts[at]?.base?.length ?? 0) : 0;
          return {
            position: (placed[at] as number) * this.objectBytes + begin,
            buffers: outcome.buffers,
            byteCount: outcome.length - begin,
          } satisfies Chunk;
        }),
      );
      // The checksums are computed while the thread pool writes.
      const rows = drafts.map((draft, at) => {
        const outcome = outcomes[at] as DraftOutcome;
        return {
          index: draft.index,
          versionEpoch: this.state.record.installed.counter,
          versionSeq: draft.seq,
          length: outcome.length,
          crc32: draft.checksum(),
          slot: placed[at] as number,
        } satisfies ObjectRow;
      });
      await writing;
      return rows;
    } catch (error) {
      for (const [at, outcome] of outcomes.entries()) {
        if (outcome.kind === 'fresh') this.#freeSlot(placed[at] as number);
      }
      throw error;
    }
  }

  /** Chooses a slot for every fresh draft, adjacent ones for adjacent objects. Appends stay where they are. */
  #place(slots: SlotMap, drafts: readonly ObjectDraft[], outcomes: readonly DraftOutcome[]): number[] {
    const placed: number[] = [];
    let at = 0;
    while (at < drafts.length) {
      const draft = drafts[at] as ObjectDraft;
      if (outcomes[at]?.kind === 'append') {
        placed.push((draft.base as ObjectRow).slot);
        at++;
        continue;
      }
      let count = 1;
      while (outcomes[at + count]?.kind === 'fresh' && drafts[at + count]?.index === draft.index + count)
        count++;
      let near = -1;
      if (this.#lastPlaced.index === draft.index - 1) near = this.#lastPlaced.slot + 1;
      else if (draft.base === null && draft.index > 0) {
        const before = this.#parts.index.object(this.id, draft.index - 1);
        if (before !== null) near = before.slot + 1;
      }
      const first = this.#takeSlots(slots, count, near);
      for (let slot = first; slot < first + count; slot++) placed.push(slot);
      this.#lastPlaced = { index: draft.index + count - 1, slot: first + count - 1 };
      at += count;
    }
    return placed;
  }

  /** An operation that takes bytes away: a truncate that cuts something off, a punch, or a delete. */
  async #applyRemoving(item: ApplyItem, removed: Removed): Promise<void> {
    this.#assertInstalled(item);
    const next = fileStateApply(this.state, item.seq, item.operation, item.sessions);
    if (!operationApplies(this.state.attributes, item.operation)) {
      await this.#commitChange(next, [], () => undefined);
      item.resolve();
      return;
    }
    if (this.#slots === null) await this.#loadSlots();
    const { first, last, edges } = objectsRemoved(removed, this.objectBytes);
    const dropped: ObjectRow[] = [];
    for await (const rows of this.#walk(first - 1, last)) dropped.push(...rows);
    const edgeChanges = await this.#clearEdges(edges, removed, item.seq);
    const changes = [...dropped.map((row): RowChange => [row, null]), ...edgeChanges];
    try {
      await this.#commitChange(next, changes, () => {
        const { index } = this.#parts;
        const { counter } = this.state.record.installed;
        index.putUndoRange(this.id, this.#generation, first, last, counter, this.#baseSeq);
        index.deleteObjects(this.id, first, last);
        for (const [before, after] of edgeChanges) {
          if (this.#inBase(before)) index.putUndo(this.id, this.#generation, before);
          if (after === null) index.deleteObject(this.id, before.index);
          else index.putObject(this.id, after);
        }
      });
    } catch (error) {
      for (const [, after] of edgeChanges) if (after !== null) this.#freeSlot(after.slot);
      throw error;
    }
    for (const row of dropped) this.#dropSlot(row);
    for (const [before] of edgeChanges) this.#dropSlot(before);
    this.#lastPlaced = { index: -2, slot: -2 };
    // The room comes back only once the file is synced, and nobody else may ask for that.
    if (dropped.length > 0) this.submitOwn('flush');
  }

  /**
   * The contents become those of another file, too, which borrows the objects where they are: as long as it does, their slots are not free.
   * First the contents are synced, then come its objects, and then itself: wherever the other file is found, it is whole. And whoever says that
   * it has the other file has it for good: whether a majority has is asked once.
   */
  async #applyPreserving(
    item: ApplyItem,
    operation: Extract<FileOperation, { kind: 'preserve' }>,
  ): Promise<void> {
    this.#assertInstalled(item);
    const { index, containers, start, isHere } = this.#parts;
    const next = fileStateApply(this.state, item.seq, operation, item.sessions);
    const made = fileStatePreserved(this.state, operation, this.id, start);
    const { as } = operation;
    if (made === null || isHere(as)) {
      await this.#commitChange(next, [], () => undefined);
      return;
    }
    this.#parts.arriving.add(as);
    await this.#syncOrFail(containers.flush(this.id));
    try {
      await this.#lendAll(as);
      await this.#commitChange(next, [], () => index.putBorrower(as, made));
    } catch (error) {
      // Where that fails, too, nobody makes a file of that number before the next start has removed what is left of it.
      await index.commit(() => index.deleteLent(as));
      this.returned(as);
      this.#parts.arriving.delete(as);
      throw error;
    }
    this.#parts.arriving.delete(as);
    await this.#syncOrFail(this.#flushIndex());
  }

  /** Some at a time: other files go on in between, and this one does not change before all are there. */
  async #lendAll(borrower: FileId): Promise<void> {
    const { index } = this.#parts;
    const lent: number[] = [];
    await index.commit(() => index.deleteLent(borrower, true));
    for await (const rows of this.#walk(-1, Number.MAX_SAFE_INTEGER, LENT_PER_TURN)) {
      await index.commit(() =>
        index.lendObjects(borrower, this.id, rows[0]?.index ?? 0, rows.at(-1)?.index ?? 0),
      );
      if (this.#slots === null) continue;
      for (const { slot } of rows) {
        this.#lent.set(slot, (this.#lent.get(slot) ?? 0) + 1);
        lent.push(slot);
      }
    }
    if (this.#slots !== null) this.#lentTo.set(borrower, lent);
  }

  /** What becomes of objects of which a part is taken away, or all that they have. */
  async #clearEdges(
    edges: readonly number[],
    removed: Removed,
    seq: number,
  ): Promise<(readonly [ObjectRow, ObjectRow | null])[]> {
    const changes: (readonly [ObjectRow, ObjectRow | null])[] = [];
    try {
      for (const index of edges) {
        const row = this.#parts.index.object(this.id, index);
        if (row === null) continue;
        const part = removedWithin(removed, index, row.length, this.objectBytes);
        if (part.from >= part.to) continue;
        if (part.from === 0 && part.to === row.length) changes.push([row, null]);
        else changes.push([row, await this.#copyWithout(row, part, seq)]);
      }
    } catch (error) {
      for (const [, after] of changes) if (after !== null) this.#freeSlot(after.slot);
      throw error;
    }
    return changes;
  }

  /**
   * In a slot of its own: where an object is cut, the bytes behind would otherwise be overwritten by the next append, and
   * where zeros come into it, now, although the synced state may still have them.
   */
  async #copyWithout(row: ObjectRow, part: Removed, seq: number): Promise<ObjectRow> {
    const slots = this.#slots as SlotMap;
    const copied = await this.#parts.containers.use(this.id, true, async (container) => {
      const whole = await readSoundRow(this.#parts, container, this.id, row, this.objectBytes);
      const bytes = bytesWithout(whole, part);
      const { length } = bytes;
      const slot = this.#takeSlots(slots, 1, -1);
      try {
        await container.write([{ position: slot * this.objectBytes, buffers: [bytes], byteCount: length }]);
      } catch (error) {
        this.#freeSlot(slot);
        throw error;
      }
      const versionEpoch = this.state.record.installed.counter;
      return { index: row.index, versionEpoch, versionSeq: seq, length, crc32: crc32Of([bytes]), slot };
    });
    assert(copied !== null, 'The container was made');
    return copied;
  }

  #assertInstalled(item: ApplyItem): void {
    assert(epochEquals(item.epoch, this.state.record.installed), 'Operations belong to the installed epoch');
  }

  // --- another replica's state ---------------------------------------------------------------------------------

  async #stageBatch(items: readonly StageItem[]): Promise<void> {
    const slots = this.#slots ?? (await this.#loadSlots());
    const good: { item: StageItem; row: ObjectRow }[] = [];
    const placed: number[] = [];
    for (const item of items) {
      const { entry, bytes } = item.object;
      const fits = entry.length === bytes.length && bytes.length <= this.objectBytes;
      if (!fits || (item.isLost !== true && crc32Of([bytes]) !== entry.crc32)) {
        const what = `Object ${entry.index} of file ${this.id}, fetched from another replica,`;
        item.reject(new ServiceError('integrity', `${what} does not match its checksum`));
        continue;
      }
      const near = this.#lastPlaced.index === entry.index - 1 ? this.#lastPlaced.slot + 1 : -1;
      const slot = this.#takeSlots(slots, 1, near);
      placed.push(slot);
      this.#lastPlaced = { index: entry.index, slot };
      const { index, versionEpoch, versionSeq, length, crc32 } = entry;
      good.push({ item, row: { index, versionEpoch, versionSeq, length, crc32, slot } });
    }
    if (good.length === 0) return;
    try {
      await this.#parts.containers.use(this.id, true, (container) =>
        container.write(
          good.map(({ item, row }) => ({
            position: row.slot * this.objectBytes,
            buffers: [item.object.bytes],
            byteCount: row.length,
          })),
        ),
      );
    } catch (cause) {
      for (const slot of placed) this.#freeSlot(slot);
      const error = storageError(`Cannot stage objects of file ${this.id}`, cause);
      for (const { item } of good) item.reject(error);
      return;
    }
    for (const { item, row } of good) {
      const before = this.#staged.get(row.index);
      if (before !== undefined) this.#freeSlot(before.slot);
      this.#staged.set(row.index, row);
      item.resolve();
    }
  }

  /** First the contents, then the row: wherever the row is found, it is whole. */
  async #repair({ entry, bytes }: FetchedObject): Promise<void> {
    const row = this.#parts.index.object(this.id, entry.index);
    if (row === null || !sameObject(row, entry)) return;
    if (bytes.length !== row.length || crc32Of([bytes]) !== row.crc32) {
      const what = `Object ${entry.index} of file ${this.id}, fetched from another replica,`;
      throw new ServiceError('integrity', `${what} does not match its checksum`);
    }
    const slots = this.#slots ?? (await this.#loadSlots());
    const slot = this.#takeSlots(slots, 1, -1);
    try {
      await this.#parts.containers.use(this.id, true, async (container) => {
        const position = slot * this.objectBytes;
        await container.write([{ position, buffers: [bytes], byteCount: bytes.length }]);
        await this.#syncOrFail(container.flush());
      });
      await this.#commit(this.state, [], () => this.#parts.index.putObject(this.id, { ...row, slot }));
    } catch (error) {
      this.#freeSlot(slot);
      throw error;
    }
    await this.#syncOrFail(this.#parts.index.flush());
    const held = this.#heldSlots.get(row.slot);
    if (held === undefined) this.#freeSlot(row.slot);
    else this.#retired.push({ slot: row.slot, generation: held });
    this.#heldSlots.delete(row.slot);
  }

  async #install(item: InstallItem): Promise<void> {
    const { epoch, seq, sessions, base } = item;
    const next = fileStateInstall(this.state, epoch, seq, sessions, base, this.#parts.start);
    if (base !== null && this.#slots === null) await this.#loadSlots();
    const plan = base === null ? NO_PLAN : await this.#planInstall(base);
    const changes = plan.deletes.map((row): RowChange => [row, null]);
    const ownRows = new Map(plan.dropped.map((row) => [row.index, row]));
    for (const row of plan.puts) changes.push([ownRows.get(row.index) ?? null, row]);
    // A new file has nothing to lose: where the stamp is gone after a loss of power, so is all that
    // was written under it and not synced, and whoever syncs that syncs the stamp along.
    const isNew = base === null && seq === 0;
    // First the contents, then the transaction: wherever it is found, it is whole, and needs no undo.
    if (!isNew) await this.#syncOrFail(this.#parts.containers.flush(this.id));
    await this.#commit(next, changes, () => {
      const { index } = this.#parts;
      for (const row of plan.deletes) index.deleteObject(this.id, row.index);
      for (const row of plan.puts) index.putObject(this.id, row);
      index.dropGenerations(this.id, Number.MAX_SAFE_INTEGER);
    });
    if (!isNew) await this.#syncOrFail(this.#parts.index.flush());
    this.#beginGenerations(plan, seq);
  }

  /** An installation is stored: now only its state refers to slots. */
  #beginGenerations(plan: InstallPlan, seq: number): void {
    this.#generation++;
    this.#baseSeq = seq;
    this.#generationSaved = false;
    this.#unsyncedBytes = 0;
    this.#durableGeneration = this.#generation;
    this.#olderGenerations = false;
    for (const { slot } of [...plan.dropped, ...this.#retired]) this.#freeSlot(slot);
    this.#retired = [];
    this.#heldSlots.clear();
    for (const row of plan.puts) this.#staged.delete(row.index);
    for (const row of this.#staged.values()) this.#freeSlot(row.slot);
    this.#staged.clear();
    this.#lastPlaced = { index: -2, slot: -2 };
    this.#trimIfWorthwhile();
  }

  #planInstall(base: FileDescription | FileDifference): Promise<InstallPlan> {
    return 'changes' in base ? this.#planDifference(base) : this.#planWhole(base.objects);
  }

  async #planDifference({ from, changes }: FileDifference): Promise<InstallPlan> {
    const { installed, seq } = this.state.record;
    assert(
      epochEquals(from.epoch, installed) && from.seq === seq,
      'A difference is to the state that is here',
    );
    const puts: ObjectRow[] = [];
    const deletes: ObjectRow[] = [];
    const dropped: ObjectRow[] = [];
    let lookups = 0;
    for (const [index, entry] of changes) {
      if (++lookups % LOOKUPS_PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      const mine = this.#parts.index.object(this.id, index);
      if (mine !== null) dropped.push(mine);
      if (entry === null) {
        if (mine !== null) deletes.push(mine);
        continue;
      }
      const staged = this.#staged.get(index);
      assert(
        staged !== undefined && sameObject(staged, entry),
        `Object ${index} of the difference is staged`,
      );
      puts.push(staged);
    }
    return { puts, deletes, dropped };
  }

  async #planWhole(objects: readonly ObjectEntry[]): Promise<InstallPlan> {
    const own = new Map<number, ObjectRow>();
    for await (const rows of this.#walk(-1)) for (const row of rows) own.set(row.index, row);
    const puts: ObjectRow[] = [];
    const dropped: ObjectRow[] = [];
    for (const entry of objects) {
      const mine = own.get(entry.index);
      const staged = this.#staged.get(entry.index);
      own.delete(entry.index);
      if (staged !== undefined && sameObject(staged, entry)) {
        puts.push(staged);
        if (mine !== undefined) dropped.push(mine);
      } else {
        assert(
          mine !== undefined && sameObject(mine, entry),
          `Object ${entry.index} of the base is staged, or here already`,
        );
      }
    }
    const deletes = [...own.values()];
    dropped.push(...deletes);
    return { puts, deletes, dropped };
  }

  // --- the end ---------------------------------------------------------------------------------------------------

  async #remove(): Promise<void> {
    this.removed = true;
    if (this.#pins.size > 0) {
      await new Promise<void>((resolve) => {
        this.#unpinned = resolve;
      });
    }
    try {
      await this.#parts.index.commit(() => this.#parts.index.deleteFile(this.id));
    } catch (error) {
      this.removed = false;
      throw error;
    }
    this.unborn = false;
    // The name goes once it is certain that nothing will look for it again.
    await this.#syncOrFail(this.#parts.index.flush());
    // Who borrows of it needs its container: the last of them removes it.
    if (this.#parts.index.borrowers(this.id).length === 0) {
      await this.#parts.containers.unlink(this.id);
      await this.#parts.index.commit(() => this.#parts.index.forgetRemoved(this.id));
    }
    if (this.state.lender !== 0) await this.#parts.returned(this.state.lender as FileId, this.id);
  }

  /** What the borrower had may be used again: nobody looks for it any more. */
  returned(borrower: FileId): void {
    for (const slot of this.#lentTo.get(borrower) ?? []) {
      const count = (this.#lent.get(slot) as number) - 1;
      if (count > 0) this.#lent.set(slot, count);
      else {
        this.#lent.delete(slot);
        if (this.#onlyLent.delete(slot)) this.#freeSlot(slot);
      }
    }
    this.#lentTo.delete(borrower);
    this.#trimIfWorthwhile();
  }

  #lend(borrower: FileId): void {
    const slots = this.#parts.index.borrowedSlots(borrower);
    this.#lentTo.set(borrower, slots);
    for (const slot of slots) this.#lent.set(slot, (this.#lent.get(slot) ?? 0) + 1);
  }

  /** Gives the free end of the container back to the disk. */
  async #trim(): Promise<void> {
    const slots = this.#slots;
    if (slots === null) return;
    await this.#parts.containers.use(this.id, false, async (container) => {
      const neededBytes = slots.end * this.objectBytes;
      if (container.sizeBytes > neededBytes) await container.truncate(neededBytes);
    });
  }

  // --- commits and syncs -------------------------------------------------------------------------------------------

  async #commit(next: FileState, changes: readonly RowChange[], change: () => void): Promise<void> {
    await this.#parts.index.commit(() => {
      change();
      this.#parts.index.putFile(this.id, next);
    });
    this.unborn = false;
    this.state = next;
    this.#digest(changes);
  }

  /** A commit whose contents are not synced: the state before stays known until they are. */
  async #commitChange(next: FileState, changes: readonly RowChange[], change: () => void): Promise<void> {
    const before = this.state;
    const save = !this.#generationSaved;
    const forget = save && this.#olderGenerations && this.#durableGeneration >= 0;
    await this.#commit(next, changes, () => {
      const { index } = this.#parts;
      if (forget) index.dropGenerations(this.id, this.#durableGeneration);
      if (save) index.putGeneration(this.id, this.#generation, before);
      change();
    });
    this.#generationSaved = true;
    if (forget) this.#olderGenerations = false;
  }

  /** Everything applied so far survives loss of power when it resolves. */
  async #makeDurable(): Promise<void> {
    if (this.#generationSaved) {
      this.#generation++;
      this.#baseSeq = this.state.record.seq;
      this.#generationSaved = false;
      this.#unsyncedBytes = 0;
    }
    const generation = this.#generation;
    if (generation <= this.#durableGeneration) return;
    await this.#parts.containers.flush(this.id);
    await this.#parts.index.flush();
    this.#generationDurable(generation);
  }

  #flushIndex(): Promise<void> {
    return this.#parts.index.flush();
  }

  async #syncOrFail(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (cause) {
      this.#parts.fail(cause);
      throw cause;
    }
  }

  #generationDurable(generation: number): void {
    if (generation <= this.#durableGeneration) return;
    this.#durableGeneration = generation;
    this.#olderGenerations = true;
    const stillNeeded = [];
    for (const retired of this.#retired) {
      if (retired.generation < generation) this.#freeSlot(retired.slot);
      else stillNeeded.push(retired);
    }
    this.#retired = stillNeeded;
    for (const [slot, held] of this.#heldSlots) if (held < generation) this.#heldSlots.delete(slot);
    this.#trimIfWorthwhile();
  }

  #trimIfWorthwhile(): void {
    const slots = this.#slots;
    if (slots === null || slots.end >= this.#placedEnd) return;
    if (slots.end > 0 && (this.#placedEnd - slots.end) * this.objectBytes < TRIM_BYTES_MIN) return;
    this.#placedEnd = slots.end;
    this.submitOwn('trim');
  }

  #count(byteCount: number): void {
    this.#unsyncedBytes += byteCount;
    if (this.#unsyncedBytes < UNSYNCED_BYTES_MAX) return;
    this.#unsyncedBytes = 0;
    this.submitOwn('flush');
  }

  // --- slots ---------------------------------------------------------------------------------------------------------

  /** Whether the state of the present generation has this version of the object. */
  #inBase(row: ObjectRow): boolean {
    return row.versionEpoch !== this.state.record.installed.counter || row.versionSeq <= this.#baseSeq;
  }

  /** The committed state no longer refers to the row's slot; a generation may. */
  #dropSlot(row: ObjectRow): void {
    const held = this.#heldSlots.get(row.slot);
    if (this.#inBase(row)) this.#retired.push({ slot: row.slot, generation: this.#generation });
    else if (held !== undefined) this.#retired.push({ slot: row.slot, generation: held });
    else this.#freeSlot(row.slot);
    this.#heldSlots.delete(row.slot);
  }

  #takeSlots(slots: SlotMap, count: number, near: number): number {
    const first = slots.takeRun(count, near);
    this.#placedEnd = Math.max(this.#placedEnd, slots.end);
    return first;
  }

  /** A borrowed slot is given back when the whole replica goes. */
  #freeSlot(slot: number): void {
    if (slot < 0) return;
    if (this.#lent.has(slot)) {
      this.#onlyLent.add(slot);
      return;
    }
    if (this.#pins.has(slot)) this.#freeWhenUnpinned.add(slot);
    else this.#slots?.free(slot);
  }

  async #loadSlots(): Promise<SlotMap> {
    const slots = new SlotMap();
    for await (const rows of this.#walk(-1)) for (const row of rows) if (row.slot >= 0) slots.take(row.slot);
    for (const { slot, generation } of this.#parts.index.undoSlots(this.id)) {
      if (slot < 0) continue;
      if (slots.has(slot)) {
        this.#heldSlots.set(slot, generation);
      } else {
        slots.take(slot);
        this.#retired.push({ slot, generation });
      }
    }
    for (const borrower of this.#parts.index.borrowers(this.id)) {
      this.#lend(borrower);
      for (const slot of this.#lentTo.get(borrower) ?? []) {
        if (slots.has(slot)) continue;
        slots.take(slot);
        this.#onlyLent.add(slot);
      }
    }
    this.#slots = slots;
    this.#placedEnd = slots.end;
    return slots;
  }

  /** The objects after `after`, up to `last`, some at a time, with a turn of the event loop in between. */
  async *#walk(
    after: number,
    last = Number.MAX_SAFE_INTEGER,
    countMax = ROWS_PER_TURN,
  ): AsyncGenerator<ObjectRow[]> {
    let seen = after;
    for (;;) {
      const rows = this.#parts.index.objectsUpTo(this.id, seen + 1, last, countMax);
      if (rows.length > 0) yield rows;
      if (rows.length < countMax) return;
      seen = (rows.at(-1) as ObjectRow).index;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

const NO_SESSIONS = new Uint8Array(0);
/** Whether an operation is applied by itself, in a transaction that no other shares. */
function isAlone(operation: FileOperation): boolean {
  return operation.kind === 'preserve';
}

const NO_PLAN: InstallPlan = { puts: [], deletes: [], dropped: [] };

export function sameObject(a: ObjectEntry, b: ObjectEntry): boolean {
  return (
    a.versionEpoch === b.versionEpoch &&
    a.versionSeq === b.versionSeq &&
    a.length === b.length &&
    a.crc32 === b.crc32
  );
}

/** @returns the objects that go whole, and those beside them of which bytes may stay */
function objectsRemoved(
  { from, to }: Removed,
  objectBytes: number,
): { readonly first: number; readonly last: number; readonly edges: readonly number[] } {
  const first = Math.ceil(from / objectBytes);
  const last = to === Infinity ? Number.MAX_SAFE_INTEGER : Math.floor(to / objectBytes) - 1;
  const edges = new Set<number>();
  if (from % objectBytes !== 0) edges.add(first - 1);
  if (to !== Infinity && to % objectBytes !== 0) edges.add(last + 1);
  return { first, last, edges: [...edges] };
}

function operationBytes(operation: FileOperation): number {
  return partsWritten(operation).reduce((sum, { bytes }) => sum + bytes.length, 0);
}

/** Reads an object whole, and checks it. */
export async function readObjectRow(
  container: Container,
  file: FileId,
  row: ObjectRow,
  objectBytes: number,
): Promise<Uint8Array> {
  const bytes = Buffer.allocUnsafeSlow(row.length);
  const count = await container.read(bytes, row.slot * objectBytes);
  checkObject(file, row, bytes, count);
  return bytes;
}

/** As `readObjectRow`, and where the object is damaged, the bytes of another replica. */
export async function readSoundRow(
  parts: Pick<StoreParts, 'mend'>,
  container: Container,
  file: FileId,
  row: ObjectRow,
  objectBytes: number,
): Promise<Uint8Array> {
  try {
    return await readObjectRow(container, file, row, objectBytes);
  } catch (cause) {
    return parts.mend(file, row, cause);
  }
}

/** @throws ServiceError `integrity` where the bytes are not those that were written */
export function checkObject(file: FileId, row: ObjectRow, bytes: Uint8Array, count: number): void {
  if (count < row.length) {
    throw new ServiceError(
      'integrity',
      `Cannot read object ${row.index} of file ${file}: ${count} of its ${row.length} bytes are on the disk`,
    );
  }
  if (crc32Of([bytes]) !== row.crc32) {
    throw new ServiceError(
      'integrity',
      `Cannot read object ${row.index} of file ${file}: its bytes do not match their checksum`,
    );
  }
}
