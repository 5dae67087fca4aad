import type { World } from '../base/world.ts';
import type { InodeFlag } from '../wire/inode-flags.ts';
import type { Answered, KernelCache } from './answered.ts';
import type { Attributes, NodeKind, Space } from './backend.ts';
import type { Place } from './place.ts';

/**
 * The calls of the kernel, by inode and not by path, as the FUSE protocol itself has them. `binding.ts`
 * brings them from a path-based library; a transport that speaks the protocol on /dev/fuse fits here as is.
 */

/** Who made the call. */
export interface Caller {
  readonly uid: number;
  readonly gid: number;
  /** Where it is absent the kernel has applied it already; to apply it twice does no harm. */
  readonly umask?: number;
  /** A change of contents takes set-user-id and set-group-id away; where it is not said, from all but root. */
  readonly killsPrivileges?: boolean;
  /** Its number; 0, or absent, where that is not known. */
  readonly thread?: number;
}

export interface Opened {
  readonly handle: number;
  /** The kernel's page cache is not to be used for this handle. */
  readonly directIo: boolean;
  /** The file has several names: to a kernel that knows an inode per name, the page cache is of no use either. */
  readonly linked: boolean;
  /** Names these contents: pages cached from an earlier open of the same version may be kept. Null while bytes are on their way to the cluster. */
  readonly version: string | null;
}

/** A file that was made, or found, and opened. */
export interface Created extends Opened {
  readonly attributes: Answered;
}

/** A time to be set: a given one in nanoseconds, or the present. */
export type TimeChange = { readonly kind: 'time'; readonly ns: bigint } | { readonly kind: 'now' };

export interface AttributeRequest {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly accessed?: TimeChange;
  readonly modified?: TimeChange;
}

export interface DirectoryPage {
  readonly entries: readonly {
    readonly name: string;
    readonly kind: NodeKind;
    /** Null for the directory's own parent, which is not known. */
    readonly inode: number | null;
    /** A read that goes on after this entry starts at the next position, which is one more. */
    readonly position: number;
  }[];
}

/** A lock of `fcntl` or `flock`, or what is asked of one. */
export interface LockRequest {
  readonly kind: 'posix' | 'flock';
  readonly type: 'shared' | 'exclusive' | 'unlock';
  readonly start: bigint;
  /** Inclusive; `LOCK_END` is to the end of the file, wherever that is. */
  readonly end: bigint;
  /** Who holds it: a process of this mount, or an open file. */
  readonly owner: bigint;
  readonly pid: number;
}

/**
 * What a file system answers. All promises settle within the file system's time limit; they reject with
 * `ErrnoError` or `ServiceError`. Offsets and sizes are safe integers, modes have the file type where the
 * kernel gives it.
 */
export interface FileSystemCalls {
  readonly root: number;
  /** @param thread for which the kernel asks; 0, or absent, where that is not known */
  lookup(parent: number, name: string, thread?: number): Promise<Answered>;
  /** As `lookup`, for a transport that opens by names: what has the name now, or had it when it was looked up a moment ago. */
  lookupToOpen(parent: number, name: string): Promise<Answered>;
  attributes(inode: number): Promise<Answered>;
  /** As `attributes`, and the cluster is asked where the time of creation is not known here. */
  attributesWithCreation(inode: number): Promise<Answered>;
  /** The inode that an open handle is of. */
  inodeOf(handle: number): number;
  setAttributes(inode: number, request: AttributeRequest): Promise<Answered>;
  /** The flags of a file or directory are these from now on, for what was answered before is executed. @throws `EPERM` unless it is the caller's */
  setFlags(inode: number, flags: readonly InodeFlag[], caller: Caller): Promise<void>;
  /** A change of nothing, as by `chown` to whom it belongs already: a time changes, and set-id bits go where it is the caller's to take them. */
  touchStatus(inode: number, caller: Caller): Promise<Answered>;
  /** Whether a lookup of `.` and `..` finds an inode, and its directory, by the number alone. */
  readonly findsNumbers: boolean;
  /** @param isNamed the caller named it, and has not opened it */
  truncate(inode: number, sizeBytes: number, caller: Caller, isNamed?: boolean): Promise<Answered>;
  readLink(inode: number): Promise<string>;
  makeNode(parent: number, name: string, mode: number, device: number, caller: Caller): Promise<Answered>;
  makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<Answered>;
  symlink(parent: number, name: string, target: string, caller: Caller): Promise<Answered>;
  /** @param thread as of `lookup` */
  link(inode: number, parent: number, name: string, thread?: number): Promise<Answered>;
  unlink(parent: number, name: string, uid?: number): Promise<void>;
  removeDirectory(parent: number, name: string): Promise<void>;
  /** @param uid of the program; with `gid`, the owner of a whiteout */
  rename(from: Place, to: Place, flags: number, uid?: number, gid?: number): Promise<void>;
  open(inode: number, flags: number, caller: Caller): Promise<Opened>;
  create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Created>;
  /** `O_TMPFILE`: a file without a name, which `link` may give one for as long as it is open. */
  createUnnamed(directory: number, mode: number, flags: number, caller: Caller): Promise<Created>;
  /** @returns bytes that belong to the file system; they stay as they are for as long as it is not told that they were `taken` */
  read(handle: number, offset: number, length: number): Promise<Uint8Array>;
  /** The kernel was told to keep the pages that it has of the file: what is read through the handle nobody may hear of. */
  keptPages(handle: number): void;
  /** The kernel has a copy of what a read returned, which is not used here any more. */
  taken(bytes: Uint8Array): void;
  /**
   * Takes `bytes` over.
   *
   * @param appends whether they go to the end, wherever that is; as the file was opened, where the transport is not told of each write
   * @returns how many there were
   */
  write(
    handle: number,
    offset: number,
    bytes: Uint8Array,
    caller: Caller,
    appends?: boolean,
  ): Promise<number>;
  /** A descriptor was closed: errors of writes that nobody has heard of yet are told now. */
  flush(handle: number, owner?: bigint): Promise<void>;
  /** What was written survives a loss of power. */
  persist(handle: number): Promise<void>;
  /**
   * What was made in the directory has its name at the cluster; of the root, all that was written here has arrived.
   *
   * @param handle by which it is open
   * @throws what kept some of it from arriving, once for each handle
   */
  persistDirectory(inode: number, handle?: number): Promise<void>;
  release(handle: number): Promise<void>;
  /** @param mode bits of FALLOC_FL_* */
  allocate(handle: number, mode: number, offset: number, length: number, caller: Caller): Promise<void>;
  /** @returns where data, or a hole, next begins at or after `offset`; ENXIO beyond the end */
  seek(handle: number, offset: number, what: 'data' | 'hole'): Promise<number>;
  /** @returns how many bytes were copied */
  copyRange(
    from: number,
    fromOffset: number,
    to: number,
    toOffset: number,
    length: number,
    caller: Caller,
  ): Promise<number>;
  /** @returns a lock that is in the way of `request`, or null */
  lockHolder(handle: number, request: LockRequest): Promise<LockRequest | null>;
  /** Rejects with EAGAIN, EDEADLK or ENOLCK, and with EINTR once `signal` is aborted and nothing was locked. */
  lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void>;
  /** @param flags of open(2) */
  openDirectory(inode: number, flags?: number): Promise<number>;
  /** @returns at most `countMax` entries at the position `offset` and after it */
  readDirectory(handle: number, offset: number, countMax: number): Promise<DirectoryPage>;
  /** What a listing told of a name, where it may still be believed. */
  listed(parent: number, name: string): Answered | undefined;
  releaseDirectory(handle: number): Promise<void>;
  space(): Promise<Space>;
  xattr(inode: number, name: string): Promise<Uint8Array>;
  /** @param caller who may not see all of them */
  xattrs(inode: number, caller: Caller): Promise<readonly string[]>;
  /** @param clearsSetgid with an access control list: the set-group-id bit goes, for the caller is not of the group */
  setXattr(
    inode: number,
    name: string,
    value: Uint8Array,
    flags: number,
    clearsSetgid?: boolean,
  ): Promise<void>;
  removeXattr(inode: number, name: string): Promise<void>;
}

export interface TransportOptions {
  readonly world: World;
  readonly cache: KernelCache;
  /** What `mount` and `df` show as the source. */
  readonly source: string;
  /** Words for the kernel and for fusermount3: `ro`, `noexec`, `allow_other` … */
  readonly kernelOptions: readonly string[];
  /** What the kernel is shown instead of stored attributes; applied to all that goes to it. */
  readonly present: (attributes: Attributes) => Attributes;
  /** An answer that takes longer is replaced by ETIMEDOUT; writes have limits of their own. */
  readonly limitMs: number;
  readonly xattrs: boolean;
  /** The kernel asks for access control lists, and checks them. */
  readonly acls: boolean;
  /** The kernel gets times of creation, where it asks for them. */
  readonly creationTimes: boolean;
  readonly log: Log;
}

export interface MountedTransport {
  /** Resolves when the mount is gone, by whomever. */
  readonly ended: Promise<void>;
  /** The kernel asks for a file's attributes before a program reads it, if it does not believe those that it has. */
  readonly asksBeforeReads: boolean;
  unmount(): Promise<void>;
  /**
   * Resolves when the kernel has dropped the attributes and pages that it kept of an inode.
   *
   * @param pages false: attributes only, which waits for nobody who reads or writes
   */
  invalidateInode(inode: number, pages?: boolean): Promise<void>;
  /** Resolves when the kernel caches no names of these directories under a grant (`KernelCache.isGranted`). */
  expireNames(directories: readonly number[]): Promise<void>;
  /** Resolves when the kernel believes nothing of an inode's attributes by `KernelCache.validMs`; at once where it does not. */
  dropAttributes(inode: number): Promise<void>;
  /**
   * Puts bytes among the pages that the kernel keeps of a file, over whatever is there. Waits for pages that are being read.
   * Not there where the kernel cannot be given any.
   *
   * @param bytes whole pages within the size that the kernel knows; stay as they are until it resolves
   * @param isCurrent asked just before; they are not given where it answers false
   * @returns whether the kernel has them
   */
  givePages?(inode: number, offset: number, bytes: Uint8Array, isCurrent: () => boolean): Promise<boolean>;
}

/** What whoever knows the open files has to know of the kernel, and to tell it. */
export type FileKernel = Pick<
  MountedTransport,
  'asksBeforeReads' | 'invalidateInode' | 'dropAttributes' | 'givePages'
>;

/** Connects a file system with the kernel at a directory. */
export type Transport = (
  directory: string,
  calls: FileSystemCalls,
  options: TransportOptions,
) => Promise<MountedTransport>;

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';
export type Log = (level: LogLevel, message: string, facts?: Readonly<Record<string, unknown>>) => void;
