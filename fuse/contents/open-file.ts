import { ChangesLost } from '../../client/cluster/unsynced-changes.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { Answered } from '../answered.ts';
import type { Attributes, BackendFile, BackendLock, FileState } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import { ErrnoError, errnoName, lockLost, messageOf } from '../errno.ts';
import { WriteBehind } from '../pending/write-behind.ts';
import type { MountedTransport } from '../transport.ts';
import type { FileParts } from './contents-parts.ts';
import type { FreeSpace } from './free-space.ts';
import { KnownContents } from './known-contents.ts';
import { OpenLocks } from './locks.ts';
import type { ReadAhead, ReadPosition } from './read-ahead.ts';
import { ReadSource, type StorePages } from './read-source.ts';
import type { PagesOfFile } from './written-pages.ts';

const DRAIN_FOR_ATTRIBUTES_MS = 1000;
const PAGE_BYTES = 4096;

export interface OpenFileParts
  extends Pick<FileParts, 'world' | 'backend' | 'limitMs' | 'deadlineOf' | 'pending'> {
  readonly kernel: Pick<MountedTransport, 'storePages'> | null;
  readonly dropPages: (inode: number) => Promise<void>;
  readonly freeSpace: Pick<FreeSpace, 'failed'>;
}

/** A file that is open on this mount, shared by all its handles: pending writes, and what is known of its contents. */
export class OpenFile {
  readonly inode: number;
  readonly source: ReadSource;
  readonly known: KnownContents;
  readonly writes: WriteBehind;
  readonly #parts: OpenFileParts;
  readonly #backend: BackendFile;
  /** All handles, and those that write. */
  handleCount = 0;
  writerCount = 0;
  /** Written here, so that its last close seals it if its policy requires that. */
  written = false;
  mayHavePages = false;
  /** Created or changed here, and not yet settled. */
  unsettled = false;
  locks: OpenLocks | null = null;
  #lastAppend: Promise<unknown> = Promise.resolve();
  #pagesDropped: Promise<void> = Promise.resolve();

  constructor(parts: OpenFileParts, attributes: Answered, backend: BackendFile, pages: PagesOfFile) {
    const { world, limitMs, deadlineOf, pending, freeSpace } = parts;
    const { inode } = attributes;
    this.#parts = parts;
    this.inode = inode;
    this.#backend = backend;
    this.source = new ReadSource(
      world,
      (offset, length) => this.#bounded(backend.read(offset, length), 'A read'),
      () => this.known.sizeBytes,
      () => this.#pageStore(),
      (offset, length) => backend.range(offset, length),
    );
    this.known = new KnownContents(world, attributes, pages, this.source);
    this.writes = new WriteBehind({
      world,
      write: (offset, bytes) => backend.write(offset, bytes),
      writeParts: (writes) => backend.writeParts(writes),
      accepted: (offset, bytes) => pages.put(offset, bytes),
      acknowledged: (state) => this.#changed(state),
      failed: (error) => {
        freeSpace.failed(error);
        this.#recordLoss(error);
      },
      budget: pending.budget,
      limitMs,
      deadlineOf,
    });
  }

  /** Reads pending bytes, too. @param validMs as of `KnownContents.written`. @param isCurrent as of `ReadAhead.read` */
  async read(
    readAhead: ReadAhead,
    position: ReadPosition,
    offset: number,
    length: number,
    validMs = 0,
    isCurrent: () => boolean | Promise<boolean> = () => true,
  ): Promise<Uint8Array> {
    // Beyond the cluster's size, a hole before pending bytes would read as the end of the file.
    if (
      this.writes.dirty &&
      (this.writes.overlaps(offset, length) || offset + length > this.known.sizeBytes)
    ) {
      await this.writes.drain();
    }
    const written = this.known.written(offset, length, validMs);
    return written ?? readAhead.read(this.source, position, offset, length, isCurrent);
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    this.known.writing();
    if (offset > Math.max(this.known.sizeBytes, this.writes.dirtyEnd)) this.known.leavingHole();
    await this.writes.write(offset, bytes);
  }

  /**
   * Resolves when the kernel has dropped pages with lost bytes. Writes must not wait for it: the kernel locks their
   * pages until the answer, and drops none that is locked.
   */
  lostPagesDropped(): Promise<void> {
    return this.#pagesDropped;
  }

  /** Appends are sent one by one, each in one piece, after all earlier writes. */
  append(bytes: Uint8Array): Promise<void> {
    const appended = this.#lastAppend.then(async () => {
      await this.writes.drain();
      this.#changed(await this.#bounded(this.#backend.append(bytes), 'An append'));
    });
    this.#lastAppend = appended.catch(() => undefined);
    return appended;
  }

  async truncate(sizeBytes: number): Promise<void> {
    await this.writes.drain();
    const { pages, sizeBytes: endBytes } = this.known;
    if (sizeBytes < endBytes) pages.drop(sizeBytes);
    if (sizeBytes > endBytes) this.known.leavingHole();
    this.#changed(await this.#bounded(this.#backend.truncate(sizeBytes), 'A truncate'));
    // If the cluster's end was another one, another client has changed the file, and no page is used any more.
    pages.putZeros(endBytes, sizeBytes);
  }

  async punch(from: number, to: number, grows: boolean): Promise<void> {
    await this.writes.drain();
    this.known.pages.drop(from, to);
    this.known.leavingHole();
    this.#changed(await this.#bounded(this.#backend.punch(from, to, grows), 'Punching a hole'));
  }

  /** @returns where data, or a hole, begins, at or after `offset`; null if there is none */
  async seek(offset: number, what: 'data' | 'hole'): Promise<number | null> {
    await this.writes.drain();
    return this.#bounded(this.#backend.seek(offset, what), `A search for ${what}`);
  }

  staysUncommitted(endBytes: number): boolean {
    return this.#backend.staysUncommitted(endBytes);
  }

  /** Copies at the servers. @returns bytes copied: fewer than `length` if there are more, 0 at the end of the source */
  async copyFrom(source: OpenFile, fromOffset: number, toOffset: number, length: number): Promise<number> {
    // Pending bytes are part of the source, or must not overwrite the copy.
    await Promise.all([source.flush(), this.writes.drain()]);
    this.known.pages.drop(toOffset, toOffset + length);
    this.known.leavingHole();
    const number = await this.#parts.backend.numberOf(source.inode);
    const copying = this.#backend.copyFrom(number, fromOffset, toOffset, length);
    const { copiedBytes, state } = await this.#bounded(copying, 'Copying to it');
    if (copiedBytes > 0) this.#changed(state);
    return copiedBytes;
  }

  /** Stores earlier writes and a new file's name, or records the error. @param isReported as of `ensureCommitted` */
  async flush(isReported = false): Promise<void> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.ensureCommitted(isReported), 'Committing');
    if (state !== undefined) this.known.created(state);
  }

  /** Called at the last close. The next open of the same contents may read the written pages. */
  closed(): void {
    const { isOwn, newest, pages } = this.known;
    pages.closed(isOwn && !this.writes.dirty ? newest : null);
  }

  /** Makes earlier writes durable. @throws ErrnoError `EIO` if the cluster has lost the file: fsync has no ENOENT */
  async persist(): Promise<void> {
    try {
      this.known.learn(await this.#bounded(this.#backend.flush(), 'A flush'));
    } catch (error) {
      // All descriptors of the file report the loss, not only the one whose sync found it.
      if (error instanceof ChangesLost) return this.#recordLoss(error);
      if (errnoName(error) !== 'ENOENT') throw error;
      throw new ErrnoError('EIO', `Earlier writes are not stored: ${messageOf(error)}`);
    }
  }

  /** Whether its last close seals it: not an empty one, which another client may fill, nor one with lost bytes. */
  get isToBeSealed(): boolean {
    const { attributes, sizeBytes } = this.known;
    const isWhole = this.writes.failure === null;
    return attributes.policy === 'read-only' && this.written && isWhole && sizeBytes > 0;
  }

  async seal(): Promise<void> {
    await this.#bounded(this.#backend.seal(), 'Sealing');
  }

  async settle(): Promise<void> {
    await this.#bounded(this.#backend.settle(), 'Settling');
  }

  async state(): Promise<FileState> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.state(), 'A request for the state');
    this.known.learn(state);
    return state;
  }

  /**
   * Merges the cluster's answer with what only this mount knows. Waits for pending bytes, at most a second, so that the
   * modification time is the primary's; after that, size and time are this mount's.
   */
  async present(attributes: Answered): Promise<Answered> {
    if (this.writes.dirty) {
      const { world } = this.#parts;
      const drained = withDeadline(world, this.writes.drain(), DRAIN_FOR_ATTRIBUTES_MS, 'Draining');
      await drained.catch(() => undefined);
    }
    return this.known.present(attributes, this.writes);
  }

  get latest(): Attributes {
    return this.known.latest(this.writes.dirty);
  }

  /** Applies own writes to attributes from before them; null if the result is unknown. */
  withOwnWrites(attributes: Attributes): Attributes | null {
    const isWhole = !this.writes.dirty && this.writes.failure === null;
    return isWhole ? this.known.applyOwnWrites(attributes) : null;
  }

  openLocks(lost: (locks: readonly BackendLock[]) => void): OpenLocks {
    const onLost = (locks: readonly BackendLock[]): void => {
      // Unsent writes under the lock must not replace what its next holder writes.
      if (this.writes.dirty) this.writes.abandon(lockLost());
      lost(locks);
    };
    this.locks ??= new OpenLocks(this.#parts.world, this.#backend.openLocks(onLost));
    return this.locks;
  }

  /** Called when a program got a lock: it must see what was written under it before. @see KnownContents.refresh */
  async refresh(invalidate: () => Promise<void>): Promise<void> {
    await this.known.refresh((await this.state()).contents, invalidate);
  }

  /**
   * As `refresh`, with contents that were just requested, unless writes are pending, which change them anyway.
   * Drops nothing if the size differs from the kernel's: it ignores an answer with attributes if it has dropped the
   * inode since the request (`fuse_reverse_inval_inode` raises `attr_version`), and the read that sent it would end at
   * the old size.
   */
  async refreshPages({ contents, sizeBytes }: Attributes, invalidate: () => Promise<void>): Promise<void> {
    if (this.writes.dirty || contentVersionCompare(contents, this.known.newest) < 0) return;
    if (sizeBytes !== this.known.answeredSizeBytes) return;
    await this.known.refresh(contents, invalidate);
  }

  /**
   * Stores pages in the kernel's cache; null while a program may write, as the kernel stores them over written bytes,
   * even unsent ones. It does not check the size either, so it gets whole pages within the size that it knows.
   */
  #pageStore(): StorePages | null {
    const { kernel } = this.#parts;
    const isRead = this.handleCount > 0 && this.writerCount === 0 && !this.writes.dirty;
    if (!isRead || kernel?.storePages === undefined) return null;
    const give = kernel.storePages.bind(kernel);
    return async (offset, bytes, isCurrent) => {
      const within = Math.min(bytes.length, this.known.answeredSizeBytes - offset);
      const whole = Math.floor(within / PAGE_BYTES) * PAGE_BYTES;
      return whole > 0 && give(this.inode, offset, bytes.subarray(0, whole), isCurrent);
    };
  }

  /** Called when acknowledged writes are lost: all descriptors report the error, and pages with them are dropped. */
  #recordLoss(error: unknown): void {
    const { inode } = this;
    this.known.pages.clear();
    this.#parts.pending.errors.set({ kind: 'file', inode }, error);
    this.#pagesDropped = this.#parts.dropPages(inode);
  }

  #changed(state: FileState): void {
    this.unsettled = true;
    this.written = true;
    this.known.changed(state);
  }

  async #bounded<Value>(promise: Promise<Value>, what: string): Promise<Value> {
    const { world, limitMs, deadlineOf, freeSpace } = this.#parts;
    try {
      return await withDeadline(world, promise, limitMs, `${what} of file ${this.inode}`, deadlineOf);
    } catch (error) {
      freeSpace.failed(error);
      throw error;
    }
  }
}
