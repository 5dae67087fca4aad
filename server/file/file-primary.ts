import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochCompare } from '../../replica/epoch.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { ContentVersion, LiveMark, Preservation } from '../../wire/catalog-api.ts';
import { encodeFileOperation, FILE_BYTES_MAX, type WritePart } from '../../wire/file-operation.ts';
import type { WriteGuard } from '../../wire/http-api.ts';
import type { LocksHeld } from '../../wire/lock-api.ts';
import type { Clock } from '../clock.ts';
import type { Committed, ReplicaDriver } from '../replica-driver.ts';
import type { ChangeRequest, Hole } from '../services.ts';
import type { FileStore } from '../storage/store.ts';
import { ChangesInFlight } from './changes-in-flight.ts';
import { assertGuard, assertUnwritten } from './contents-guard.ts';
import { endsInChange, inheritsMark } from './live-mark.ts';
import { type ByteRange, MergedObjects } from './merged-objects.ts';
import { NameFlush } from './name-flush.ts';
import { assertDoneBefore } from './sealed-file.ts';
import { decodeWriteOutcome, encodeWriteOutcome, type WriteOutcome } from './write-outcome.ts';

const BUSY_RETRY_MS = 500;

/** What a file's primary needs of the catalog. */
export interface FileInCatalog {
  /** The catalog certainly asks this file's primary for its size already. */
  readonly isLive: boolean;
  /** Where it is live: the size that the file may grow to before the catalog is asked; infinite without a quota. */
  readonly allowedBytes: number;
  /** Where it is live: when the inode was changed last, as this was learned; null where that is not known. */
  readonly changedNs: string | null;
  /** Where it is live: bytes are only appended to it. Absent: it is not known to be so. */
  readonly appendOnly?: boolean;
  /**
   * Makes the catalog ask this file's primary for its size from now on.
   *
   * @param growTo the size that the file is about to have, where it may not have that yet
   * @throws ServiceError `quota-exceeded`
   */
  markLive(mark: LiveMark, growTo?: number): Promise<Marked>;
  /** Larger than any before in this process: an epoch may be gone on with, and no two marks of it have one number. */
  nextTurn(): number;
  /** Where it is live: @see NameFlush. */
  readonly markedIn: number | null;
  /** All commands answered so far survive power loss when it resolves. */
  flush(): Promise<void>;
  /** The newest epoch of the catalog that is known without asking. */
  epoch(): number;
  /** Whether the catalog asks for the size of the file, or has these contents. */
  knows(contents: ContentVersion): Promise<boolean>;
}

/** What the catalog says of a file when it has marked it. */
export interface Marked {
  /** What the file may grow to from now on. */
  readonly allowedBytes: number;
  /** When the inode was changed last; null where that is not known. */
  readonly changedNs: string | null;
  /** Bytes are only appended to it. Absent: it may change in every way. */
  readonly appendOnly?: boolean;
}

/** A change of the contents that is committed. */
export interface Change extends Committed {
  /** The version that it has changed; absent where the change was made before, for then that is not known any more. */
  readonly before?: ContentVersion;
}

/**
 * What a primary keeps in memory about a file for as long as its epoch lasts: the state after the
 * newest operation sequenced (perhaps not committed yet), against which the next one is resolved,
 * and whether the catalog knows that sizes are to be asked for here.
 */
export class FilePrimary {
  readonly epoch: Epoch;
  /** The version of the contents with which the epoch began, and the operation with which it did. */
  readonly #inherited: ContentVersion;
  readonly #inheritedSeq: number;
  readonly #file: FileId;
  readonly #driver: ReplicaDriver;
  readonly #store: FileStore;
  readonly #clock: Clock;
  readonly #catalog: FileInCatalog;
  readonly #assertLocked: (under: LocksHeld) => void;
  readonly #merged: MergedObjects;
  readonly #nameFlush: NameFlush;
  #sizeBytes: number;
  #modifiedNs: bigint;
  #contents: ContentVersion;
  /**
   * What the file may grow to before the catalog is asked. An earlier primary's mark is taken over without waiting for the catalog, but not
   * what was allowed with it, which is not known here: the first growth asks.
   */
  #allowedBytes: number;
  /**
   * When the inode was changed last before the mark was set; null where that is not known. While the mark is set, no command that
   * expects certain contents changes the names of the file.
   */
  #changedNs: string | null;
  /**
   * The file may only be appended to, as the catalog said when it set the mark. Flags are set only while there is no mark. A mark that an
   * earlier primary was given is not taken over where its last change says that the file was append-only.
   */
  #appendOnly: boolean;
  readonly #inFlight: ChangesInFlight;
  #live: Promise<void> | null = null;
  /** The mark is an earlier primary's: it is set again, only in case that the catalog lost it with its power. */
  #unconfirmed = false;
  /** Ends when that mark is set again, with the names that the file has. */
  #confirming: Promise<void> = Promise.resolve();
  /** Of the last mark that was asked for in this epoch. */
  #turn = 0;
  #settling: Promise<void> = Promise.resolve();
  /** Resolves when nothing changes the contents any more; null while they may change. */
  #sealing: Promise<void> | null = null;
  /** The catalog may know less than this primary: there is something to settle before the lease is given back. */
  unsettled = true;

  /** @param assertLocked throws where the client has lost the locks under which it changes the file */
  constructor(
    driver: ReplicaDriver,
    store: FileStore,
    clock: Clock,
    catalog: FileInCatalog,
    assertLocked: (under: LocksHeld) => void = () => undefined,
  ) {
    this.#assertLocked = assertLocked;
    this.#file = driver.file;
    this.#driver = driver;
    this.#store = store;
    this.#clock = clock;
    this.#catalog = catalog;
    this.#merged = new MergedObjects(driver.file, store);
    this.#inFlight = new ChangesInFlight(driver.file);
    const flushing = {
      flush: () => catalog.flush(),
      epoch: () => catalog.epoch(),
      knows: () => catalog.knows(this.#contents),
      mark: () => this.#markAnew(),
    };
    this.#nameFlush = new NameFlush(flushing, catalog.markedIn);
    this.epoch = driver.epoch;
    const attributes = store.attributes(this.#file);
    if (catalog.isLive) this.#live = Promise.resolve();
    else if (
      inheritsMark(attributes, driver.orderedSeq, driver.inheritedFrom) &&
      !wasAppendOnly(store, driver.file, driver.orderedSeq)
    ) {
      this.#live = Promise.resolve();
      this.#unconfirmed = true;
    }
    this.#allowedBytes = catalog.isLive ? catalog.allowedBytes : 0;
    this.#changedNs = catalog.isLive ? catalog.changedNs : null;
    this.#appendOnly = catalog.isLive && catalog.appendOnly === true;
    this.#sizeBytes = attributes.sizeBytes;
    this.#modifiedNs = attributes.modifiedNs;
    this.#contents = { epoch: attributes.versionEpoch, seq: attributes.versionSeq };
    this.#inherited = this.#contents;
    this.#inheritedSeq = driver.orderedSeq;
    if (attributes.seal !== 'open') this.#sealing = Promise.resolve();
  }

  /**
   * The version of the contents after a change that is answered, perhaps once more. Of what is from an earlier epoch it is not known from which, but for
   * the last change; the others are not from a later one. Whoever takes the largest version for the newest would otherwise believe what they tell of the
   * size over what came after them.
   *
   * @param seq of a change that is committed
   */
  versionOf(seq: number): ContentVersion {
    return { epoch: seq > this.#inheritedSeq ? this.epoch.counter : this.#inherited.epoch, seq };
  }

  /**
   * @param guard what the file must be just before this write
   * @param tells which end of the bytes the result names: who copies wants to know how far that came
   * @throws ServiceError `precondition-failed` where the guard does not hold
   */
  async write(
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    { guard, tells }: { readonly guard: WriteGuard; readonly tells: 'begin' | 'end' },
  ): Promise<Change> {
    const done = await this.#admit(request, bytes.length);
    try {
      if (guard.changedNs !== undefined) await this.#confirming;
      const range = (): ByteRange => {
        const from = offset === 'append' ? this.#sizeBytes : offset;
        return { from, to: from + bytes.length };
      };
      while (this.#mustWait(range().to, [range()])) await this.#prepare(range().to, [range()]);
      // From here to `submit` nothing is awaited: the operation is resolved against the state it will follow.
      const now = { sizeBytes: this.#sizeBytes, contents: this.#contents, changedNs: this.#changedNs };
      assertGuard(this.#file, guard, now);
      // Kept with the write: a repeated request gets the same answer, also when the file has no name any more.
      const isSame = guard.changedNs !== undefined && guard.changedNs === this.#changedNs;
      const sameNames = isSame ? ({ sameNames: true } as const) : {};
      const at = offset === 'append' ? this.#sizeBytes : offset;
      if (at > FILE_BYTES_MAX - bytes.length) {
        throw new ServiceError(
          'too-large',
          `Cannot append to file ${this.#file}: it ends at ${FILE_BYTES_MAX} bytes`,
        );
      }
      this.#assertAppends([{ from: at, to: at + bytes.length }]);
      const sizeBytes = Math.max(this.#sizeBytes, at + bytes.length);
      const modifiedNs = this.#nextModifiedNs();
      const body = encodeFileOperation({ kind: 'write', offset: at, bytes, modifiedNs });
      const told = tells === 'begin' ? at : at + bytes.length;
      return await this.#submit(request, body, { offset: told, sizeBytes, modifiedNs, ...sameNames });
    } finally {
      done();
    }
  }

  /** Bytes at several places, as one operation. `offset` of the outcome is that of the first. */
  async writeParts(request: ChangeRequest, parts: readonly WritePart[]): Promise<Change> {
    const done = await this.#admit(
      request,
      parts.reduce((sum, { bytes }) => sum + bytes.length, 0),
    );
    try {
      const ranges = parts.map(({ offset, bytes }) => ({ from: offset, to: offset + bytes.length }));
      const end = Math.max(...ranges.map(({ to }) => to));
      while (this.#mustWait(end, ranges)) await this.#prepare(end, ranges);
      this.#assertAppends(ranges);
      const sizeBytes = Math.max(this.#sizeBytes, end);
      const modifiedNs = this.#nextModifiedNs();
      const body = encodeFileOperation({ kind: 'write-parts', parts, modifiedNs });
      return await this.#submit(request, body, { offset: parts[0]?.offset ?? 0, sizeBytes, modifiedNs });
    } finally {
      done();
    }
  }

  async punch(request: ChangeRequest, { from, to, grows }: Hole): Promise<Change> {
    const done = await this.#admit(request, 0);
    try {
      const end = grows ? to : 0;
      while (this.#mustWait(end, [{ from, to }])) await this.#prepare(end, [{ from, to }]);
      if (from < to || !grows) this.#assertAppends([{ from, to }]);
      const sizeBytes = grows ? Math.max(this.#sizeBytes, to) : this.#sizeBytes;
      const modifiedNs = this.#nextModifiedNs();
      const body = encodeFileOperation({ kind: 'punch', from, to, grows, modifiedNs });
      return await this.#submit(request, body, { offset: to, sizeBytes, modifiedNs });
    } finally {
      done();
    }
  }

  async truncate(request: ChangeRequest, sizeBytes: number): Promise<Change> {
    const done = await this.#admit(request, 0);
    try {
      const cut = (): ByteRange[] =>
        sizeBytes < this.#sizeBytes ? [{ from: sizeBytes, to: Number.POSITIVE_INFINITY }] : [];
      while (this.#mustWait(sizeBytes, cut())) await this.#prepare(sizeBytes, cut());
      if (this.#appendOnly) throw this.#appendOnlyError();
      const modifiedNs = this.#nextModifiedNs();
      const body = encodeFileOperation({ kind: 'truncate', sizeBytes, modifiedNs });
      return await this.#submit(request, body, { offset: sizeBytes, sizeBytes, modifiedNs });
    } finally {
      done();
    }
  }

  /**
   * Seals the file: changes under way still count, and those that come from now on are refused. Called
   * again, it continues with what is missing.
   *
   * @param expected the contents that the caller has written; any where absent
   * @throws ServiceError `precondition-failed` where the file was written since
   * @returns the last number of the sequence, which every replica should have
   */
  async seal(expected?: ContentVersion): Promise<number> {
    this.#sealing ??= this.#seal(expected).catch((error: unknown) => {
      this.#sealing = null;
      throw error;
    });
    await this.#sealing;
    // Only what no loss of power can take back may be told to be final.
    await this.#driver.flush();
    if (this.#store.attributes(this.#file).seal !== 'final') await this.#submitSeal(true);
    return this.#driver.orderedSeq;
  }

  async #seal(expected: ContentVersion | undefined): Promise<void> {
    await this.#inFlight.ended();
    // A request that comes late, or a close while another client writes, seals no contents that its sender has not seen.
    if (expected !== undefined) assertUnwritten(this.#file, expected, this.#contents);
    if (this.#store.attributes(this.#file).seal === 'open') await this.#submitSeal(false);
  }

  #submitSeal(final: boolean): Promise<Committed> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) return Promise.reject(deposed(this.#file));
    const body = encodeFileOperation({ kind: 'seal', final });
    return this.#driver.submit({ request: null, result: new Uint8Array(0), body });
  }

  /**
   * Runs `settle` while no change is under way; changes that come meanwhile wait until the catalog
   * asks this primary again. `mark` is what the settled state is bound to: if it arrives after the
   * file was marked anew, the catalog does not listen.
   */
  settle(settle: (mark: LiveMark) => Promise<void>): Promise<void> {
    this.#live = null;
    const work = this.#settling.then(async () => {
      await this.#inFlight.ended();
      this.unsettled = false;
      try {
        await this.#announceSettling();
        // Where the epoch was gone on with, the mark that stands may be one of an earlier span of it.
        if (this.#turn === 0) this.#turn = this.#catalog.nextTurn();
        await settle({ epoch: this.epoch.counter, turn: this.#turn });
      } catch (error) {
        this.unsettled = true;
        throw error;
      }
    });
    // A failed settling is its caller's to report; the next one is independent of it.
    this.#settling = work.then(
      () => undefined,
      () => undefined,
    );
    return work;
  }

  #submitSettling(): Promise<Committed> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) return Promise.reject(deposed(this.#file));
    const body = encodeFileOperation({ kind: 'settling' });
    return this.#driver.submit({ request: null, result: new Uint8Array(0), body });
  }

  /** Resolves when no later primary can miss that the mark may have ended. */
  async #announceSettling(): Promise<void> {
    const owes = endsInChange(this.#store.attributes(this.#file), this.#driver.orderedSeq);
    if (!this.#driver.leads) {
      // Also where it stands there already: that a majority takes it says that nobody has led since.
      await this.#submitSettling();
      return;
    }
    // A majority is enough, also where writes need all; whether it has it is asked below.
    if (owes) this.#submitSettling().catch(() => undefined);
    // What stands behind the last change tells the same, whatever it is, but only once it cannot vanish.
    await this.#driver.committed(this.epoch, this.#driver.orderedSeq);
  }

  /**
   * The contents, as they are, become those of another file for ever at each replica that applies it, and survive loss of power at a majority
   * when it resolves.
   *
   * @returns `lost` where they are not those that are meant any more, `again` where the other file is here and has not them
   * @throws ServiceError `busy` while the file's members change
   */
  async preserve({ inode, contents }: Preservation): Promise<'preserved' | 'lost' | 'again'> {
    // First: what others have made of the contents, in an epoch before the one that is led now, is not known here.
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) throw deposed(this.#file);
    const { epoch, seq } = this.#contents;
    if (epoch !== contents.epoch || seq !== contents.seq) {
      // A primary whose lease is over has given up what it had: the next one may have the contents.
      if (!this.#driver.leads) throw deposed(this.#file);
      return 'lost';
    }
    if (this.#driver.view.joint !== undefined) throw moving(this.#file);
    const body = encodeFileOperation({ kind: 'preserve', as: inode as FileId, contents });
    const ordered = this.#driver.submit({ request: null, result: new Uint8Array(0), body });
    // A majority is enough, also where writes need all.
    ordered.catch(() => undefined);
    await this.#driver.committed(this.epoch, this.#driver.orderedSeq);
    await this.#driver.flush();
    if (this.#store.record(inode as FileId) === null) throw moving(this.#file);
    const { seal, versionEpoch, versionSeq } = this.#store.attributes(inode as FileId);
    return seal === 'final' && versionEpoch === epoch && versionSeq === seq ? 'preserved' : 'again';
  }

  /** The file's entry in the catalog, and the mark under which it is written, survive power loss. */
  nameFlushed(): Promise<void> {
    return this.#nameFlush.done();
  }

  /**
   * As `#enter`; where the file is sealed, only what was done before is let through, to be answered once more.
   *
   * @throws ServiceError `sealed`
   */
  async #admit(request: ChangeRequest, bytes: number): Promise<() => void> {
    for (;;) {
      const sealing = this.#sealing;
      if (sealing !== null) {
        const isSealed = await sealing.then(
          () => true,
          () => false,
        );
        if (!isSealed) continue;
        assertDoneBefore(this.#store, this.#file, request);
        return () => undefined;
      }
      const done = await this.#enter(bytes);
      if (this.#sealing === null) return done;
      done();
    }
  }

  /**
   * Waits until a change may take its place in the order: there is room, and the catalog asks this
   * primary for the size, so that nobody who sees the change is told the size before it.
   *
   * @returns what to call when the change is over
   */
  async #enter(bytes: number): Promise<() => void> {
    await this.#inFlight.reserve(bytes);
    try {
      for (;;) {
        const live = this.#live ?? this.#markAnew();
        await live;
        if (this.#live === live) break;
      }
      this.#confirmLive();
    } catch (error) {
      this.#inFlight.release(bytes);
      throw error;
    }
    // No await since the mark was compared: a settling that begins from now on waits for this change.
    return this.#inFlight.begin(bytes);
  }

  /** @returns the mark, under which changes wait that come from now on */
  #markAnew(): Promise<void> {
    const live = this.#settling
      .then(() => this.#markLive())
      .catch((error: unknown) => {
        if (this.#live === live) this.#live = null;
        throw error;
      });
    this.#live = live;
    return live;
  }

  #confirmLive(): void {
    if (!this.#unconfirmed) return;
    this.#confirming = this.#markLive();
    // A catalog without a primary of its own is told with the next change.
    this.#settling = this.#confirming.catch(() => {
      this.#unconfirmed = true;
    });
  }

  /** Whatever was settled under an earlier mark is void from then on. */
  async #markLive(): Promise<void> {
    this.#unconfirmed = false;
    this.unsettled = true;
    const turn = this.#catalog.nextTurn();
    this.#turn = turn;
    const epoch = this.#catalog.epoch();
    this.#changedNs = null;
    const {
      allowedBytes,
      changedNs,
      appendOnly = false,
    } = await this.#catalog.markLive({ epoch: this.epoch.counter, turn });
    // Where a later mark was set meanwhile, the file was settled in between, and what this one allowed has ended.
    if (this.#turn === turn) {
      this.#allowedBytes = allowedBytes;
      this.#changedNs = changedNs;
      this.#appendOnly = appendOnly;
    }
    this.#nameFlush.marked(epoch);
  }

  /** Whether something has to be done before a change can be ordered. Nothing is awaited between a no and the change. */
  #mustWait(sizeBytes: number, ranges: readonly ByteRange[]): boolean {
    return this.#isBeyond(sizeBytes) || this.#merged.unread(ranges).length > 0;
  }

  /** @throws ServiceError `quota-exceeded`, or `integrity` where bytes beside those that change are lost */
  async #prepare(sizeBytes: number, ranges: readonly ByteRange[]): Promise<void> {
    if (this.#isBeyond(sizeBytes)) await this.#askForGrowth(sizeBytes);
    else await this.#merged.read(this.#merged.unread(ranges));
  }

  /** Whether the catalog has to be asked before the file is of this size. Nothing is awaited between a no and the change. */
  #isBeyond(sizeBytes: number): boolean {
    return sizeBytes > this.#sizeBytes && sizeBytes > this.#allowedBytes;
  }

  /** @throws ServiceError `quota-exceeded` */
  async #askForGrowth(sizeBytes: number): Promise<void> {
    const mark = { epoch: this.epoch.counter, turn: this.#turn };
    this.#allowedBytes = (
      await this.#catalog.markLive(mark, Math.min(sizeBytes, FILE_BYTES_MAX))
    ).allowedBytes;
    if (this.#isBeyond(sizeBytes) && sizeBytes <= FILE_BYTES_MAX) {
      throw new ServiceError('internal', `The catalog allows file ${this.#file} less than it was asked for`);
    }
  }

  /** What is added begins where the file ends. @throws ServiceError `protected` where the file may only be appended to */
  #assertAppends(ranges: readonly ByteRange[]): void {
    if (!this.#appendOnly) return;
    let end = this.#sizeBytes;
    for (const { from, to } of ranges) {
      if (from !== end) throw this.#appendOnlyError();
      end = to;
    }
  }

  #appendOnlyError(): ServiceError {
    return new ServiceError('protected', `Cannot change file ${this.#file}: it is append-only`);
  }

  async #submit(request: ChangeRequest, body: Uint8Array, outcome: WriteOutcome): Promise<Change> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) throw deposed(this.#file);
    if (request.under !== undefined) this.#assertLocked(request.under);
    let before: ContentVersion | undefined;
    const told = this.#appendOnly ? ({ ...outcome, appendOnly: true } as const) : outcome;
    const committed = await this.#driver.submit({ request, result: encodeWriteOutcome(told), body }, () => {
      before = this.#contents;
      this.#sizeBytes = outcome.sizeBytes;
      this.#modifiedNs = outcome.modifiedNs;
      this.#contents = { epoch: this.epoch.counter, seq: this.#driver.orderedSeq };
      this.unsettled = true;
    });
    return before === undefined ? committed : { ...committed, before };
  }

  /** Strictly later than every change before, so that whoever compares times sees each change. */
  #nextModifiedNs(): bigint {
    const nowNs = this.#clock.wallNs();
    return nowNs > this.#modifiedNs ? nowNs : this.#modifiedNs + 1n;
  }
}

/** Whether the last change of a file was made while the file was append-only. @param seq of that change */
function wasAppendOnly(store: FileStore, file: FileId, seq: number): boolean {
  const sessions = store.record(file)?.sessions ?? new Uint8Array(0);
  const result = SessionTable.decode(sessions).lastResult(seq);
  return result !== null && decodeWriteOutcome(result).appendOnly === true;
}

function deposed(file: FileId): ServiceError {
  return new ServiceError('not-primary', `The primary of file ${file} changed meanwhile`);
}

function moving(file: FileId): ServiceError {
  return new ServiceError('busy', `Cannot preserve the contents of file ${file} while its members change`, {
    retryAfterMs: BUSY_RETRY_MS,
  });
}
