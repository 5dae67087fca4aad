import { constants } from 'node:fs';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { allDone } from '../all-done.ts';
import type { Attributes, FileSystemBackend } from '../backend.ts';
import { ErrnoError, errnoName } from '../errno.ts';
import { Inodes, withoutPrivileges } from '../metadata/inodes.ts';
import type { AccessTimes } from '../pending/access-times.ts';
import { DirtyBudget } from '../pending/dirty-budget.ts';
import { ErrorCursor, type ErrorSequence } from '../pending/error-sequence.ts';
import { Orphans } from '../pending/orphans.ts';
import { FLUSH_ALL, type FlushScope } from '../pending/pending-ops.ts';
import type { Caller, FileKernel, LockRequest, Log, Opened } from '../transport.ts';
import { contentsName } from '../transport.ts';
import { CAPABILITY_NAME } from '../xattr-names.ts';
import type { OpenLocks } from './locks.ts';
import { OpenFile } from './open-file.ts';
import { PageChecks } from './page-checks.ts';
import { ReadAhead, ReadPosition } from './read-ahead.ts';
import { Room } from './room.ts';
import { WrittenPages } from './written-pages.ts';

const DIRTY_BYTES_MAX = 64 * 1024 * 1024;
/** For how long what was written here is read from here, after it was heard that nobody else has changed the file. */
const WRITTEN_MS_MAX = 1_000;
/** The same where nothing is believed: from the kernel's question about the file to the read for which it has asked. */
const ASKED_MS = 50;
/** What was fetched is confirmed anew after this, where attributes are believed for longer. */
const FETCHED_MS_MAX = 1_000;
const READ_AHEAD_BYTES_MAX = 32 * 1024 * 1024;
/** Files that are told to the catalog at the same time after they were closed; the backend puts them together. */
const SETTLING_MAX = 500;
/** Modes of `fallocate`(2). */
/** Why a closed file is not sealed or settled by this mount, and need not be. */
const GONE_ON: ReadonlySet<string> = new Set(['not-found', 'precondition-failed']);
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const FALLOC_FL_ZERO_RANGE = 16;
/** One call copies for so long at the most, in milliseconds: whoever copies a large file can be interrupted. */
const COPY_MS_MAX = 1_000;
/** And so much: the kernel's count has 32 bits. */
const COPY_BYTES_MAX = 1024 * 1024 * 1024;

interface FileHandle {
  readonly file: OpenFile;
  readonly writing: boolean;
  readonly appending: boolean;
  /** O_SYNC or O_DSYNC: every write survives a loss of power before it is answered. */
  readonly persisting: boolean;
  readonly position: ReadPosition;
  /** O_NOATIME: what is read through it is nobody's access. */
  readonly unnoted: boolean;
  /** Something was asked for through it. */
  hasRead: boolean;
  /** The kernel has pages from before, of which it may answer without a question. */
  hasPages: boolean;
  readonly errors: ErrorCursor;
}

/** Files that are open on this mount, their handles, and what there is to do when they are closed. */
export class OpenFiles {
  readonly inodes: Inodes;
  readonly room: Room;
  readonly #world: World;
  readonly #backend: FileSystemBackend;
  readonly #limitMs: number;
  readonly #log: Log;
  readonly #flushBehind: boolean;
  readonly #ageMaxMs: number;
  readonly #accesses: AccessTimes;
  readonly #budget: DirtyBudget;
  readonly #pages: WrittenPages;
  readonly #readAhead: ReadAhead;
  readonly #open = new Map<number, OpenFile>();
  #pageChecks: PageChecks | null = null;
  readonly #handles = new Map<number, FileHandle>();
  /** Files closed after writing that the catalog is being told of. */
  readonly #settling = new Set<Promise<void>>();
  /** Those among them that are being sealed, by inode. */
  readonly #sealing = new Map<number, Promise<void>>();
  readonly #settleQueue: (() => void)[] = [];
  #settleCount = 0;
  readonly #errors: ErrorSequence;
  readonly #orphans: Orphans;
  /** Of files that have extended attributes, and no capability among them. */
  readonly #withoutCapability = new WeakSet<Attributes>();
  /** Null before the mount is there. */
  kernel: FileKernel | null = null;
  /** Odd; those of directories are even. */
  #handleLast = -1;

  /**
   * @param flushBehind a close waits for nothing, but where there are locks
   * @param writtenBytesMax memory for pages of what was written
   * @param isDelegated whether no other client changes the directory now
   */
  constructor(
    world: World,
    backend: FileSystemBackend,
    limitMs: number,
    log: Log,
    ageMaxMs: number,
    flushBehind: boolean,
    accesses: AccessTimes,
    writtenBytesMax: number,
    errors: ErrorSequence,
    isDelegated: (directory: number) => boolean,
  ) {
    this.#world = world;
    this.#budget = new DirtyBudget(world, DIRTY_BYTES_MAX);
    this.#readAhead = new ReadAhead(world, READ_AHEAD_BYTES_MAX);
    this.#backend = backend;
    this.#limitMs = limitMs;
    this.#log = log;
    this.#flushBehind = flushBehind;
    this.#ageMaxMs = ageMaxMs;
    this.#accesses = accesses;
    this.#errors = errors;
    this.#pages = new WrittenPages(writtenBytesMax);
    const openFile = (inode: number): OpenFile | undefined => this.#open.get(inode);
    this.inodes = new Inodes(world, backend, openFile, accesses, ageMaxMs, isDelegated);
    this.room = new Room(world, () => backend.space());
    this.#orphans = new Orphans(world, backend, () => this.#open.keys(), log);
  }

  /** From now on the kernel can be told what it has to forget. */
  mounted(kernel: FileKernel): void {
    this.kernel = kernel;
    // The library's transport, with which the kernel does not ask, cannot have it drop pages either.
    if (!kernel.asksBeforeReads) return;
    const check = async (file: OpenFile): Promise<void> => void (await this.#confirm(file, true));
    this.#pageChecks = new PageChecks(this.#world, this.#ageMaxMs, () => this.#open.values(), check);
  }

  async open(inode: number, flags: number, caller: Caller): Promise<Opened> {
    const writing = isForWriting(flags);
    // As Linux has it, whatever the file is opened for: the kernel asks for the right to write.
    const truncates = (flags & constants.O_TRUNC) !== 0;
    const { thread = 0 } = caller;
    const isOnceMore = this.inodes.refusedOpens.comesBack(thread, inode);
    const attributes = await this.#attributesToOpen(inode, thread, isOnceMore);
    if (attributes.kind === 'directory') throw new ErrnoError('EISDIR', `Inode ${inode} is a directory`);
    if (attributes.kind !== 'file') throw new ErrnoError('ENXIO', `Inode ${inode} has no contents`);
    this.#assertMeant(attributes, thread, isOnceMore);
    const file = this.#opened(attributes, writing);
    // It has lost its name elsewhere since it was looked up.
    if (attributes.links === 0) this.#orphans.add(inode);
    try {
      if (writing && file.source.isGiving) await file.source.withdraw();
      // Bytes under way are another handle's: an open does not wait for them, a read does.
      if (!file.writes.dirty) await file.present(attributes, this.inodes.cache.askedMs(attributes));
      if ((writing || truncates) && attributes.policy === 'read-only') await this.#assertUnsealed(file);
      if (writing && truncates) {
        await this.#clearPrivileges(file, caller);
        this.inodes.cache.written(inode);
        await file.truncate(0);
      } else if (truncates) await this.truncate(inode, 0, caller, false);
    } catch (error) {
      this.#close(file, writing);
      throw error;
    }
    return this.#handle(file, flags);
  }

  /** @param isOnceMore it was looked up by its name since an open was refused, or has none */
  async #attributesToOpen(inode: number, thread: number, isOnceMore: boolean): Promise<Attributes> {
    if (isOnceMore) return this.inodes.ask(inode);
    return this.inodes.cache.lookedToOpen(inode) ?? (await this.inodes.askToOpen(inode, thread));
  }

  /**
   * The kernel may have opened a name that it was told a moment ago, which another mount has given to another file since: at
   * this answer it looks the name up once more. A file that lost its name here has none that the kernel keeps.
   */
  #assertMeant({ inode, links }: Attributes, thread: number, isOnceMore: boolean): void {
    if (links > 0 || isOnceMore || this.#orphans.has(inode)) return;
    const { cache, refusedOpens } = this.inodes;
    if (this.#open.has(inode) && !cache.isNameKept(inode)) return;
    refusedOpens.refuse(thread, inode, cache.namesOf(inode));
    cache.drop(inode);
    throw new ErrnoError('ESTALE', `File ${inode} has lost its name`);
  }

  /** Opens what was just made by the same call of the kernel. */
  async created(attributes: Attributes, flags: number): Promise<Opened> {
    const file = this.#opened(attributes, isForWriting(flags));
    file.unsettled = true;
    // Somebody may have found its name already, and read it.
    if (file.source.isGiving) await file.source.withdraw();
    if (this.room.isTight) await this.#arriveOrGiveUp(file, isForWriting(flags));
    return this.#handle(file, flags);
  }

  /** Whoever makes a file hears that there is no room for it. */
  async #arriveOrGiveUp(file: OpenFile, writing: boolean): Promise<void> {
    try {
      await file.arrive(true);
    } catch (error) {
      // Before whoever made it is told, so that nobody finds it afterwards. What this fails with is what has failed already.
      file.unsettled = false;
      await file.settle().catch(() => undefined);
      this.#close(file, writing);
      throw error;
    }
  }

  /** What was just made is not opened: nobody writes to it, and the catalog is told so. */
  async made(attributes: Attributes): Promise<void> {
    const file = this.#opened(attributes, true);
    file.unsettled = true;
    try {
      await file.arrive(true);
    } finally {
      this.#close(file, true);
    }
  }

  /** The file has no name any more; if it is open here it lives until it is closed. */
  unlinked(inode: number): void {
    if (this.#open.has(inode)) this.#orphans.add(inode);
  }

  /** The file has a name again. */
  linked(inode: number): void {
    this.#orphans.delete(inode);
  }

  openFile(inode: number): OpenFile | undefined {
    return this.#open.get(inode);
  }

  /** Whether the file is open for writing here. */
  isWritten(inode: number): boolean {
    return (this.#open.get(inode)?.writerCount ?? 0) > 0;
  }

  inodeOf(handle: number): number {
    const inode = this.#handles.get(handle)?.file.inode;
    if (inode === undefined) throw new ErrnoError('EBADF', `No handle ${handle} is open`);
    return inode;
  }

  /** @param isNamed the caller named it, and has not opened it */
  async truncate(inode: number, sizeBytes: number, caller: Caller, isNamed: boolean): Promise<void> {
    const attributes = await this.#attributesToTruncate(inode, caller, isNamed);
    this.inodes.assertNamed(attributes);
    const file = this.#opened(attributes, true);
    try {
      if (file.source.isGiving) await file.source.withdraw();
      await this.#clearPrivileges(file, caller);
      await file.truncate(sizeBytes);
    } finally {
      this.#close(file, true);
    }
    this.inodes.cache.forget(inode);
  }

  /** What is named is meant as by an open: what has the name now. */
  async #attributesToTruncate(inode: number, { thread = 0 }: Caller, isNamed: boolean): Promise<Attributes> {
    const { cache, refusedOpens } = this.inodes;
    const isOnceMore = isNamed && refusedOpens.comesBack(thread, inode);
    if (isOnceMore || (isNamed && cache.isNameKept(inode)))
      return this.#attributesToOpen(inode, thread, isOnceMore);
    return this.#open.get(inode)?.attributes ?? cache.looked(inode) ?? (await this.inodes.ask(inode));
  }

  /** For how long what was written here is believed: the kernel asks for attributes before it reads, but not where a file is mapped. */
  get #writtenMs(): number {
    if (this.kernel?.asksBeforeReads !== true) return 0;
    return this.#ageMaxMs === 0 ? ASKED_MS : Math.min(this.#ageMaxMs, WRITTEN_MS_MAX);
  }

  async read(handle: number, offset: number, length: number): Promise<Uint8Array> {
    const opened = this.#fileHandle(handle);
    const { file, position, appending } = opened;
    file.locks?.assertKept(handle);
    if (length === 0) return new Uint8Array(0);
    opened.hasRead = true;
    // Whoever appends reads past the kernel's pages, and it asks for no attributes.
    const believedMs = appending ? 0 : this.#writtenMs;
    file.mayHavePages ||= !appending;
    const isCurrent = () => this.#isCurrent(file, !appending);
    const bytes = await file.read(this.#readAhead, position, offset, length, believedMs, isCurrent);
    this.#noteRead(opened);
    return bytes;
  }

  /**
   * Whether what was fetched of a file before now may be read: the cluster was asked for its version no longer ago than the mount's mode allows,
   * or is asked now. Under `ttl` that is its time. Under `strict` and `leases` it is this very read; what is granted answers by itself.
   *
   * @param wasAsked the kernel has asked for the attributes in the same call of the program, as it does unless it reads past its pages
   */
  #isCurrent(file: OpenFile, wasAsked: boolean): boolean | Promise<boolean> {
    const strictMs = wasAsked ? ASKED_MS : 0;
    const ageMaxMs = this.#ageMaxMs === 0 ? strictMs : Math.min(this.#ageMaxMs, FETCHED_MS_MAX);
    return this.#world.nowMs() - file.confirmedMs < ageMaxMs || this.#confirm(file);
  }

  /**
   * @param dropsPages the kernel drops its pages where others have changed the contents since they were told to it
   * @returns false where the cluster does not say which contents there are now
   */
  async #confirm(file: OpenFile, dropsPages = false): Promise<boolean> {
    const askedMs = this.#world.nowMs();
    try {
      const attributes = await this.inodes.ask(file.inode);
      file.confirm(attributes, askedMs);
      if (dropsPages) await file.refreshPages(attributes, () => this.#dropPages(file));
      return true;
    } catch (error) {
      // The read itself meets the same error, or does without what was fetched before.
      this.#log('debug', 'contents are not confirmed', { file: file.inode, error: String(error) });
      return false;
    }
  }

  /** @see FileSystemCalls.keptPages */
  keptPages(handle: number): void {
    const opened = this.#fileHandle(handle);
    opened.hasPages = true;
    opened.file.mayHavePages = true;
  }

  /** What the kernel has answered by itself nobody here has heard of: who opens a file to read it, most likely has. */
  async #noteLikelyRead(opened: FileHandle): Promise<void> {
    const { file, hasPages, hasRead, writing } = opened;
    if (hasPages && !hasRead && !writing && this.#noteRead(opened))
      await this.kernel?.dropAttributes(file.inode);
  }

  /** @returns whether the file has another access time by that */
  #noteRead({ file, unnoted }: FileHandle): boolean {
    return !unnoted && this.#accesses.read(file.latest);
  }

  /** Nobody looks at bytes any more that `read` returned. */
  taken(bytes: Uint8Array): void {
    this.#readAhead.taken(bytes);
  }

  /** @param appends as the descriptor is now; absent: as it was opened */
  async write(
    handle: number,
    offset: number,
    bytes: Uint8Array,
    caller: Caller,
    appends?: boolean,
  ): Promise<number> {
    const opened = this.#fileHandle(handle);
    const { file } = opened;
    if (!opened.writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (bytes.length === 0) return 0;
    if (!Number.isSafeInteger(offset + bytes.length))
      throw new ErrnoError('EFBIG', 'The file would be too large');
    this.#throwFailed(opened);
    file.locks?.assertKept(handle);
    await this.#clearPrivileges(file, caller);
    this.inodes.cache.written(file.inode);
    // Once they have arrived there are none any more.
    const { length } = bytes;
    if (appends ?? opened.appending) await file.append(bytes);
    else await file.write(offset, bytes);
    if (appends ?? opened.appending) await this.#appended(file);
    await this.#written(handle, opened);
    return length;
  }

  /**
   * Linux drops the pages before it sends an append. A page that it reads until the answer ends with zeros where the new bytes are: a
   * mapping would show the zeros, and write them back. The library's transport cannot drop pages at once.
   */
  async #appended(file: OpenFile): Promise<void> {
    if (file.mayHavePages && this.kernel?.asksBeforeReads === true) await this.#dropPages(file);
  }

  /** What was taken of a write has to be at the cluster before it is answered where the program wants that, or may be told that there is no room. */
  async #written(handle: number, opened: FileHandle): Promise<void> {
    if (opened.persisting) await this.persist(handle);
    else if (this.room.isTight) {
      await opened.file.arrive();
      this.#throwFailed(opened);
    }
  }

  async flush(handle: number, owner?: bigint): Promise<void> {
    const opened = this.#fileHandle(handle);
    await this.#noteLikelyRead(opened);
    if (this.#flushBehind && opened.file.locks === null) return;
    try {
      // Who gets the lock next shall find what was written under it.
      if (opened.writing) await opened.file.arrive(true);
      if (owner !== undefined) await opened.file.locks?.flush(owner);
    } finally {
      opened.file.locks?.closed(handle);
    }
    // Told to whoever closes: it may be a copy of the descriptor in a child that is about to run another program.
    if (opened.writing) this.#throwFailed(opened);
  }

  lockHolder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    return this.#locksOf(this.#fileHandle(handle).file).holder(handle, request);
  }

  /**
   * Sets a lock or gives it back, at the file's primary. What was written under it arrives before it is given back; who
   * gets it sees what was written before.
   */
  async lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void> {
    const opened = this.#fileHandle(handle);
    const { file } = opened;
    if (request.type === 'unlock') {
      if (file.locks === null) return;
      await file.writes.drain();
      await file.locks.lock(handle, request, false, signal);
      if (opened.writing) this.#throwFailed(opened);
      return;
    }
    const locks = this.#locksOf(file);
    await locks.lock(handle, request, waits, signal);
    try {
      await file.refresh(() => this.#dropPages(file));
    } catch (error) {
      // Whoever is told of an error does not know that there is a lock.
      await locks.lock(handle, { ...request, type: 'unlock' }, false, signal);
      throw error;
    }
  }

  async #dropPages({ inode }: OpenFile): Promise<void> {
    this.inodes.cache.forget(inode);
    await this.kernel?.invalidateInode(inode);
  }

  #locksOf(file: OpenFile): OpenLocks {
    return file.openLocks((lost) => {
      this.#log('error', 'locks were lost', { file: file.inode, locks: lost.length });
    });
  }

  async persist(handle: number): Promise<void> {
    const opened = this.#fileHandle(handle);
    await opened.file.writes.drain();
    const lost = opened.errors.peek();
    if (lost !== undefined) this.#logLost(opened.file.inode, lost);
    // The first flush of a file flushes its name, too; this is for what was changed of names and attributes since.
    else await Promise.all([opened.file.persist(), this.#backend.persistNames?.('mount')]);
    const error = opened.errors.checkAndAdvance();
    if (error !== undefined) throw error;
  }

  async release(handle: number): Promise<void> {
    const opened = this.#fileHandle(handle);
    this.#handles.delete(handle);
    opened.file.locks?.closedLast(handle);
    if (opened.writing) {
      await opened.file.writes.drain();
      // No program learns of it from here; with `flushBehind` the next sync of the file or of the volume returns it.
      const error = opened.errors.peek();
      if (error !== undefined) this.#logLost(opened.file.inode, error);
    }
    await this.#noteLikelyRead(opened);
    await opened.file.locks?.release(handle);
    while (opened.file.handleCount === 1 && opened.file.source.isGiving) await opened.file.source.withdraw();
    this.#close(opened.file, opened.writing);
  }

  /**
   * As `fallocate`(2). Nothing is reserved: a place that holds zeros takes no room in the cluster, so what a program asks for
   * beforehand is only compared with the room that there is now.
   *
   * @param mode bits FALLOC_FL_*: none, KEEP_SIZE, KEEP_SIZE with PUNCH_HOLE, ZERO_RANGE with or without KEEP_SIZE
   */
  async allocate(
    handle: number,
    mode: number,
    offset: number,
    length: number,
    caller: Caller,
  ): Promise<void> {
    const opened = this.#fileHandle(handle);
    const { file } = opened;
    if (!opened.writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (offset < 0 || length <= 0) throw new ErrnoError('EINVAL', `No range: ${length} bytes at ${offset}`);
    const end = offset + length;
    if (!Number.isSafeInteger(end)) throw new ErrnoError('EFBIG', 'The file would be too large');
    this.#throwFailed(opened);
    file.locks?.assertKept(handle);
    switch (mode) {
      case 0:
      case FALLOC_FL_KEEP_SIZE: {
        const { sizeBytes } = await file.state();
        if (end <= sizeBytes) return this.#touch(file, caller);
        const space = await this.#backend.space();
        this.room.heard(space);
        const { freeBytes, isQuota } = space;
        if (end - sizeBytes > freeBytes) {
          throw new ErrnoError(isQuota ? 'EDQUOT' : 'ENOSPC', `There is room for ${freeBytes} more bytes`);
        }
        if (mode === FALLOC_FL_KEEP_SIZE) return this.#touch(file, caller);
        await this.#clearPrivileges(file, caller);
        // Not by a truncate to this size: somebody may have appended beyond it meanwhile.
        await file.punch(end, end, true);
        break;
      }
      case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
      case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
        await this.#clearPrivileges(file, caller);
        await file.punch(offset, end, false);
        break;
      case FALLOC_FL_ZERO_RANGE:
        await this.#clearPrivileges(file, caller);
        await file.punch(offset, end, true);
        break;
      default:
        throw new ErrnoError('EOPNOTSUPP', `Allocation mode ${mode} is not supported`);
    }
    this.inodes.cache.forget(file.inode);
    this.#throwFailed(opened);
  }

  /** What was asked for is there, and counts as a change all the same. */
  async #touch(file: OpenFile, caller: Caller): Promise<void> {
    await this.#clearPrivileges(file, caller);
    await this.inodes.change(file.inode, { modified: { kind: 'now' } });
  }

  /**
   * As SEEK_DATA and SEEK_HOLE of `lseek`(2), by the objects of which the file is made.
   *
   * @throws ErrnoError `ENXIO` behind the end, and where no data follows
   */
  async seek(handle: number, offset: number, what: 'data' | 'hole'): Promise<number> {
    const { file } = this.#fileHandle(handle);
    const found = await file.seek(offset, what);
    if (found === null) throw new ErrnoError('ENXIO', `No ${what} from ${offset} on`);
    return found;
  }

  /**
   * As `copy_file_range`(2) between two open files: the servers copy, and holes stay holes. What is so small that it can be borne with the file to
   * which it is copied passes through here: that file would have to be made first, for servers to copy to it.
   *
   * @param length may be larger than any file
   * @returns how many bytes were copied: fewer than `length` at the end of the source, or where it is much or took long
   */
  async copyRange(
    from: number,
    fromOffset: number,
    to: number,
    toOffset: number,
    length: number,
    caller: Caller,
  ): Promise<number> {
    const read = this.#fileHandle(from);
    const source = read.file;
    const opened = this.#fileHandle(to);
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
    this.#throwFailed(opened);
    source.locks?.assertKept(from);
    file.locks?.assertKept(to);
    await this.#clearPrivileges(file, caller);
    const done = file.keeps(toOffset + wanted)
      ? await this.#copyHere(source, fromOffset, file, toOffset, wanted)
      : await this.#copyThere(source, fromOffset, file, toOffset, wanted);
    read.hasRead = true;
    if (done > 0) this.#noteRead(read);
    await this.#written(to, opened);
    return done;
  }

  /** @returns how many bytes were copied */
  async #copyHere(
    source: OpenFile,
    fromOffset: number,
    file: OpenFile,
    toOffset: number,
    length: number,
  ): Promise<number> {
    if (length === 0) return 0;
    const isCurrent = () => this.#isCurrent(source, false);
    const read = await source.read(this.#readAhead, new ReadPosition(), fromOffset, length, 0, isCurrent);
    // What was read is a part of what others read.
    const bytes = Uint8Array.from(read);
    this.#readAhead.taken(read);
    if (bytes.length === 0) return 0;
    this.inodes.cache.written(file.inode);
    await file.write(toOffset, bytes);
    return bytes.length;
  }

  /** @returns how many bytes the servers have copied */
  async #copyThere(
    source: OpenFile,
    fromOffset: number,
    file: OpenFile,
    toOffset: number,
    wanted: number,
  ): Promise<number> {
    const untilMs = this.#world.nowMs() + COPY_MS_MAX;
    let done = 0;
    try {
      while (done < wanted) {
        const copied = await file.copyFrom(source, fromOffset + done, toOffset + done, wanted - done);
        done += copied;
        if (copied === 0 || this.#world.nowMs() >= untilMs) break;
      }
    } catch (error) {
      // What was copied before counts; the next call meets the same error again.
      if (done === 0) throw error;
    }
    this.inodes.cache.forget(file.inode);
    return done;
  }

  /**
   * Resolves when what was written to open files is at the cluster, or its error is in the sequence. Names are not known here.
   *
   * @throws why a new file is not at the cluster
   */
  async flushWrites(scope: FlushScope): Promise<void> {
    const files = [...this.#open.values()];
    const meant = files.filter(
      ({ inode }) => scope.kind === 'all' || (scope.kind === 'inode' && scope.inode === inode),
    );
    await allDone(meant.map((file) => file.arrive()));
  }

  /** When the mount is gone: everything written arrives, and the catalog hears of it. */
  async stop(): Promise<void> {
    this.#orphans.stop();
    this.#pageChecks?.stop();
    // A failure is returned to the programs that have the file open.
    await this.flushWrites(FLUSH_ALL).catch(() => undefined);
    await Promise.all([...this.#open.values()].map((file) => file.locks?.close()));
    for (const file of this.#open.values()) {
      const { failure } = file.writes;
      if (failure !== null)
        this.#log('error', 'writes were lost', { file: file.inode, error: String(failure.error) });
      // From here on nobody writes, although handles may be open.
      file.writerCount = 0;
      if (file.unsettled) this.#settle(file);
    }
    while (this.#settling.size > 0) await Promise.all(this.#settling);
  }

  #opened(attributes: Attributes, writing: boolean): OpenFile {
    let file = this.#open.get(attributes.inode);
    if (file === undefined) {
      const backend = this.#backend.openFile(attributes.inode, attributes.replicas, attributes.contents);
      const pages = this.#pages.of(attributes.inode, attributes.contents);
      file = new OpenFile(
        this.#world,
        attributes,
        backend,
        this.#budget,
        this.#limitMs,
        pages,
        () => this.kernel,
        this.room,
        this.#errors,
      );
      this.#open.set(attributes.inode, file);
    }
    file.handleCount++;
    if (writing) file.writerCount++;
    return file;
  }

  #handle(file: OpenFile, flags: number): Opened {
    this.#handleLast += 2;
    const handle = this.#handleLast;
    const appending = (flags & constants.O_APPEND) !== 0;
    this.#handles.set(handle, {
      file,
      writing: isForWriting(flags),
      appending,
      persisting: (flags & (constants.O_SYNC | constants.O_DSYNC)) !== 0,
      position: new ReadPosition(),
      unnoted: (flags & constants.O_NOATIME) !== 0,
      hasRead: false,
      hasPages: false,
      errors: new ErrorCursor(this.#errors, file.inode),
    });
    return {
      handle,
      // An append lands where the cluster's file ends, which the kernel's cache cannot know.
      directIo: appending,
      linked: file.attributes.links > 1,
      // With bytes under way there is no version yet that a later open could find unchanged.
      version: file.writes.dirty ? null : contentsName(file.inode, file.attributes.contents),
    };
  }

  #fileHandle(handle: number): FileHandle {
    const opened = this.#handles.get(handle);
    if (opened === undefined) throw new ErrnoError('EBADF', `No handle ${handle} is open`);
    return opened;
  }

  #throwFailed(opened: FileHandle): void {
    const error = opened.errors.check();
    if (error !== undefined) throw error;
  }

  #logLost(inode: number, error: unknown): void {
    this.#log('error', 'writes failed', { file: inode, error: String(error) });
  }

  async #clearPrivileges(file: OpenFile, caller: Caller): Promise<void> {
    const { mode } = file.attributes;
    const { killsPrivileges = caller.uid !== 0 } = caller;
    await this.#removeCapability(file);
    if (!killsPrivileges || mode === withoutPrivileges(mode)) return;
    await this.inodes.change(file.inode, { mode: withoutPrivileges(mode) });
  }

  /** The kernel removes a capability before a write to its pages, and leaves that to the file system where a write goes past them. */
  async #removeCapability(file: OpenFile): Promise<void> {
    const { attributes, inode } = file;
    if (attributes.xattrs === 0 || this.#withoutCapability.has(attributes)) return;
    try {
      await this.#backend.xattr(inode, CAPABILITY_NAME);
      await this.#backend.removeXattr(inode, CAPABILITY_NAME);
      this.inodes.cache.drop(inode);
    } catch (error) {
      if (errnoName(error) !== 'ENODATA') throw error;
    }
    this.#withoutCapability.add(attributes);
  }

  #close(file: OpenFile, writing: boolean): void {
    file.handleCount--;
    if (writing) file.writerCount--;
    if (file.writerCount === 0 && file.unsettled && !this.#orphans.has(file.inode)) this.#settle(file);
    if (file.handleCount > 0) return;
    assert(!file.source.isGiving, 'Whoever opens the file next knows nothing of pages on their way');
    // As long as it was open, this mount knew better than what was asked for before its bytes had arrived.
    if (file.written || file.writes.failure !== null)
      this.inodes.cache.closed(file.inode, (heard) => file.since(heard));
    file.locks?.close().catch((error: unknown) => {
      this.#log('error', 'locks of a closed file could not be given back', { error: String(error) });
    });
    file.closed();
    this.#open.delete(file.inode);
    if (this.#orphans.has(file.inode)) this.#accesses.forget(file.inode);
    this.#orphans.delete(file.inode);
  }

  /** The catalog is told of a closed file in the background: who asks meanwhile is answered by its primary. */
  #settle(file: OpenFile): void {
    file.unsettled = false;
    const isToBeSealed = file.isToBeSealed;
    const settled = this.#settleTurn()
      .then(() => (isToBeSealed ? file.seal() : undefined))
      .then(() => file.settle())
      .catch((error: unknown) => {
        // Removed meanwhile, or written by another client, which seals and settles it in its turn.
        const gone = error instanceof ServiceError && GONE_ON.has(error.code);
        const facts = { file: file.inode, error: String(error) };
        const what = isToBeSealed ? 'sealed and settled' : 'settled';
        if (!gone) this.#log('warn', `a closed file is not ${what}`, facts);
      })
      .finally(() => {
        this.#settleCount--;
        this.#settleQueue.shift()?.();
        this.#settling.delete(settled);
        if (this.#sealing.get(file.inode) === settled) this.#sealing.delete(file.inode);
      });
    this.#settling.add(settled);
    if (isToBeSealed) this.#sealing.set(file.inode, settled);
  }

  /** Told at open, and not only at the first write. */
  async #assertUnsealed(file: OpenFile): Promise<void> {
    await this.#sealing.get(file.inode);
    const { sealed = false } = await file.state();
    if (sealed) throw new ErrnoError('EROFS', `File ${file.inode} is sealed`);
  }

  async #settleTurn(): Promise<void> {
    if (this.#settleCount >= SETTLING_MAX)
      await new Promise<void>((resolve) => this.#settleQueue.push(resolve));
    this.#settleCount++;
  }
}

/** @param flags of open(2) */
function isForWriting(flags: number): boolean {
  return (flags & (constants.O_WRONLY | constants.O_RDWR)) !== 0;
}
