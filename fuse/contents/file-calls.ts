import type { Attributes } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import type { Caller, Opened } from '../transport.ts';
import type { FileParts } from './contents-parts.ts';
import { type FileHandle, type FileHandles, isForWriting, throwFailed } from './file-handles.ts';
import type { OpenFile } from './open-file.ts';
import type { OpenFiles } from './open-files.ts';
import { RangeCopies } from './range-copies.ts';
import { ReadAhead } from './read-ahead.ts';

/** How long written bytes are read from here after the cluster reported no change by another client. */
const WRITTEN_MS_MAX = 1_000;
/** The same without cached attributes: from the kernel's request for attributes to the read that it was sent for. */
const ASKED_MS = 50;
/** Fetched bytes are confirmed again after this time, even if attributes are valid for longer. */
const FETCHED_MS_MAX = 1_000;
const READ_AHEAD_BYTES_MAX = 32 * 1024 * 1024;
/** Per call of `copy_file_range`: the kernel's count has 32 bits. */
const COPY_BYTES_MAX = 1024 * 1024 * 1024;
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const FALLOC_FL_ZERO_RANGE = 16;

export class FileCalls {
  readonly #parts: FileParts;
  readonly #files: OpenFiles;
  readonly #flushBehind: boolean;
  readonly #handles: FileHandles;
  readonly #readAhead: ReadAhead;
  readonly #copies: RangeCopies;

  /** @param flushBehind a close waits for pending bytes only if the file has locks */
  constructor(parts: FileParts, files: OpenFiles, handles: FileHandles, flushBehind: boolean) {
    const { world } = parts;
    this.#parts = parts;
    this.#files = files;
    this.#flushBehind = flushBehind;
    this.#handles = handles;
    this.#readAhead = new ReadAhead(world, READ_AHEAD_BYTES_MAX);
    const isCurrent = (file: OpenFile): boolean | Promise<boolean> => this.#isCurrent(file, false);
    this.#copies = new RangeCopies(world, this.#readAhead, files.inodes.cache.attributes, isCurrent);
  }

  async open(inode: number, flags: number, caller: Caller): Promise<Opened> {
    return this.#handles.add(await this.#files.open(inode, flags, caller), flags);
  }

  async created(attributes: Attributes, flags: number): Promise<Opened> {
    return this.#handles.add(await this.#files.created(attributes, isForWriting(flags)), flags);
  }

  inodeOf(handle: number): number {
    return this.#handles.of(handle).file.inode;
  }

  /** How long reads use copies of written bytes. The kernel requests attributes before a read, except by a mapping. */
  get #writtenMs(): number {
    if (this.#files.kernel?.checksAttributesBeforeReads !== true) return 0;
    return this.#files.inodes.cache.ttlMs === 0
      ? ASKED_MS
      : Math.min(this.#files.inodes.cache.ttlMs, WRITTEN_MS_MAX);
  }

  async read(handle: number, offset: number, length: number): Promise<Uint8Array> {
    const opened = this.#handles.of(handle);
    const { file, position, appending } = opened;
    file.locks?.assertKept(handle);
    if (length === 0) return new Uint8Array(0);
    opened.hasRead = true;
    // A handle with O_APPEND bypasses the kernel's pages, and the kernel requests no attributes.
    const validMs = appending ? 0 : this.#writtenMs;
    file.mayHavePages ||= !appending;
    const isCurrent = () => this.#isCurrent(file, !appending);
    const bytes = await file.read(this.#readAhead, position, offset, length, validMs, isCurrent);
    this.#recordRead(opened);
    return bytes;
  }

  /**
   * Whether bytes that were fetched earlier are current: the version was requested within the time that the cache mode
   * allows, or is requested now. With `strict` and `leases` each read requests it; a grant answers without a request.
   * @param wasAsked the kernel has requested the attributes in the same call, as it does unless it bypasses its pages
   */
  #isCurrent(file: OpenFile, wasAsked: boolean): boolean | Promise<boolean> {
    const strictMs = wasAsked ? ASKED_MS : 0;
    const ageMaxMs =
      this.#files.inodes.cache.ttlMs === 0
        ? strictMs
        : Math.min(this.#files.inodes.cache.ttlMs, FETCHED_MS_MAX);
    return this.#parts.world.nowMs() - file.known.confirmedMs < ageMaxMs || this.#files.confirm(file);
  }

  /** Called when the kernel keeps pages of an earlier open for this handle: it may read these without a request. */
  keptPages(handle: number): void {
    const opened = this.#handles.of(handle);
    opened.hasPages = true;
    opened.file.mayHavePages = true;
  }

  /** Called at a close. The kernel reads its kept pages without a request, so a handle for reading counts as read. */
  async #recordLikelyRead(opened: FileHandle): Promise<void> {
    const { file, hasPages, hasRead, writing } = opened;
    if (hasPages && !hasRead && !writing && this.#recordRead(opened))
      await this.#files.kernel?.dropAttributes(file.inode);
  }

  /** @returns whether the access time changes */
  #recordRead({ file, isNoAtime }: FileHandle): boolean {
    return !isNoAtime && this.#parts.accesses.recordRead(file.latest);
  }

  /** The transport does not use the bytes of a read any more. */
  taken(_handle: number, bytes: Uint8Array): void {
    this.#readAhead.release(bytes);
  }

  /** Resolves when the bytes are pending, or stored if they must be. @param appends absent: as the file was opened */
  async write(
    handle: number,
    offset: number,
    bytes: Uint8Array,
    caller: Caller,
    appends?: boolean,
  ): Promise<number> {
    const opened = this.#handles.of(handle);
    const { file } = opened;
    if (!opened.writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (bytes.length === 0) return 0;
    if (!Number.isSafeInteger(offset + bytes.length))
      throw new ErrnoError('EFBIG', 'The file would be too large');
    opened.errorForSync = null;
    throwFailed(opened);
    file.locks?.assertKept(handle);
    await this.#files.privileges.clear(file, caller);
    this.#files.inodes.cache.attributes.written(file.inode);
    // Taken now: the write empties the array.
    const { length } = bytes;
    const isAppend = appends ?? opened.appending;
    if (isAppend) await file.append(bytes);
    else await file.write(offset, bytes);
    if (isAppend && opened.appending) await this.#dropPagesAfterAppend(file);
    try {
      await this.#storeIfRequired(opened);
    } catch (error) {
      if (opened.persisting && !isAppend) opened.errorForSync = { error };
      throw error;
    }
    if (isAppend && !opened.appending) this.#dropBehindAnswer(file);
    return length;
  }

  /**
   * Drops the kernel's pages. Linux does so before it sends an append, but a page that it reads before the answer has
   * zeros for the new bytes, which a mapping would show and write back. Over `fuse-native` it cannot drop pages.
   */
  async #dropPagesAfterAppend(file: OpenFile): Promise<void> {
    if (file.mayHavePages && this.#files.kernel?.checksAttributesBeforeReads === true)
      await this.#files.dropPages(file);
  }

  /**
   * A descriptor that gets O_APPEND after its open writes through pages, at the end that the kernel knows. The kernel
   * keeps one locked until the answer, which must not wait for the drop.
   */
  #dropBehindAnswer(file: OpenFile): void {
    this.#parts.world.soon(() => {
      this.#dropPagesAfterAppend(file).catch((error: unknown) => {
        this.#parts.log('debug', 'pages are not dropped', { file: file.inode, error: String(error) });
      });
    });
  }

  /** After a write: stores the bytes before the answer if the descriptor has O_SYNC, or if there may be no space. */
  async #storeIfRequired(opened: FileHandle): Promise<void> {
    if (opened.persisting) await this.#persist(opened);
    else if (this.#files.freeSpace.isShort) {
      await opened.file.flush();
      throwFailed(opened);
    }
  }

  /** Called at each close of a descriptor, by the process `owner`, whose locks of `fcntl` it releases. */
  async flush(handle: number, owner?: bigint): Promise<void> {
    const opened = this.#handles.of(handle);
    await this.#recordLikelyRead(opened);
    if (this.#flushBehind && opened.file.locks === null) return;
    try {
      // The next holder of the lock has to find what was written under it.
      if (opened.writing) {
        await opened.file.flush(true);
        await opened.file.lostPagesDropped();
      } else if (
        owner !== undefined &&
        opened.file.locks?.isOwner(handle, { kind: 'posix', owner }) === true
      ) {
        // The process may have written through another descriptor, which returns the error.
        await opened.file.writes.drain();
        await opened.file.lostPagesDropped();
      }
      if (owner !== undefined) await opened.file.locks?.flush(owner);
    } finally {
      opened.file.locks?.closed(handle);
    }
    // For the process that closes: it may have a copy of the descriptor, and be about to run another program.
    if (opened.writing) throwFailed(opened);
  }

  async persist(handle: number): Promise<void> {
    const opened = this.#handles.of(handle);
    try {
      await this.#persist(opened);
    } finally {
      await opened.file.lostPagesDropped();
    }
  }

  async #persist(opened: FileHandle): Promise<void> {
    const { errorForSync } = opened;
    opened.errorForSync = null;
    await opened.file.writes.drain();
    const lost = opened.errors.peek();
    if (lost !== undefined) this.#logLost(opened.file.inode, lost);
    // The first flush of a file flushes its name; `persistNames` flushes later changes of names and attributes.
    else await Promise.all([opened.file.persist(), this.#parts.backend.persistNames('mount')]);
    const error = opened.errors.checkAndAdvance();
    if (error !== undefined) throw error;
    if (errorForSync !== null) throw errorForSync.error;
  }

  /** Called after the last close of a handle: stores its writes, and releases its locks. No program gets its errors. */
  async release(handle: number): Promise<void> {
    const opened = this.#handles.of(handle);
    this.#handles.delete(handle);
    opened.file.locks?.closedLast(handle);
    // Writes under its locks may have used another descriptor.
    if (opened.writing || opened.file.locks?.hasLocks(handle) === true) await opened.file.writes.drain();
    if (opened.writing) {
      // No program gets it now; with `flushBehind` the next sync of the file or of the volume returns it.
      const error = opened.errors.peek();
      if (error !== undefined) this.#logLost(opened.file.inode, error);
    }
    await this.#recordLikelyRead(opened);
    await opened.file.locks?.release(handle);
    while (opened.file.handleCount === 1 && opened.file.source.isStoringPages)
      await opened.file.source.invalidate();
    this.#files.close(opened.file, opened.writing);
  }

  /**
   * As `fallocate`(2), without a reservation: zeros take no space, so a request is only compared with the free space.
   * @param mode bits FALLOC_FL_*: none, KEEP_SIZE, KEEP_SIZE with PUNCH_HOLE, ZERO_RANGE with or without KEEP_SIZE
   */
  async allocate(
    handle: number,
    mode: number,
    offset: number,
    length: number,
    caller: Caller,
  ): Promise<void> {
    const opened = this.#handles.of(handle);
    const { file } = opened;
    if (!opened.writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (offset < 0 || length <= 0) throw new ErrnoError('EINVAL', `No range: ${length} bytes at ${offset}`);
    const end = offset + length;
    if (!Number.isSafeInteger(end)) throw new ErrnoError('EFBIG', 'The file would be too large');
    throwFailed(opened);
    file.locks?.assertKept(handle);
    switch (mode) {
      case 0:
      case FALLOC_FL_KEEP_SIZE: {
        const { sizeBytes } = await file.state();
        if (end <= sizeBytes) return this.#touch(file, caller);
        const space = await this.#parts.backend.space(file.inode);
        this.#files.freeSpace.update(space);
        const { freeBytes, isQuota } = space;
        if (end - sizeBytes > freeBytes) {
          throw new ErrnoError(isQuota ? 'EDQUOT' : 'ENOSPC', `There is space for ${freeBytes} more bytes`);
        }
        if (mode === FALLOC_FL_KEEP_SIZE) return this.#touch(file, caller);
        await this.#files.privileges.clear(file, caller);
        // A truncate could cut off what another client has appended meanwhile.
        await file.punch(end, end, true);
        break;
      }
      case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
      case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
        await this.#files.privileges.clear(file, caller);
        await file.punch(offset, end, false);
        break;
      case FALLOC_FL_ZERO_RANGE:
        await this.#files.privileges.clear(file, caller);
        await file.punch(offset, end, true);
        break;
      default:
        throw new ErrnoError('EOPNOTSUPP', `Allocation mode ${mode} is not supported`);
    }
    this.#files.inodes.cache.attributes.forget(file.inode);
    throwFailed(opened);
  }

  /** Sets the modification time, and nothing else: an allocation that changes no contents still counts as a change. */
  async #touch(file: OpenFile, caller: Caller): Promise<void> {
    await this.#files.privileges.clear(file, caller);
    await this.#files.inodes.change(file.inode, { modified: { kind: 'now' } });
  }

  /** As SEEK_DATA and SEEK_HOLE of `lseek`(2), in units of objects. @throws ErrnoError `ENXIO` */
  async seek(handle: number, offset: number, what: 'data' | 'hole'): Promise<number> {
    const { file } = this.#handles.of(handle);
    const found = await file.seek(offset, what);
    if (found === null) throw new ErrnoError('ENXIO', `No ${what} from ${offset} on`);
    return found;
  }

  /** As `copy_file_range`(2). @returns less than `length` at the end of the source, or after many bytes or much time */
  async copyRange(
    from: number,
    fromOffset: number,
    to: number,
    toOffset: number,
    length: number,
    caller: Caller,
  ): Promise<number> {
    const read = this.#handles.of(from);
    const source = read.file;
    const opened = this.#handles.of(to);
    const { file } = opened;
    if (!opened.writing || opened.appending) {
      throw new ErrnoError('EBADF', `Handle ${to} is not open for writing in any place`);
    }
    const wanted = Math.min(length, COPY_BYTES_MAX);
    if (!Number.isSafeInteger(toOffset + wanted) || !Number.isSafeInteger(fromOffset + wanted)) {
      throw new ErrnoError('EFBIG', 'The file would be too large');
    }
    if (source === file && Math.abs(fromOffset - toOffset) < wanted) {
      throw new ErrnoError('EINVAL', 'The ranges overlap');
    }
    throwFailed(opened);
    source.locks?.assertKept(from);
    file.locks?.assertKept(to);
    await this.#files.privileges.clear(file, caller);
    const done = await this.#copies.copy({ source, fromOffset, file, toOffset, length: wanted });
    read.hasRead = true;
    if (done > 0) this.#recordRead(read);
    await this.#storeIfRequired(opened);
    return done;
  }

  #logLost(inode: number, error: unknown): void {
    this.#parts.log('error', 'writes failed', { file: inode, error: String(error) });
  }
}
