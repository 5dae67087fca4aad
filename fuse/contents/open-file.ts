import { ChangesLost } from '../../client/unsynced-changes.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { Answered } from '../answered.ts';
import type { Attributes, BackendFile, BackendLock, FileState } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import { ErrnoError, errnoName, lockLost, messageOf } from '../errno.ts';
import { WriteBehind } from '../pending/write-behind.ts';
import type { MountedTransport } from '../transport.ts';
import { KnownContents } from './known-contents.ts';
import { OpenLocks } from './locks.ts';
import type { FileParts } from './parts.ts';
import type { ReadAhead, ReadPosition } from './read-ahead.ts';
import { type GivePages, ReadSource } from './read-source.ts';
import type { Room } from './room.ts';
import type { PagesOfFile } from './written-pages.ts';

/** How long a question about a file waits for its writes under way before it is answered from here. */
const DRAIN_FOR_ATTRIBUTES_MS = 1000;
/** The kernel keeps whole pages of this size. */
const PAGE_BYTES = 4096;

export interface OpenFileParts extends Pick<FileParts, 'world' | 'limitMs' | 'pending'> {
  /** Null before the mount is there. */
  readonly kernel: Pick<MountedTransport, 'givePages'> | null;
  /** Makes the kernel drop its pages of the inode, where the transport can. */
  readonly dropPages: (inode: number) => Promise<void>;
  /** Learns of errors. */
  readonly room: Pick<Room, 'failed'>;
}

/** A file that is open on this mount, however often: its writes under way and what is known of its contents. */
export class OpenFile {
  readonly inode: number;
  readonly source: ReadSource;
  readonly known: KnownContents;
  readonly writes: WriteBehind;
  readonly #parts: OpenFileParts;
  readonly #backend: BackendFile;
  /** Handles in all, and those among them that write. */
  handleCount = 0;
  writerCount = 0;
  /** Written here, and so to be sealed at its last close, if its policy says so. */
  written = false;
  /** The kernel may have pages of it. */
  mayHavePages = false;
  /** Created or changed here, and the catalog was not told of the outcome yet. */
  unsettled = false;
  /** Null before the first lock. */
  locks: OpenLocks | null = null;
  #appended: Promise<unknown> = Promise.resolve();
  /** @see lostPagesDropped */
  #lostDropped: Promise<void> = Promise.resolve();

  /** @param pages what was written to it before, of the same contents */
  constructor(parts: OpenFileParts, attributes: Answered, backend: BackendFile, pages: PagesOfFile) {
    const { world, limitMs, pending, room } = parts;
    const { inode } = attributes;
    this.#parts = parts;
    this.inode = inode;
    this.#backend = backend;
    this.source = new ReadSource(
      world,
      (offset, length) => this.#bounded(backend.read(offset, length), 'A read'),
      () => this.known.sizeBytes,
      () => this.#giver(),
      (offset, length) => backend.range(offset, length),
    );
    this.known = new KnownContents(world, attributes, pages, this.source);
    this.writes = new WriteBehind({
      world,
      write: (offset, bytes) => backend.write(offset, bytes),
      writeParts: (writes) => backend.writeParts(writes),
      taken: (offset, bytes) => pages.put(offset, bytes),
      acknowledged: (state) => this.#changed(state),
      failed: (error) => {
        room.failed(error);
        this.#lost(error);
      },
      budget: pending.budget,
      limitMs,
    });
  }

  /**
   * @param validMs as of `KnownContents.written`
   * @param isCurrent as of `ReadAhead.read`
   */
  async read(
    readAhead: ReadAhead,
    position: ReadPosition,
    offset: number,
    length: number,
    validMs = 0,
    isCurrent: () => boolean | Promise<boolean> = () => true,
  ): Promise<Uint8Array> {
    // Beyond the size the cluster knows, a hole before dirty bytes would read as the end of the file.
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
   * Resolves when the kernel has no pages of bytes that were lost before. No write waits for it: the kernel keeps the pages of a write
   * locked until the answer, and drops none that is locked.
   */
  lostPagesDropped(): Promise<void> {
    return this.#lostDropped;
  }

  /** Appends go out one by one, each in one piece, after everything that was written before. */
  append(bytes: Uint8Array): Promise<void> {
    const appended = this.#appended.then(async () => {
      await this.writes.drain();
      this.#changed(await this.#bounded(this.#backend.append(bytes), 'An append'));
    });
    this.#appended = appended.catch(() => undefined);
    return appended;
  }

  async truncate(sizeBytes: number): Promise<void> {
    await this.writes.drain();
    const { pages, sizeBytes: endBytes } = this.known;
    if (sizeBytes < endBytes) pages.drop(sizeBytes);
    if (sizeBytes > endBytes) this.known.leavingHole();
    this.#changed(await this.#bounded(this.#backend.truncate(sizeBytes), 'A truncate'));
    // Had it another end, another client has changed it, and none of the pages is valid any more.
    pages.putZeros(endBytes, sizeBytes);
  }

  /** Bytes `from` to before `to` become a hole. */
  async punch(from: number, to: number, grows: boolean): Promise<void> {
    await this.writes.drain();
    this.known.pages.drop(from, to);
    this.known.leavingHole();
    this.#changed(await this.#bounded(this.#backend.punch(from, to, grows), 'Punching a hole'));
  }

  /** @returns where data, or a hole, begins, not before `offset`; null where nothing of it follows */
  async seek(offset: number, what: 'data' | 'hole'): Promise<number | null> {
    await this.writes.drain();
    return this.#bounded(this.#backend.seek(offset, what), `Looking for ${what}`);
  }

  /** @see BackendFile.keeps */
  keeps(endBytes: number): boolean {
    return this.#backend.keeps(endBytes);
  }

  /** @returns how many bytes were copied: fewer than `length` where there is more to come, 0 at the end of the source */
  async copyFrom(source: OpenFile, fromOffset: number, toOffset: number, length: number): Promise<number> {
    // What is under way here is part of the source, or must not arrive after what is copied over it.
    await Promise.all([source.arrive(), this.writes.drain()]);
    this.known.pages.drop(toOffset, toOffset + length);
    this.known.leavingHole();
    const copying = this.#backend.copyFrom(source.inode, fromOffset, toOffset, length);
    const { copiedBytes, state } = await this.#bounded(copying, 'Copying to it');
    if (copiedBytes > 0) this.#changed(state);
    return copiedBytes;
  }

  /** Resolves when all that was written before, and a new file's name, are at the cluster; the error sequence has what was lost. @see BackendFile.arrive */
  async arrive(isReported = false): Promise<void> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.arrive(isReported), 'Making it');
    if (state !== undefined) this.known.created(state);
  }

  /** No handle of this mount is left. */
  closed(): void {
    const { isOwn, newest, pages } = this.known;
    pages.closed(isOwn && !this.writes.dirty ? newest : null);
  }

  /** @throws ErrnoError `EIO` where the cluster has lost the file: fsync has no error of its own for that */
  async persist(): Promise<void> {
    try {
      this.known.learn(await this.#bounded(this.#backend.flush(), 'A flush'));
    } catch (error) {
      // Each descriptor of the file reports the loss, not only the one whose sync has found it.
      if (error instanceof ChangesLost) return this.#lost(error);
      if (errnoName(error) !== 'ENOENT') throw error;
      throw new ErrnoError('EIO', `What was written before is not stored: ${messageOf(error)}`);
    }
  }

  /**
   * Whether the last close seals it. An empty file stays open to a client that fills it later, for many programs make a
   * name first; and one of which bytes were lost stays as it is.
   */
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
    const state = await this.#bounded(this.#backend.state(), 'Asking for the state');
    this.known.learn(state);
    return state;
  }

  /**
   * Puts `attributes`, as the cluster told them, together with what only this mount knows. Bytes under way
   * are waited for, so that the modification time is the primary's and does not change once they are there;
   * while the cluster is slow to take them, size and time are those of this mount.
   */
  async present(attributes: Answered): Promise<Answered> {
    if (this.writes.dirty) {
      const { world } = this.#parts;
      const drained = withDeadline(world, this.writes.drain(), DRAIN_FOR_ATTRIBUTES_MS, 'Draining');
      await drained.catch(() => undefined);
    }
    return this.known.present(attributes, this.writes);
  }

  /** @see KnownContents.latest */
  get latest(): Attributes {
    return this.known.latest(this.writes.dirty);
  }

  /** @see KnownContents.since */
  since(attributes: Attributes): Attributes | null {
    const isWhole = !this.writes.dirty && this.writes.failure === null;
    return isWhole ? this.known.since(attributes) : null;
  }

  openLocks(lost: (locks: readonly BackendLock[]) => void): OpenLocks {
    const onLost = (locks: readonly BackendLock[]): void => {
      // What was written under them and has not been sent must not replace what others write under them.
      if (this.writes.dirty) this.writes.abandon(lockLost());
      lost(locks);
    };
    this.locks ??= new OpenLocks(this.#parts.world, this.#backend.openLocks(onLost));
    return this.locks;
  }

  /** A program that has just got a lock shall see what was written under the lock before, at once. @see KnownContents.refresh */
  async refresh(invalidate: () => Promise<void>): Promise<void> {
    await this.known.refresh((await this.state()).contents, invalidate);
  }

  /**
   * As `refresh`, of contents that the cluster was asked for. What is on its way there from here is not waited for: with it other contents come.
   *
   * Nothing is dropped where the size is another one than the kernel was told. The kernel ignores an answer about attributes if it has dropped
   * the inode since it asked (`fuse_reverse_inval_inode` raises `attr_version`), and a read that has asked would end at the old size.
   */
  async refreshPages({ contents, sizeBytes }: Attributes, invalidate: () => Promise<void>): Promise<void> {
    if (this.writes.dirty || contentVersionCompare(contents, this.known.newest) < 0) return;
    if (sizeBytes !== this.known.toldSizeBytes) return;
    await this.known.refresh(contents, invalidate);
  }

  /**
   * The kernel puts what it is given over what programs have written, also while that is on its way here: so nothing while
   * a program may write. Nor does it mind the size: it gets whole pages, within the size that it knows.
   */
  #giver(): GivePages | null {
    const { kernel } = this.#parts;
    const isRead = this.handleCount > 0 && this.writerCount === 0 && !this.writes.dirty;
    if (!isRead || kernel?.givePages === undefined) return null;
    const give = kernel.givePages.bind(kernel);
    return async (offset, bytes, isCurrent) => {
      const within = Math.min(bytes.length, this.known.toldSizeBytes - offset);
      const whole = Math.floor(within / PAGE_BYTES) * PAGE_BYTES;
      return whole > 0 && give(this.inode, offset, bytes.subarray(0, whole), isCurrent);
    };
  }

  /** Bytes that programs have written are gone. */
  #lost(error: unknown): void {
    const { inode } = this;
    this.known.pages.clear();
    this.#parts.pending.errors.set({ kind: 'file', inode }, error);
    this.#lostDropped = this.#parts.dropPages(inode);
  }

  #changed(state: FileState): void {
    this.unsettled = true;
    this.written = true;
    this.known.changed(state);
  }

  async #bounded<Value>(promise: Promise<Value>, what: string): Promise<Value> {
    const { world, limitMs, room } = this.#parts;
    try {
      return await withDeadline(world, promise, limitMs, `${what} of file ${this.inode}`);
    } catch (error) {
      room.failed(error);
      throw error;
    }
  }
}
