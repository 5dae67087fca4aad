import { constants } from 'node:fs';
import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import type { Attributes, FileSystemBackend, RenameMode, Space, XattrMode } from './backend.ts';
import { FileCalls } from './contents/file-calls.ts';
import { OpenFiles } from './contents/open-files.ts';
import { WRITTEN_BYTES_LEAST } from './contents/written-pages.ts';
import { withDeadline } from './deadline.ts';
import { ErrnoError, type ErrnoName, errnoName } from './errno.ts';
import { ATTRIBUTE_AGE_MAX_MS } from './metadata/cache.ts';
import { Directories } from './metadata/directories.ts';
import type { Inodes } from './metadata/inodes.ts';
import { Names } from './metadata/names.ts';
import { OwnChanges } from './metadata/own-changes.ts';
import { isGone, RemovedDirectories, staleIfGone } from './metadata/removed-directories.ts';
import { ttlPolicy } from './metadata/validity.ts';
import { ACCESS_RULE_DEFAULT, AccessTimes } from './pending/access-times.ts';
import { ErrorCursor, type ErrorScope, ErrorSequence } from './pending/error-sequence.ts';
import { FLUSH_ALL, type FlushScope, PendingOps } from './pending/pending-ops.ts';
import type {
  Answered,
  AttributeRequest,
  Caller,
  Created,
  DirectoryPage,
  FileKernel,
  FileSystemCalls,
  LockRequest,
  Log,
  NamePlace,
  Opened,
} from './transport.ts';
import { isNamespaceAlone, isSettable, isTrusted, xattrKind } from './xattr-names.ts';

const NAME_BYTES_MAX = 255;
const XATTR_VALUE_BYTES_MAX = 64 * 1024;
const SPACE_AGE_MAX_MS = 5_000;
/** `df` waits this long for fresh numbers; then it gets the last ones. */
const SPACE_WAIT_MS = 2_000;

/** Errors of dropped calls that a program would take for errors of `fsync` itself: it reports them as EIO. */
const CALL_ERRNOS: ReadonlySet<ErrnoName> = new Set([
  'EEXIST',
  'EACCES',
  'ENOENT',
  'EISDIR',
  'ENOTDIR',
  'EBUSY',
]);

const RENAME_NO_REPLACE = 1;
const RENAME_EXCHANGE = 2;
const RENAME_WHITEOUT = 4;
const RENAME_MODES: ReadonlyMap<number, RenameMode> = new Map([
  [0, 'replace'],
  [RENAME_NO_REPLACE, 'no-replace'],
  [RENAME_EXCHANGE, 'exchange'],
]);
const XATTR_CREATE = 1;
const XATTR_REPLACE = 2;

/** A volume as the kernel sees it: its calls, answered by the cluster and by what the mount remembers. */
export class FileSystem implements FileSystemCalls {
  readonly root: number;
  /** Of the mode `ttl`. */
  readonly ttlPolicy: ReturnType<typeof ttlPolicy>;
  readonly #world: World;
  readonly #backend: FileSystemBackend;
  readonly #limitMs: number;
  readonly #log: Log;
  readonly #accesses: AccessTimes;
  readonly #files: OpenFiles;
  readonly #calls: FileCalls;
  readonly #inodes: Inodes;
  readonly #names: Names;
  readonly #changes: OwnChanges;
  readonly #directories: Directories;
  readonly #removed: RemovedDirectories;
  readonly #errors: ErrorSequence;
  readonly #pending: PendingOps;
  /** Of open directories, by handle. */
  readonly #errorCursors = new Map<number, ErrorCursor>();
  #rootHeard: Answered | undefined;
  #space: { readonly space: Space; readonly heardMs: number } | undefined;

  /**
   * @param root as `backend.start` answered it
   * @param limitMs the longest that one question to the cluster may take
   * @param flushBehind a close does not wait until the cluster has what was written
   * @param accessRule when reads make access times later
   * @param writtenBytesMax memory for pages of what was written
   */
  constructor(
    world: World,
    backend: FileSystemBackend,
    root: number,
    limitMs: number,
    log: Log,
    ageMaxMs = ATTRIBUTE_AGE_MAX_MS,
    flushBehind = false,
    accessRule = ACCESS_RULE_DEFAULT,
    writtenBytesMax = WRITTEN_BYTES_LEAST,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.root = root;
    this.#limitMs = limitMs;
    this.#log = log;
    this.#errors = backend.errors ?? new ErrorSequence();
    this.#accesses = new AccessTimes(world, backend, accessRule, log, (access) =>
      this.#inodes.accessed(access),
    );
    const isDelegated = (directory: number): boolean => backend.isHeld?.(directory) ?? false;
    this.#files = new OpenFiles(
      world,
      backend,
      limitMs,
      log,
      ageMaxMs,
      this.#accesses,
      writtenBytesMax,
      this.#errors,
      isDelegated,
    );
    this.#calls = new FileCalls(world, backend, this.#files, this.#accesses, this.#errors, log, {
      ageMaxMs,
      flushBehind,
    });
    this.#pending = new PendingOps([this.#files, backend, this.#accesses]);
    this.#inodes = this.#files.inodes;
    const { cache } = this.#inodes;
    backend.onNamed?.((directory, atNs) => cache.named(directory, atNs));
    backend.onHeld?.((directory) => cache.delegated(directory));
    this.ttlPolicy = ttlPolicy(cache, ageMaxMs);
    this.#changes = new OwnChanges(cache);
    this.#names = new Names(world, backend, this.#inodes, ageMaxMs);
    this.#directories = new Directories(this.#names);
    this.#removed = new RemovedDirectories(world);
  }

  // Names and attributes.

  async lookup(parent: number, name: string, thread = 0): Promise<Answered> {
    checkName(name);
    if (name === '.' || name === '..') return this.#lookupNumber(parent, name === '.' ? 'self' : 'parent');
    return this.#names.lookup(parent, name, thread);
  }

  get findsNumbers(): boolean {
    return this.#backend.byNumber !== undefined;
  }

  /** The kernel has a handle of what it does not know any more. */
  async #lookupNumber(inode: number, which: 'self' | 'parent'): Promise<Answered> {
    await this.#backend.flush({ kind: 'inode', inode }, 'unlinks');
    const requestedAt = this.#inodes.cache.request();
    const found = await staleIfGone(this.#backend.byNumber?.(inode, which) ?? goneNumber(inode));
    this.#inodes.assertNamed(found);
    return this.#inodes.present(this.#inodes.cache.attributes.learn(found, requestedAt));
  }

  async lookupToOpen(parent: number, name: string): Promise<Answered> {
    checkName(name);
    return this.#names.lookupToOpen(parent, name);
  }

  async attributes(inode: number): Promise<Answered> {
    if (inode !== this.root) return this.#unlessRemoved(inode, {}, () => this.#inodes.attributes(inode));
    try {
      this.#rootHeard = await this.#inodes.attributes(inode);
    } catch (error) {
      // `df` looks at the root first, and always gets an answer: while the cluster gives none, the last one.
      if (this.#rootHeard === undefined || errnoName(error) !== 'ETIMEDOUT') throw error;
    }
    return this.#rootHeard;
  }

  async readLink(inode: number): Promise<string> {
    const attributes =
      this.#inodes.cache.attributes.of(inode) ??
      this.#inodes.cache.lookedUp(inode) ??
      (await staleIfGone(this.#inodes.ask(inode)));
    if (attributes.kind !== 'symlink') throw new ErrnoError('EINVAL', `Inode ${inode} is no symbolic link`);
    this.#accesses.read(attributes);
    return attributes.target;
  }

  // Changes of the namespace.

  async makeNode(
    parent: number,
    name: string,
    mode: number,
    device: number,
    caller: Caller,
  ): Promise<Answered> {
    checkName(name);
    const type = nodeType(mode);
    if (type === 'file') {
      const { attributes } = await this.#changes.create({ parent, name }, () =>
        this.#backend.createFile(parent, name, mode & 0o7777, caller, true),
      );
      await this.#files.made(attributes);
      return attributes;
    }
    return this.#makeEntry(parent, name, () =>
      this.#backend.makeNode(parent, name, type, device, mode & 0o7777, caller),
    );
  }

  async makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<Answered> {
    checkName(name);
    return this.#makeEntry(parent, name, () =>
      this.#backend.makeDirectory(parent, name, mode & 0o7777, caller),
    );
  }

  async symlink(parent: number, name: string, target: string, caller: Caller): Promise<Answered> {
    checkName(name);
    return this.#makeEntry(parent, name, () => this.#backend.symlink(parent, name, target, caller));
  }

  async #makeEntry(parent: number, name: string, make: () => Promise<Attributes>): Promise<Answered> {
    const made = async () => ({ attributes: await make(), created: true });
    return (await this.#changes.create({ parent, name }, made)).attributes;
  }

  async link(inode: number, parent: number, name: string, thread = 0): Promise<Answered> {
    checkName(name);
    await staleIfGone(this.#inodes.assertMeantToLink(inode, thread));
    // Nothing else can be missing than the inode, or the directory.
    const attributes = await staleIfGone(
      this.#changes.link(inode, { parent, name }, () => this.#backend.link(inode, parent, name)),
    );
    this.#files.linked(inode);
    return this.#inodes.present(attributes);
  }

  async unlink(parent: number, name: string, uid?: number): Promise<void> {
    checkName(name);
    const isOpen = (file: number): boolean => this.#inodes.isOpen(file);
    const { inode, links } = await this.#changes.unlink({ parent, name }, () =>
      this.#backend.unlink(parent, name, uid, isOpen),
    );
    if (links > 0) return;
    this.#files.unlinked(inode);
    if (!this.#inodes.isOpen(inode)) this.#accesses.forget(inode);
  }

  async removeDirectory(parent: number, name: string): Promise<void> {
    checkName(name);
    const { inode, last } = await this.#changes.removeDirectory({ parent, name }, (known) =>
      this.#backend.removeDirectory(parent, name, known),
    );
    if (inode === undefined) return;
    this.#accesses.forget(inode);
    this.#removed.addLikely(last);
  }

  async rename(from: NamePlace, to: NamePlace, flags: number, uid?: number, gid = 0): Promise<void> {
    checkName(from.name);
    checkName(to.name);
    const whitens = (flags & RENAME_WHITEOUT) !== 0;
    const mode = RENAME_MODES.get(flags & ~RENAME_WHITEOUT);
    if (mode === undefined || (whitens && mode === 'exchange'))
      throw new ErrnoError('EINVAL', `Rename flags ${flags} are not supported`);
    const { replaced, last } = await this.#changes.rename(
      ...([from, to, { mode, whitens }] as const),
      () =>
        whitens && mode !== 'exchange'
          ? this.#backend.renameWhiteout(from, to, mode, { uid: uid ?? 0, gid })
          : this.#backend.rename(from, to, mode, uid),
      (inode) => this.#inodes.isOpen(inode),
    );
    if (replaced === null) return;
    this.#removed.add(last);
    if (this.#inodes.isOpen(replaced) && !(await this.#hasName(replaced))) this.#files.unlinked(replaced);
  }

  /** Where that cannot be found out it is taken for a file that has none, which is kept for as long as it is open. */
  async #hasName(inode: number): Promise<boolean> {
    try {
      return (await this.#inodes.ask(inode)).links > 0;
    } catch (error) {
      this.#log('debug', 'what a rename replaced is not known', { file: inode, error: String(error) });
      return false;
    }
  }

  // Files.

  async create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Created> {
    checkName(name);
    const exclusive = (flags & constants.O_EXCL) !== 0;
    const { attributes, created } = await this.#changes.create({ parent, name }, () =>
      this.#backend.createFile(parent, name, mode & 0o7777, caller, exclusive),
    );
    if (!created) {
      const opened = await this.#calls.open(attributes.inode, flags, caller);
      return { ...opened, attributes: await this.#inodes.attributes(attributes.inode) };
    }
    try {
      return { ...(await this.#calls.created(attributes, flags)), attributes };
    } catch (error) {
      this.#inodes.cache.forgetEntry(parent, name);
      throw error;
    }
  }

  /** Whether the file is open for writing here. */
  isWritten(inode: number): boolean {
    return this.#files.isWritten(inode);
  }

  setAttributes(inode: number, request: AttributeRequest): Promise<Answered> {
    return this.#unlessRemoved(inode, request, () => this.#inodes.change(inode, request));
  }

  touchStatus(inode: number, caller: Caller): Promise<Answered> {
    return this.#unlessRemoved(inode, {}, () => this.#inodes.touch(inode, caller));
  }

  /**
   * Asks the cluster about an inode, or changes its attributes there; not where it is a directory without a name, which is known
   * here alone. A directory that another mount has removed is one of those if it is open here.
   */
  async #unlessRemoved(
    inode: number,
    request: AttributeRequest,
    answer: () => Promise<Answered>,
  ): Promise<Answered> {
    const isChange = Object.keys(request).length > 0;
    const removed = (): Answered | undefined =>
      isChange ? this.#removed.change(inode, request) : this.#removed.of(inode);
    const known = removed();
    if (known !== undefined) return known;
    try {
      const attributes = await answer();
      if (attributes.kind === 'directory') this.#directories.heard(attributes);
      return attributes;
    } catch (error) {
      if (isGone(error)) await staleIfGone(this.#noteRemoved(inode));
      return removed() ?? staleIfGone(Promise.reject(error));
    }
  }

  /**
   * The cluster does not find an inode. If that is a directory that is open here, or that had a name which was removed here, it is removed;
   * unless the root is gone, too, as where a snapshot was removed.
   */
  async #noteRemoved(inode: number): Promise<void> {
    const last = this.#directories.lastOf(inode) ?? this.#removed.likely(inode);
    if (last === undefined) return;
    await this.#backend.attributes(this.root);
    this.#removed.add(last);
  }

  async truncate(inode: number, sizeBytes: number, caller: Caller, isNamed = false): Promise<Answered> {
    await staleIfGone(this.#files.truncate(inode, sizeBytes, caller, isNamed));
    return staleIfGone(this.#inodes.attributes(inode));
  }

  inodeOf(handle: number): number {
    return this.#directories.inodeOf(handle) ?? this.#calls.inodeOf(handle);
  }

  open(inode: number, flags: number, caller: Caller): Promise<Opened> {
    return staleIfGone(this.#calls.open(inode, flags, caller));
  }

  read(handle: number, offset: number, length: number): Promise<Uint8Array> {
    return this.#calls.read(handle, offset, length);
  }

  keptPages(handle: number): void {
    this.#calls.keptPages(handle);
  }

  taken(bytes: Uint8Array): void {
    this.#calls.taken(bytes);
  }

  write(
    handle: number,
    offset: number,
    bytes: Uint8Array,
    caller: Caller,
    appends?: boolean,
  ): Promise<number> {
    return this.#calls.write(handle, offset, bytes, caller, appends);
  }

  flush(handle: number, owner?: bigint): Promise<void> {
    return this.#calls.flush(handle, owner);
  }

  lockHolder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    return this.#calls.lockHolder(handle, request);
  }

  lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void> {
    return this.#calls.lock(handle, request, waits, signal);
  }

  persist(handle: number): Promise<void> {
    return this.#calls.persist(handle);
  }

  async persistDirectory(inode: number, handle?: number): Promise<void> {
    const scope: FlushScope = inode === this.root ? FLUSH_ALL : { kind: 'directory', inode };
    await this.#pending.flush(scope).catch((error: unknown) => {
      throw syncFailure(error);
    });
    await this.#backend.persistNames?.('cluster');
    const cursor = this.#errorCursors.get(handle ?? 0) ?? new ErrorCursor(this.#errors, this.#scopeOf(inode));
    const error = cursor.checkAndAdvance();
    if (error !== undefined) throw syncFailure(error);
  }

  /** Errors of the root are those of the volume. */
  #scopeOf(directory: number): ErrorScope {
    return directory === this.root ? 'volume' : directory;
  }

  release(handle: number): Promise<void> {
    return this.#calls.release(handle);
  }

  allocate(handle: number, mode: number, offset: number, length: number, caller: Caller): Promise<void> {
    return this.#calls.allocate(handle, mode, offset, length, caller);
  }

  seek(handle: number, offset: number, what: 'data' | 'hole'): Promise<number> {
    return this.#calls.seek(handle, offset, what);
  }

  copyRange(
    from: number,
    fromOffset: number,
    to: number,
    toOffset: number,
    length: number,
    caller: Caller,
  ): Promise<number> {
    return this.#calls.copyRange(from, fromOffset, to, toOffset, length, caller);
  }

  // Directories.

  async openDirectory(inode: number, flags = 0): Promise<number> {
    const last = this.#inodes.cache.attributes.lastOf(inode);
    const unnoted = (flags & constants.O_NOATIME) !== 0;
    const handle = this.#directories.open(inode, last, unnoted);
    this.#errorCursors.set(handle, new ErrorCursor(this.#errors, this.#scopeOf(inode)));
    return handle;
  }

  async readDirectory(handle: number, offset: number, countMax: number): Promise<DirectoryPage> {
    const page = await this.#listedPage(handle, offset, countMax);
    const inode = this.#directories.isNoted(handle) ? this.#directories.inodeOf(handle) : undefined;
    const attributes = inode === undefined ? undefined : this.#inodes.cache.attributes.lastOf(inode);
    // Where a name in it is just being changed here nothing is known of it: its next listing is noted.
    if (attributes !== undefined) this.#accesses.read(attributes);
    return page;
  }

  /** A directory without a name has no entries. */
  async #listedPage(handle: number, offset: number, countMax: number): Promise<DirectoryPage> {
    const inode = this.#directories.inodeOf(handle) ?? this.root;
    if (this.#removed.of(inode) !== undefined) return { entries: [] };
    try {
      return await this.#directories.read(handle, offset, countMax);
    } catch (error) {
      if (!isGone(error) || inode === this.root) throw error;
      await this.#noteRemoved(inode);
      if (this.#removed.of(inode) === undefined) throw error;
      return { entries: [] };
    }
  }

  /** Of a file that is open here more is known than a listing tells. */
  listed(parent: number, name: string): Answered | undefined {
    const attributes = this.#inodes.cache.entry(parent, name);
    if (attributes === undefined || this.#inodes.isOpen(attributes.inode)) return undefined;
    return this.#accesses.shown(attributes);
  }

  async releaseDirectory(handle: number): Promise<void> {
    this.#directories.release(handle);
    this.#errorCursors.delete(handle);
  }

  // The volume, and extended attributes.

  async space(): Promise<Space> {
    const known = this.#space;
    if (known !== undefined && this.#world.nowMs() - known.heardMs < SPACE_AGE_MAX_MS) return known.space;
    const asked = this.#backend.space().then((space) => {
      this.#space = { space, heardMs: this.#world.nowMs() };
      this.#files.room.heard(space);
      return space;
    });
    try {
      const waitMs = Math.min(SPACE_WAIT_MS, this.#limitMs);
      return await withDeadline(this.#world, asked, waitMs, 'Asking for free space');
    } catch (error) {
      this.#log('debug', 'free space is not known', { error: String(error) });
      return this.#space?.space ?? { totalBytes: 0, freeBytes: 0, inodes: 0 };
    }
  }

  async xattr(inode: number, name: string): Promise<Uint8Array> {
    assertXattrName(name);
    const kind = xattrKind(name);
    if (kind === 'none') throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
    const { cache } = this.#inodes;
    const isOfKernel = kind === 'acl' || kind === 'security';
    if (
      (kind === 'kept' && cache.attributes.hasNoXattrs(inode)) ||
      (isOfKernel && cache.attributes.hasNoAcls(inode))
    )
      throw new ErrnoError('ENODATA', `There is no attribute ${name}`);
    return this.#backend.xattr(inode, name);
  }

  async xattrs(inode: number, { uid, thread }: Caller): Promise<readonly string[]> {
    const names = await this.#backend.xattrs(inode, thread);
    // The kernel refuses these to all others by name, and leaves the list to us.
    return uid === 0 ? names : names.filter((name) => !isTrusted(name));
  }

  async setXattr(
    inode: number,
    name: string,
    value: Uint8Array,
    flags: number,
    clearsSetgid = false,
  ): Promise<void> {
    assertXattrName(name);
    const kind = xattrKind(name);
    if (!isSettable(kind)) throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
    if (Buffer.byteLength(name) > NAME_BYTES_MAX)
      throw new ErrnoError('ERANGE', 'The attribute name is too long');
    if (value.length > XATTR_VALUE_BYTES_MAX)
      throw new ErrnoError('E2BIG', 'The attribute value is too large');
    const mode: XattrMode = flags === XATTR_CREATE ? 'create' : flags === XATTR_REPLACE ? 'replace' : 'set';
    try {
      await this.#backend.setXattr(inode, name, value, mode, clearsSetgid);
    } catch (error) {
      // The value is small enough: there are too many others.
      if (!(error instanceof ServiceError) || error.code !== 'too-large') throw error;
      throw new ErrnoError('ENOSPC', error.message);
    }
    this.#inodes.cache.attributes.drop(inode);
    // A list takes the mode with it, which an open file knows, too. Of a file with attributes a write removes a capability.
    if (kind !== 'kept' && this.#inodes.isOpen(inode)) await this.#inodes.attributes(inode);
  }

  async removeXattr(inode: number, name: string): Promise<void> {
    assertXattrName(name);
    if (xattrKind(name) === 'none') throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
    await this.#backend.removeXattr(inode, name);
    this.#inodes.cache.attributes.drop(inode);
  }

  /** The mount is there: from now on the kernel can be told what it has to forget. */
  mounted(kernel: FileKernel): void {
    this.#files.mounted(kernel);
  }

  /** Others are about to change it: what was heard of it a moment ago is no news any more, once it resolves for the kernel neither. */
  async forget(inode: number): Promise<void> {
    this.#inodes.cache.attributes.forget(inode);
    await this.#files.openFile(inode)?.source.withdraw();
  }

  /** Everything written so far arrives, or is known to be lost. */
  async drain(): Promise<void> {
    // A failure is returned to the programs that have the file open.
    await this.#files.flush(FLUSH_ALL).catch(() => undefined);
  }

  /** When the mount is gone: everything written arrives, and the catalog hears of it, and of what was read. */
  async stop(): Promise<void> {
    await this.#files.stop();
    await this.#accesses.stop();
  }
}

function checkName(name: string): void {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) {
    throw new ErrnoError('ENAMETOOLONG', 'A name is longer than 255 bytes');
  }
}

async function goneNumber(inode: number): Promise<never> {
  throw new ServiceError('not-found', `Inode ${inode} is not looked up by its number here`);
}

function assertXattrName(name: string): void {
  if (isNamespaceAlone(name)) throw new ErrnoError('EINVAL', `"${name}" has no name behind its namespace`);
}

function nodeType(mode: number): 'file' | 'fifo' | 'socket' | 'character' | 'block' {
  switch (mode & constants.S_IFMT) {
    case 0:
    case constants.S_IFREG:
      return 'file';
    case constants.S_IFIFO:
      return 'fifo';
    case constants.S_IFSOCK:
      return 'socket';
    case constants.S_IFCHR:
      return 'character';
    case constants.S_IFBLK:
      return 'block';
    default:
      throw new ErrnoError('EINVAL', 'Not a type that can be made');
  }
}

/** @returns what `fsync` of a directory fails with where a call before it has failed so */
function syncFailure(error: unknown): unknown {
  if (!CALL_ERRNOS.has(errnoName(error))) return error;
  return new ErrnoError('EIO', `What was done before is not stored: ${String(error)}`);
}
