import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochCompare } from '../../replica/epoch.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { ContentVersion, LiveMark, Preservation } from '../../wire/catalog-api.ts';
import { encodeFileOperation, FILE_BYTES_MAX, type WritePart } from '../../wire/file-operation.ts';
import type { WriteGuard } from '../../wire/http-api.ts';
import type { LocksHeld } from '../../wire/lock-api.ts';
import type { Committed, ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { ChangeRequest, Hole } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import { ChangesInFlight } from './changes-in-flight.ts';
import { assertGuard, assertUnchanged } from './contents-guard.ts';
import { EntryFlush } from './entry-flush.ts';
import { endsInChange, inheritsMark } from './live-mark.ts';
import { type ByteRange, PartlyChangedObjects } from './partly-changed-objects.ts';
import { assertKnownRequest } from './sealed-file.ts';
import { decodeWriteOutcome, encodeWriteOutcome, type WriteOutcome } from './write-outcome.ts';

const BUSY_RETRY_MS = 500;

export interface CatalogEntry {
  readonly isLive: boolean;
  /** Of a live file: the size up to which it may grow without a query of the catalog; infinite without a quota. */
  readonly allowedBytes: number;
  readonly changedNs: string | null;
  readonly appendOnly?: boolean;
  /**
   * Makes the catalog ask this file's primary for its size.
   * @param growTo the size that the file is about to have, if it may not have that yet
   * @throws ServiceError `quota-exceeded`
   */
  markLive(mark: LiveMark, growTo?: number): Promise<MarkLimits>;
  /** Larger than any before in this process: an epoch may be resumed, and no two marks of it share a number. */
  nextMarkNumber(): number;
  /** An epoch of the catalog, not later than that in which it set the mark; null if unknown. */
  readonly markedInEpoch: number | null;
  flush(): Promise<void>;
  epoch(): number;
  knows(contents: ContentVersion): Promise<boolean>;
}

export interface MarkLimits {
  readonly allowedBytes: number;
  readonly changedNs: string | null;
  readonly appendOnly?: boolean;
}

export interface Change extends Committed {
  /** The version before the change; absent for a repeated change, because it is not known any more. */
  readonly before?: ContentVersion;
}

/**
 * State of a file at the server that orders its changes, for as long as its epoch lasts: the state after the newest
 * operation ordered (perhaps not committed yet), against which the next one is resolved, and the live mark.
 */
export class FilePrimary {
  readonly epoch: Epoch;
  readonly #inherited: ContentVersion;
  readonly #inheritedSeq: number;
  readonly #file: FileId;
  readonly #driver: ReplicaDriver;
  readonly #store: FileStore;
  readonly #clock: Clock;
  readonly #catalog: CatalogEntry;
  readonly #assertLocked: (under: LocksHeld) => void;
  readonly #merged: PartlyChangedObjects;
  readonly #nameFlush: EntryFlush;
  #sizeBytes: number;
  #modifiedNs: bigint;
  #contents: ContentVersion;
  /** 0 for a mark inherited from an earlier primary: the first growth asks the catalog. */
  #allowedBytes: number;
  /**
   * The inode's change time before the mark was set; null if unknown. While the mark is set, no command that expects
   * certain contents changes the directory entries of the file.
   */
  #changedNs: string | null;
  /**
   * As the catalog said when it set the mark: flags change only while there is no mark. A mark is not inherited if the
   * result of the file's last change says that the file was append-only.
   */
  #appendOnly: boolean;
  readonly #inFlight: ChangesInFlight;
  #live: Promise<void> | null = null;
  /** The mark is inherited: it is set again, in case the catalog lost it with its power. */
  #unconfirmed = false;
  /** Resolves when the inherited mark is set again, with the file's current change time. */
  #confirming: Promise<void> = Promise.resolve();
  #markNumber = 0;
  #settling: Promise<void> = Promise.resolve();
  /** Resolves when the contents can no longer change; null while they may. */
  #sealing: Promise<void> | null = null;
  /** The catalog may not know all changes: they are settled before the lease is released. */
  unsettled = true;

  /** @param assertLocked throws if the client has lost the locks under which it changes the file */
  constructor(
    driver: ReplicaDriver,
    store: FileStore,
    clock: Clock,
    catalog: CatalogEntry,
    assertLocked: (under: LocksHeld) => void = () => undefined,
  ) {
    this.#assertLocked = assertLocked;
    this.#file = driver.file;
    this.#driver = driver;
    this.#store = store;
    this.#clock = clock;
    this.#catalog = catalog;
    this.#merged = new PartlyChangedObjects(driver.file, store);
    this.#inFlight = new ChangesInFlight(driver.file);
    const flushing = {
      flush: () => catalog.flush(),
      epoch: () => catalog.epoch(),
      knows: () => catalog.knows(this.#contents),
      mark: () => this.#setMark(),
    };
    this.#nameFlush = new EntryFlush(flushing, catalog.markedInEpoch);
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
   * The version after an answered change, which may be answered again. Of changes of earlier epochs only the last one's
   * epoch is known; the others have at most that one. A larger version would make a client prefer an older size.
   */
  versionOf(seq: number): ContentVersion {
    return { epoch: seq > this.#inheritedSeq ? this.epoch.counter : this.#inherited.epoch, seq };
  }

  /**
   * Orders a write; resolves when it is committed.
   * @param returns which end of the bytes the result's `offset` is: for a copy, the end
   * @throws ServiceError `precondition-failed` if the guard does not hold
   */
  async write(
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    { guard, returns }: { readonly guard: WriteGuard; readonly returns: 'begin' | 'end' },
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
      // Kept with the write: a repeated request gets the same answer, also if the file has been unlinked since.
      const isSame = guard.changedNs !== undefined && guard.changedNs === this.#changedNs;
      const sameNames = isSame ? ({ sameNames: true } as const) : {};
      const at = offset === 'append' ? this.#sizeBytes : offset;
      if (at > FILE_BYTES_MAX - bytes.length) {
        throw new ServiceError(
          'too-large',
          `Cannot append to file ${this.#file}: it has the maximum size of ${FILE_BYTES_MAX} bytes`,
        );
      }
      this.#assertAppends([{ from: at, to: at + bytes.length }]);
      const sizeBytes = Math.max(this.#sizeBytes, at + bytes.length);
      const modifiedNs = this.#nextModifiedNs();
      const body = encodeFileOperation({ kind: 'write', offset: at, bytes, modifiedNs });
      const resultOffset = returns === 'begin' ? at : at + bytes.length;
      return await this.#submit(request, body, { offset: resultOffset, sizeBytes, modifiedNs, ...sameNames });
    } finally {
      done();
    }
  }

  /** Orders all parts as one operation. The result's `offset` is that of the first part. */
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
   * Seals the file: changes in progress still count, later ones are refused. A repeated call continues with what is
   * missing.
   * @param expected the contents that the caller has written; any if absent
   * @returns the last number of the sequence, which every replica should have
   * @throws ServiceError `precondition-failed` if the file was written since
   */
  async seal(expected?: ContentVersion): Promise<number> {
    this.#sealing ??= this.#seal(expected).catch((error: unknown) => {
      this.#sealing = null;
      throw error;
    });
    await this.#sealing;
    // The final seal may only cover what no loss of power can take back.
    await this.#driver.flush();
    if (this.#store.attributes(this.#file).seal !== 'final') await this.#submitSeal(true);
    return this.#driver.orderedSeq;
  }

  async #seal(expected: ContentVersion | undefined): Promise<void> {
    await this.#inFlight.allEnded();
    // A late request must not seal contents that its sender has not seen.
    if (expected !== undefined) assertUnchanged(this.#file, expected, this.#contents);
    if (this.#store.attributes(this.#file).seal === 'open') await this.#submitSeal(false);
  }

  #submitSeal(final: boolean): Promise<Committed> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) return Promise.reject(deposedError(this.#file));
    const body = encodeFileOperation({ kind: 'seal', final });
    return this.#driver.submit({ request: null, result: new Uint8Array(0), body });
  }

  /**
   * Ends the mark: runs `settle`, which reports to the catalog, while no change is in progress; later changes set a new
   * mark first. The catalog ignores a report with `mark` that arrives after a later mark.
   */
  settle(settle: (mark: LiveMark) => Promise<void>): Promise<void> {
    this.#live = null;
    const work = this.#settling.then(async () => {
      await this.#inFlight.allEnded();
      this.unsettled = false;
      try {
        await this.#announceSettling();
        // After a resumed epoch, the current mark may be from an earlier part of it.
        if (this.#markNumber === 0) this.#markNumber = this.#catalog.nextMarkNumber();
        await settle({ epoch: this.epoch.counter, turn: this.#markNumber });
      } catch (error) {
        this.unsettled = true;
        throw error;
      }
    });
    this.#settling = work.then(
      () => undefined,
      () => undefined,
    );
    return work;
  }

  #submitSettling(): Promise<Committed> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) return Promise.reject(deposedError(this.#file));
    const body = encodeFileOperation({ kind: 'settling' });
    return this.#driver.submit({ request: null, result: new Uint8Array(0), body });
  }

  /** Resolves when every later primary will learn that the mark may have ended. */
  async #announceSettling(): Promise<void> {
    const needsSettling = endsInChange(this.#store.attributes(this.#file), this.#driver.orderedSeq);
    if (!this.#driver.isPrimary) {
      // Even if the last operation is one already: a majority's acknowledgment shows that no later primary exists.
      await this.#submitSettling();
      return;
    }
    // A majority is enough, even if writes need all members; the wait below checks that it has it.
    if (needsSettling) this.#submitSettling().catch(() => undefined);
    // Any operation after the last change has the same effect, but only once it is committed.
    await this.#driver.untilReadable(this.epoch, this.#driver.orderedSeq);
  }

  /**
   * Has each replica preserve the current contents as those of another file. Resolves when they survive loss of power
   * at a majority.
   * @returns `lost` if the contents are not those of `contents` any more, `again` if the other file exists here with
   * other contents
   * @throws ServiceError `busy` while the file's members change
   */
  async preserve({ inode, contents }: Preservation): Promise<'preserved' | 'lost' | 'again'> {
    // First, because another primary may have changed the contents since this epoch.
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) throw deposedError(this.#file);
    const { epoch, seq } = this.#contents;
    if (epoch !== contents.epoch || seq !== contents.seq) {
      // A primary whose lease has ended has discarded its state: the next one may have the contents.
      if (!this.#driver.isPrimary) throw deposedError(this.#file);
      return 'lost';
    }
    if (this.#driver.view.joint !== undefined) throw movingError(this.#file);
    const body = encodeFileOperation({ kind: 'preserve', as: inode as FileId, contents });
    const ordered = this.#driver.submit({ request: null, result: new Uint8Array(0), body });
    // A majority is enough, even if writes need all members.
    ordered.catch(() => undefined);
    await this.#driver.untilReadable(this.epoch, this.#driver.orderedSeq);
    await this.#driver.flush();
    if (this.#store.record(inode as FileId) === null) throw movingError(this.#file);
    const { seal, versionEpoch, versionSeq } = this.#store.attributes(inode as FileId);
    return seal === 'final' && versionEpoch === epoch && versionSeq === seq ? 'preserved' : 'again';
  }

  /** Resolves when the file's entry in the catalog, and the mark under which it is written, survive loss of power. */
  flushEntry(): Promise<void> {
    return this.#nameFlush.flush();
  }

  /** As `#enter`; a sealed file admits only repeated changes, to repeat their answers. @throws ServiceError `sealed` */
  async #admit(request: ChangeRequest, bytes: number): Promise<() => void> {
    for (;;) {
      const sealing = this.#sealing;
      if (sealing !== null) {
        const isSealed = await sealing.then(
          () => true,
          () => false,
        );
        if (!isSealed) continue;
        assertKnownRequest(this.#store, this.#file, request);
        return () => undefined;
      }
      const done = await this.#enter(bytes);
      if (this.#sealing === null) return done;
      done();
    }
  }

  /**
   * Waits until the bytes in flight allow the change, and the file has a mark: then the catalog asks this primary for
   * the size, and no client that sees the change gets the size before it.
   * @returns what to call when the change is over
   */
  async #enter(bytes: number): Promise<() => void> {
    await this.#inFlight.reserve(bytes);
    try {
      for (;;) {
        const live = this.#live ?? this.#setMark();
        await live;
        if (this.#live === live) break;
      }
      this.#confirmLive();
    } catch (error) {
      this.#inFlight.release(bytes);
      throw error;
    }
    // Nothing was awaited since the mark was compared: a settling that begins from now on waits for this change.
    return this.#inFlight.begin(bytes);
  }

  #setMark(): Promise<void> {
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
    // If the catalog has no primary now, the next change sets the mark again.
    this.#settling = this.#confirming.catch(() => {
      this.#unconfirmed = true;
    });
  }

  /** Sets a new mark in the catalog, which then ignores settlings under earlier ones. */
  async #markLive(): Promise<void> {
    this.#unconfirmed = false;
    this.unsettled = true;
    const turn = this.#catalog.nextMarkNumber();
    this.#markNumber = turn;
    const epoch = this.#catalog.epoch();
    this.#changedNs = null;
    const {
      allowedBytes,
      changedNs,
      appendOnly = false,
    } = await this.#catalog.markLive({ epoch: this.epoch.counter, turn });
    // If a later mark was set meanwhile, the file was settled in between, which ended what this mark allowed.
    if (this.#markNumber === turn) {
      this.#allowedBytes = allowedBytes;
      this.#changedNs = changedNs;
      this.#appendOnly = appendOnly;
    }
    this.#nameFlush.marked(epoch);
  }

  /** Whether a change has to wait for `#prepare`. If not, the caller orders it without awaiting anything before. */
  #mustWait(sizeBytes: number, ranges: readonly ByteRange[]): boolean {
    return this.#exceedsAllowance(sizeBytes) || this.#merged.unread(ranges).length > 0;
  }

  async #prepare(sizeBytes: number, ranges: readonly ByteRange[]): Promise<void> {
    if (this.#exceedsAllowance(sizeBytes)) await this.#requestGrowth(sizeBytes);
    else await this.#merged.read(this.#merged.unread(ranges));
  }

  #exceedsAllowance(sizeBytes: number): boolean {
    return sizeBytes > this.#sizeBytes && sizeBytes > this.#allowedBytes;
  }

  async #requestGrowth(sizeBytes: number): Promise<void> {
    const mark = { epoch: this.epoch.counter, turn: this.#markNumber };
    this.#allowedBytes = (
      await this.#catalog.markLive(mark, Math.min(sizeBytes, FILE_BYTES_MAX))
    ).allowedBytes;
    if (this.#exceedsAllowance(sizeBytes) && sizeBytes <= FILE_BYTES_MAX) {
      throw new ServiceError(
        'internal',
        `Internal error: the catalog granted file ${this.#file} less growth than requested`,
      );
    }
  }

  /** @throws ServiceError `protected` if the file is append-only and a range does not begin at its end */
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

  /** Orders a change. Throws before that if the epoch is another, or the client has lost the locks of the request. */
  async #submit(request: ChangeRequest, body: Uint8Array, outcome: WriteOutcome): Promise<Change> {
    if (epochCompare(this.#driver.epoch, this.epoch) !== 0) throw deposedError(this.#file);
    if (request.under !== undefined) this.#assertLocked(request.under);
    let before: ContentVersion | undefined;
    const kept = this.#appendOnly ? ({ ...outcome, appendOnly: true } as const) : outcome;
    const committed = await this.#driver.submit({ request, result: encodeWriteOutcome(kept), body }, () => {
      before = this.#contents;
      this.#sizeBytes = outcome.sizeBytes;
      this.#modifiedNs = outcome.modifiedNs;
      this.#contents = { epoch: this.epoch.counter, seq: this.#driver.orderedSeq };
      this.unsettled = true;
    });
    return before === undefined ? committed : { ...committed, before };
  }

  /** Strictly later than every change before, so that comparing times detects each change. */
  #nextModifiedNs(): bigint {
    const nowNs = this.#clock.wallNs();
    return nowNs > this.#modifiedNs ? nowNs : this.#modifiedNs + 1n;
  }
}

function wasAppendOnly(store: FileStore, file: FileId, seq: number): boolean {
  const sessions = store.record(file)?.sessions ?? new Uint8Array(0);
  const result = SessionTable.decode(sessions).lastResult(seq);
  return result !== null && decodeWriteOutcome(result).appendOnly === true;
}

function deposedError(file: FileId): ServiceError {
  return new ServiceError('not-primary', `The primary of file ${file} has changed: retry`);
}

function movingError(file: FileId): ServiceError {
  return new ServiceError('busy', `Cannot preserve the contents of file ${file} while its members change`, {
    retryAfterMs: BUSY_RETRY_MS,
  });
}
