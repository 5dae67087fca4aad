import { constants } from 'node:fs';
import { ServiceError } from '../base/errors.ts';
import { AttributeCache } from './attribute-cache.ts';
import type {
  AttributeChanges,
  Attributes,
  FileSystemBackend,
  NodeKind,
  Space,
  XattrMode,
} from './backend.ts';
import { contentVersionCompare } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { ErrnoError } from './errno.ts';
import { nowNs, OpenFile } from './open-file.ts';
import { ReadAhead, ReadPosition } from './read-ahead.ts';
import type {
  AttributeRequest,
  Caller,
  DirectoryPage,
  FileSystemCalls,
  Log,
  NamePlace,
  Opened,
  TimeChange,
} from './transport.ts';
import { xattrIsLocal } from './transport.ts';
import { DirtyBudget } from './write-behind.ts';

const DIRTY_BYTES_MAX = 64 * 1024 * 1024;
const READ_AHEAD_BYTES_MAX = 12 * 1024 * 1024;
const NAME_BYTES_MAX = 255;
const XATTR_VALUE_BYTES_MAX = 64 * 1024;
/** Entries asked for in one listing, and answered to one call of the kernel (whose buffer holds about that). */
const LIST_COUNT = 1000;
const PAGE_COUNT = 128;
/** Files that are told to the catalog at the same time after they were closed. */
const SETTLING_MAX = 8;
const KEEP_ORPHANS_INTERVAL_MS = 30_000;
const SPACE_AGE_MAX_MS = 5_000;
/** `df` waits this long for fresh numbers; then it gets the last ones. */
const SPACE_WAIT_MS = 2_000;

const SET_USER_ID = 0o4000;
const SET_GROUP_ID = 0o2000;
const GROUP_EXECUTE = 0o010;
/** `fallocate` without extending the file (FALLOC_FL_KEEP_SIZE). */
const ALLOCATE_KEEP_SIZE = 1;
const RENAME_NO_REPLACE = 1;
const RENAME_EXCHANGE = 2;
const XATTR_CREATE = 1;
const XATTR_REPLACE = 2;
const UNCHANGED_OWNER = 0xffff_ffff;

interface FileHandle {
  readonly file: OpenFile;
  readonly writing: boolean;
  readonly appending: boolean;
  /** O_SYNC or O_DSYNC: every write survives a loss of power before it is answered. */
  readonly persisting: boolean;
  readonly position: ReadPosition;
  /** Errors of the file's writes that this handle was told of, or that were before its time. */
  errorsTold: number;
}

interface DirectoryHandle {
  readonly inode: number;
  entries: { readonly name: string; readonly kind: NodeKind }[];
  complete: boolean;
}

/** A volume as the kernel sees it: its calls, answered by the cluster and by what the mount remembers. */
export class FileSystem implements FileSystemCalls {
  readonly root: number;
  readonly #backend: FileSystemBackend;
  readonly #limitMs: number;
  readonly #log: Log;
  readonly #cache = new AttributeCache();
  readonly #budget = new DirtyBudget(DIRTY_BYTES_MAX);
  readonly #readAhead = new ReadAhead(READ_AHEAD_BYTES_MAX);
  readonly #open = new Map<number, OpenFile>();
  readonly #handles = new Map<number, FileHandle>();
  readonly #directories = new Map<number, DirectoryHandle>();
  /** Files closed after writing that the catalog is being told of. */
  readonly #settling = new Set<Promise<void>>();
  /** Those among them that are being sealed, by inode. */
  readonly #sealing = new Map<number, Promise<void>>();
  readonly #settleQueue: (() => void)[] = [];
  #settleCount = 0;
  /** Files without a name that are open here, and would be collected if nobody said so. */
  readonly #orphans = new Set<number>();
  readonly #orphanTimer: NodeJS.Timeout;
  #space: { readonly space: Space; readonly heardMs: number } | undefined;
  #handleLast = 0;

  /**
   * @param root as `backend.start` answered it
   * @param limitMs the longest that one question to the cluster may take
   */
  constructor(backend: FileSystemBackend, root: number, limitMs: number, log: Log) {
    this.#backend = backend;
    this.root = root;
    this.#limitMs = limitMs;
    this.#log = log;
    this.#orphanTimer = setInterval(() => this.#keepOrphans(), KEEP_ORPHANS_INTERVAL_MS);
  }

  // Names and attributes.

  async lookup(parent: number, name: string): Promise<Attributes> {
    checkName(name);
    const cached = this.#cache.entry(parent, name);
    if (cached !== undefined) return this.#present(cached);
    const { mark } = this.#cache;
    const attributes = await this.#backend.lookup(parent, name);
    this.#cache.heardEntry(parent, name, attributes, mark);
    return this.#present(attributes);
  }

  async attributes(inode: number): Promise<Attributes> {
    return this.#present(this.#cache.attributes(inode) ?? (await this.#ask(inode)));
  }

  inodeOf(handle: number): number {
    const inode = this.#handles.get(handle)?.file.inode ?? this.#directories.get(handle)?.inode;
    if (inode === undefined) throw new ErrnoError('EBADF', `No handle ${handle} is open`);
    return inode;
  }

  async setAttributes(inode: number, request: AttributeRequest): Promise<void> {
    const file = this.#open.get(inode);
    if (request.modified !== undefined) await file?.writes.drain();
    const changes: { -readonly [Key in keyof AttributeChanges]: AttributeChanges[Key] } = {};
    if (request.mode !== undefined) changes.mode = request.mode & 0o7777;
    if (request.uid !== undefined && request.uid !== UNCHANGED_OWNER) changes.uid = request.uid;
    if (request.gid !== undefined && request.gid !== UNCHANGED_OWNER) changes.gid = request.gid;
    if (request.accessed !== undefined) changes.accessedNs = timeNs(request.accessed);
    if (request.modified !== undefined) changes.modifiedNs = timeNs(request.modified);
    const owned = changes.uid !== undefined || changes.gid !== undefined;
    if (owned || changes.modifiedNs !== undefined) {
      const attributes = await this.#present(await this.#ask(inode));
      if (owned && attributes.kind !== 'directory') {
        const mode = changes.mode ?? attributes.mode;
        if (mode !== withoutPrivileges(mode)) changes.mode = withoutPrivileges(mode);
      }
      // Named with its contents, the time holds although the primary knows another one for them.
      if (changes.modifiedNs !== undefined && attributes.kind === 'file')
        changes.contents = attributes.contents;
    }
    if (Object.keys(changes).length === 0) return;
    const attributes = await this.#backend.setAttributes(inode, changes);
    this.#cache.forget(inode);
    // Size and time in this answer are the catalog's, and for a live file not the last word.
    this.#open.get(inode)?.changed(attributes);
  }

  async truncate(inode: number, sizeBytes: number, caller: Caller): Promise<void> {
    await this.#withWriter(inode, async (file) => {
      await this.#clearPrivileges(file, caller);
      await file.truncate(sizeBytes);
    });
    this.#cache.forget(inode);
  }

  async readLink(inode: number): Promise<string> {
    const attributes = this.#cache.attributes(inode) ?? this.#cache.looked(inode) ?? (await this.#ask(inode));
    if (attributes.kind !== 'symlink') throw new ErrnoError('EINVAL', `Inode ${inode} is no symbolic link`);
    return attributes.target;
  }

  // Changes of the namespace.

  async makeNode(parent: number, name: string, mode: number, device: number, caller: Caller): Promise<void> {
    checkName(name);
    const type = nodeType(mode);
    if (type === 'file') {
      const { attributes } = await this.#changeEntry(parent, name, () =>
        this.#backend.createFile(parent, name, mode & 0o7777, caller, true),
      );
      this.#known(parent, name, attributes);
      const file = this.#opened(attributes, true);
      file.unsettled = true;
      this.#close(file, true);
      return;
    }
    const attributes = await this.#changeEntry(parent, name, () =>
      this.#backend.makeNode(parent, name, type, device, mode & 0o7777, caller),
    );
    this.#known(parent, name, attributes);
  }

  async makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<void> {
    checkName(name);
    const attributes = await this.#changeEntry(parent, name, () =>
      this.#backend.makeDirectory(parent, name, mode & 0o7777, caller),
    );
    this.#known(parent, name, attributes);
  }

  async symlink(parent: number, name: string, target: string, caller: Caller): Promise<void> {
    checkName(name);
    const attributes = await this.#changeEntry(parent, name, () =>
      this.#backend.symlink(parent, name, target, caller),
    );
    this.#known(parent, name, attributes);
  }

  async link(inode: number, parent: number, name: string): Promise<void> {
    checkName(name);
    await this.#changeEntry(parent, name, () => this.#backend.link(inode, parent, name));
    this.#cache.forget(inode);
    this.#orphans.delete(inode);
  }

  async unlink(parent: number, name: string): Promise<void> {
    checkName(name);
    const { inode, links } = await this.#changeEntry(parent, name, () => this.#backend.unlink(parent, name));
    this.#cache.forget(inode);
    if (links === 0 && this.#open.has(inode)) this.#orphans.add(inode);
  }

  async removeDirectory(parent: number, name: string): Promise<void> {
    checkName(name);
    await this.#changeEntry(parent, name, () => this.#backend.removeDirectory(parent, name));
  }

  async rename(from: NamePlace, to: NamePlace, flags: number): Promise<void> {
    checkName(from.name);
    checkName(to.name);
    const mode = flags === 0 ? 'replace' : flags === RENAME_NO_REPLACE ? 'no-replace' : 'exchange';
    if (mode === 'exchange' && flags !== RENAME_EXCHANGE) {
      throw new ErrnoError('EINVAL', `Rename flags ${flags} are not supported`);
    }
    const { replaced } = await this.#changeEntry(from.parent, from.name, () =>
      this.#changeEntry(to.parent, to.name, () => this.#backend.rename(from, to, mode)),
    );
    if (replaced === null) return;
    this.#cache.forget(replaced);
    if (this.#open.has(replaced)) this.#orphans.add(replaced);
  }

  // Files.

  async open(inode: number, flags: number, caller: Caller): Promise<Opened> {
    const writing = (flags & (constants.O_WRONLY | constants.O_RDWR)) !== 0;
    const told = this.#cache.attributes(inode);
    const attributes = this.#cache.looked(inode) ?? (await this.#ask(inode));
    if (attributes.kind === 'directory') throw new ErrnoError('EISDIR', `Inode ${inode} is a directory`);
    if (attributes.kind !== 'file') throw new ErrnoError('ENXIO', `Inode ${inode} has no contents`);
    if (told !== undefined && contentVersionCompare(told.contents, attributes.contents) !== 0) {
      // The kernel was told attributes from a listing a moment ago, and would cut what it reads at their
      // size. At this answer it looks the name up once more, and opens again.
      this.#cache.forget(inode);
      throw new ErrnoError('ESTALE', `Inode ${inode} changed since it was listed`);
    }
    const file = this.#opened(attributes, writing);
    try {
      // Bytes under way are another handle's: an open does not wait for them, a read does.
      if (!file.writes.dirty) await file.present(attributes);
      if (writing && attributes.policy === 'read-only') await this.#assertUnsealed(file);
      if (writing && (flags & constants.O_TRUNC) !== 0) {
        await this.#clearPrivileges(file, caller);
        await file.truncate(0);
        this.#cache.forget(inode);
      }
    } catch (error) {
      this.#close(file, writing);
      throw error;
    }
    return this.#handle(file, flags);
  }

  async create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Opened> {
    checkName(name);
    const exclusive = (flags & constants.O_EXCL) !== 0;
    const { attributes, created } = await this.#changeEntry(parent, name, () =>
      this.#backend.createFile(parent, name, mode & 0o7777, caller, exclusive),
    );
    if (!created) return this.open(attributes.inode, flags, caller);
    this.#known(parent, name, attributes);
    const file = this.#opened(attributes, true);
    file.unsettled = true;
    return this.#handle(file, flags);
  }

  async read(handle: number, offset: number, length: number): Promise<Uint8Array> {
    const { file, position } = this.#fileHandle(handle);
    if (length === 0) return new Uint8Array(0);
    return file.read(this.#readAhead, position, offset, length);
  }

  async write(handle: number, offset: number, bytes: Uint8Array, caller: Caller): Promise<number> {
    const opened = this.#fileHandle(handle);
    const { file } = opened;
    if (!opened.writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (bytes.length === 0) return 0;
    if (!Number.isSafeInteger(offset + bytes.length))
      throw new ErrnoError('EFBIG', 'The file would be too large');
    this.#throwFailed(opened);
    await this.#clearPrivileges(file, caller);
    this.#cache.drop(file.inode);
    if (opened.appending) await file.append(bytes);
    else await file.write(offset, bytes);
    if (opened.persisting) await this.persist(handle);
    return bytes.length;
  }

  async flush(handle: number): Promise<void> {
    const opened = this.#fileHandle(handle);
    if (!opened.writing) return;
    await opened.file.writes.drain();
    this.#throwFailedOnce(opened);
  }

  async persist(handle: number): Promise<void> {
    const opened = this.#fileHandle(handle);
    await opened.file.writes.drain();
    this.#throwFailedOnce(opened);
    await opened.file.persist();
  }

  async release(handle: number): Promise<void> {
    const opened = this.#fileHandle(handle);
    this.#handles.delete(handle);
    if (opened.writing) {
      await opened.file.writes.drain();
      // Nobody can be told any more who has not been told at close.
      const error = opened.file.writes.errorSince(opened.errorsTold);
      if (error !== undefined) this.#logLost(opened.file.inode, error);
    }
    this.#close(opened.file, opened.writing);
  }

  async allocate(handle: number, mode: number, offset: number, length: number): Promise<void> {
    const { file, writing } = this.#fileHandle(handle);
    if (!writing) throw new ErrnoError('EBADF', `Handle ${handle} is not open for writing`);
    if (mode === ALLOCATE_KEEP_SIZE) return;
    if (mode !== 0) throw new ErrnoError('EOPNOTSUPP', `Allocation mode ${mode} is not supported`);
    const { sizeBytes } = await file.state();
    if (offset + length <= sizeBytes) return;
    await file.truncate(offset + length);
    this.#cache.forget(file.inode);
  }

  // Directories.

  async openDirectory(inode: number): Promise<number> {
    const handle = ++this.#handleLast;
    this.#directories.set(handle, { inode, entries: [], complete: false });
    return handle;
  }

  async readDirectory(handle: number, offset: number): Promise<DirectoryPage> {
    const directory = this.#directories.get(handle);
    if (directory === undefined) throw new ErrnoError('EBADF', `No directory handle ${handle} is open`);
    if (offset === 0) {
      directory.entries = ['.', '..'].map((name) => ({ name, kind: 'directory' }));
      directory.complete = false;
    }
    while (!directory.complete && directory.entries.length < offset + PAGE_COUNT)
      await this.#listMore(directory);
    const page = directory.entries.slice(offset, offset + PAGE_COUNT);
    return { entries: page.map((entry, index) => ({ ...entry, next: offset + index + 1 })) };
  }

  async releaseDirectory(handle: number): Promise<void> {
    this.#directories.delete(handle);
  }

  // The volume, and extended attributes.

  async space(): Promise<Space> {
    const known = this.#space;
    if (known !== undefined && performance.now() - known.heardMs < SPACE_AGE_MAX_MS) return known.space;
    const asked = this.#backend.space().then((space) => {
      this.#space = { space, heardMs: performance.now() };
      return space;
    });
    try {
      return await withDeadline(asked, Math.min(SPACE_WAIT_MS, this.#limitMs), 'Asking for free space');
    } catch (error) {
      this.#log('debug', 'free space is not known', { error: String(error) });
      return this.#space?.space ?? { totalBytes: 0, freeBytes: 0, inodes: 0 };
    }
  }

  async xattr(inode: number, name: string): Promise<Uint8Array> {
    if (xattrIsLocal(name)) throw new ErrnoError('ENODATA', `Attribute ${name} is not kept`);
    return this.#backend.xattr(inode, name);
  }

  async xattrs(inode: number): Promise<readonly string[]> {
    return this.#backend.xattrs(inode);
  }

  async setXattr(inode: number, name: string, value: Uint8Array, flags: number): Promise<void> {
    if (xattrIsLocal(name)) throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
    if (Buffer.byteLength(name) > NAME_BYTES_MAX)
      throw new ErrnoError('ERANGE', 'The attribute name is too long');
    if (value.length > XATTR_VALUE_BYTES_MAX)
      throw new ErrnoError('E2BIG', 'The attribute value is too large');
    const mode: XattrMode = flags === XATTR_CREATE ? 'create' : flags === XATTR_REPLACE ? 'replace' : 'set';
    await this.#backend.setXattr(inode, name, value, mode);
    this.#cache.forget(inode);
  }

  async removeXattr(inode: number, name: string): Promise<void> {
    if (xattrIsLocal(name)) throw new ErrnoError('ENODATA', `Attribute ${name} is not kept`);
    await this.#backend.removeXattr(inode, name);
    this.#cache.forget(inode);
  }

  /** Everything written so far arrives, or is known to be lost. */
  async drain(): Promise<void> {
    await Promise.all([...this.#open.values()].map((file) => file.writes.drain()));
  }

  /** When the mount is gone: everything written arrives, and the catalog hears of it. */
  async stop(): Promise<void> {
    clearInterval(this.#orphanTimer);
    await this.drain();
    for (const file of this.#open.values()) {
      const error = file.writes.errorSince(0);
      if (error !== undefined)
        this.#log('error', 'writes were lost', { file: file.inode, error: String(error) });
      // From here on nobody writes, although handles may be open.
      file.writerCount = 0;
      if (file.unsettled) this.#settle(file);
    }
    while (this.#settling.size > 0) await Promise.all(this.#settling);
  }

  async #ask(inode: number): Promise<Attributes> {
    const { mark } = this.#cache;
    const attributes = await this.#backend.attributes(inode);
    this.#cache.heard(attributes, mark);
    return attributes;
  }

  async #present(attributes: Attributes): Promise<Attributes> {
    const file = this.#open.get(attributes.inode);
    return file === undefined ? attributes : file.present(attributes);
  }

  /** What was heard before the change and what is heard during it may be old afterwards. */
  async #changeEntry<Result>(parent: number, name: string, change: () => Promise<Result>): Promise<Result> {
    this.#cache.forgetEntry(parent, name);
    try {
      return await change();
    } finally {
      this.#cache.forgetEntry(parent, name);
    }
  }

  /** The kernel asks about what was just made; it is answered from here. */
  #known(parent: number, name: string, attributes: Attributes): void {
    this.#cache.heardEntry(parent, name, attributes, this.#cache.mark, true);
  }

  async #listMore(directory: DirectoryHandle): Promise<void> {
    const last = directory.entries.at(-1);
    const after = directory.entries.length <= 2 || last === undefined ? '' : last.name;
    const { mark } = this.#cache;
    const { entries, more } = await this.#backend.list(directory.inode, after, LIST_COUNT);
    for (const { name, attributes } of entries) {
      directory.entries.push({ name, kind: attributes.kind });
      this.#cache.heardEntry(directory.inode, name, attributes, mark, true);
    }
    directory.complete = !more;
  }

  #opened(attributes: Attributes, writing: boolean): OpenFile {
    let file = this.#open.get(attributes.inode);
    if (file === undefined) {
      const backend = this.#backend.openFile(attributes.inode, attributes.replicas);
      file = new OpenFile(attributes, backend, this.#budget, this.#limitMs);
      this.#open.set(attributes.inode, file);
    }
    file.handleCount++;
    if (writing) file.writerCount++;
    return file;
  }

  #handle(file: OpenFile, flags: number): Opened {
    const handle = ++this.#handleLast;
    const appending = (flags & constants.O_APPEND) !== 0;
    this.#handles.set(handle, {
      file,
      writing: (flags & (constants.O_WRONLY | constants.O_RDWR)) !== 0,
      appending,
      persisting: (flags & (constants.O_SYNC | constants.O_DSYNC)) !== 0,
      position: new ReadPosition(),
      errorsTold: file.writes.errorCount,
    });
    const { epoch, seq } = file.attributes.contents;
    return {
      handle,
      // An append lands where the cluster's file ends, which the kernel's cache cannot know. Names of one
      // file may be several inodes to the kernel, each with pages of its own.
      directIo: appending || file.attributes.links > 1,
      // With bytes under way there is no version yet that a later open could find unchanged.
      version: file.writes.dirty ? `${file.inode}:handle-${handle}` : `${file.inode}:${epoch}:${seq}`,
    };
  }

  #fileHandle(handle: number): FileHandle {
    const opened = this.#handles.get(handle);
    if (opened === undefined) throw new ErrnoError('EBADF', `No handle ${handle} is open`);
    return opened;
  }

  #throwFailed(opened: FileHandle): void {
    const error = opened.file.writes.errorSince(opened.errorsTold);
    if (error !== undefined) throw error;
  }

  #throwFailedOnce(opened: FileHandle): void {
    const error = opened.file.writes.errorSince(opened.errorsTold);
    opened.errorsTold = opened.file.writes.errorCount;
    if (error === undefined) return;
    this.#logLost(opened.file.inode, error);
    throw error;
  }

  #logLost(inode: number, error: unknown): void {
    this.#log('error', 'writes failed', { file: inode, error: String(error) });
  }

  async #clearPrivileges(file: OpenFile, caller: Caller): Promise<void> {
    const { mode } = file.attributes;
    if (caller.uid === 0 || mode === withoutPrivileges(mode)) return;
    await this.setAttributes(file.inode, { mode: withoutPrivileges(mode) });
  }

  async #withWriter<Result>(inode: number, use: (file: OpenFile) => Promise<Result>): Promise<Result> {
    const attributes =
      this.#open.get(inode)?.attributes ?? this.#cache.looked(inode) ?? (await this.#ask(inode));
    const file = this.#opened(attributes, true);
    try {
      return await use(file);
    } finally {
      this.#close(file, true);
    }
  }

  #close(file: OpenFile, writing: boolean): void {
    file.handleCount--;
    if (writing) file.writerCount--;
    if (file.writerCount === 0 && file.unsettled && !this.#orphans.has(file.inode)) this.#settle(file);
    if (file.handleCount > 0) return;
    this.#open.delete(file.inode);
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
        const gone = error instanceof ServiceError && error.code === 'not-found';
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

  #keepOrphans(): void {
    for (const inode of this.#orphans) {
      this.#backend.keepOrphan(inode).catch((error: unknown) => {
        this.#log('warn', 'an open file without a name may be collected', {
          file: inode,
          error: String(error),
        });
      });
    }
  }
}

function checkName(name: string): void {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) {
    throw new ErrnoError('ENAMETOOLONG', 'A name is longer than 255 bytes');
  }
  // Two different names that are not UTF-8 arrive as the same text: neither may be used.
  if (name.includes('\uFFFD')) throw new ErrnoError('EILSEQ', 'A name is not UTF-8');
}

function withoutPrivileges(mode: number): number {
  const cleared = mode & ~SET_USER_ID;
  return (cleared & GROUP_EXECUTE) !== 0 ? cleared & ~SET_GROUP_ID : cleared;
}

function timeNs(change: TimeChange): string {
  return String(change.kind === 'now' ? nowNs() : change.ns);
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
