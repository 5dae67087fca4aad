import type { World } from '../base/world.ts';
import type { InodeFlag } from '../wire/inode-flags.ts';
import type { Answered, KernelCache } from './answered.ts';
import type { Attributes, NodeKind, Space } from './backend.ts';
import type { DeadlineOf } from './deadline.ts';
import type { Place } from './place.ts';

/** The calls of the kernel, by inode, as in the FUSE protocol. `binding.ts` maps them to a path-based library. */

export interface Caller {
  readonly uid: number;
  readonly gid: number;
  /** If absent, the kernel has applied it; applying it twice is harmless. */
  readonly umask?: number;
  /** Whether a change of contents clears set-user-id and set-group-id; default: for all but root. */
  readonly killsPrivileges?: boolean;
  /** 0 or absent if unknown. */
  readonly thread?: number;
}

export interface Opened {
  readonly handle: number;
  readonly directIo: boolean;
  /** To a kernel with an inode per name, its page cache is useless then. */
  readonly linked: boolean;
  /** Identifies the contents: pages of an earlier open with the same version stay. Null while bytes are pending. */
  readonly version: string | null;
}

export interface Created extends Opened {
  readonly attributes: Answered;
}

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
    /** Null for the directory's parent, which is unknown here. */
    readonly inode: number | null;
    /** A read that continues after this entry starts at the next position, which is one more. */
    readonly position: number;
  }[];
}

export interface LockRequest {
  readonly kind: 'posix' | 'flock';
  readonly type: 'shared' | 'exclusive' | 'unlock';
  readonly start: bigint;
  /** Inclusive; `LOCK_END`: to the end of the file, even if it grows. */
  readonly end: bigint;
  readonly owner: bigint;
  readonly pid: number;
}

/**
 * All promises settle within the time limit; they reject with `ErrnoError` or `ServiceError`. Offsets and sizes are
 * safe integers; modes include the file type if the kernel passes it.
 */
export interface FileSystemCalls {
  readonly root: number;
  /** @param thread of the calling program; 0 or absent if unknown */
  lookup(parent: number, name: string, thread?: number): Promise<Answered>;
  /** As `lookup`, for a transport that opens by name: the inode of the name now, or as of a lookup a moment ago. */
  lookupToOpen(parent: number, name: string): Promise<Answered>;
  attributes(inode: number): Promise<Answered>;
  /** As `attributes`, with the creation time: asks the cluster if it is not known here. */
  attributesWithCreation(inode: number): Promise<Answered>;
  inodeOf(handle: number): number;
  setAttributes(inode: number, request: AttributeRequest): Promise<Answered>;
  /** Replaces the flags, after pending operations of the inode. @throws `EPERM` unless the caller owns it */
  setFlags(inode: number, flags: readonly InodeFlag[], caller: Caller): Promise<void>;
  /** A change without effect, as `chown` to the same owner: sets ctime, and clears set-id bits if the caller may. */
  touchStatus(inode: number, caller: Caller): Promise<Answered>;
  /** Whether lookups of `.` and `..` find an inode, and its directory, by number. */
  readonly findsNumbers: boolean;
  /** @param isByPath the program passed a path, not a descriptor */
  truncate(inode: number, sizeBytes: number, caller: Caller, isByPath?: boolean): Promise<Answered>;
  readLink(inode: number): Promise<string>;
  makeNode(parent: number, name: string, mode: number, device: number, caller: Caller): Promise<Answered>;
  makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<Answered>;
  symlink(parent: number, name: string, target: string, caller: Caller): Promise<Answered>;
  link(inode: number, parent: number, name: string, thread?: number): Promise<Answered>;
  unlink(parent: number, name: string, uid?: number): Promise<void>;
  removeDirectory(parent: number, name: string): Promise<void>;
  /** @param uid of the program; with `gid`, the owner of a whiteout */
  rename(from: Place, to: Place, flags: number, uid?: number, gid?: number): Promise<void>;
  open(inode: number, flags: number, caller: Caller): Promise<Opened>;
  create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Created>;
  /** `O_TMPFILE`: an unlinked file, which `link` can give a name while it is open. */
  createUnnamed(directory: number, mode: number, flags: number, caller: Caller): Promise<Created>;
  /** @returns bytes owned by the file system, which does not change them until `taken` */
  read(handle: number, offset: number, length: number): Promise<Uint8Array>;
  /** Called if the kernel keeps the pages of an earlier open: it may read them without a request. */
  keptPages(handle: number): void;
  /** The kernel has copied the bytes of a read, and the transport does not use them any more. */
  taken(handle: number, bytes: Uint8Array): void;
  /** Takes ownership of `bytes`. @param appends to the current end; default: by the flags of the open */
  write(
    handle: number,
    offset: number,
    bytes: Uint8Array,
    caller: Caller,
    appends?: boolean,
  ): Promise<number>;
  /** Called at each close of a descriptor. @throws errors of writes that were not reported yet */
  flush(handle: number, owner?: bigint): Promise<void>;
  /** What was written survives a loss of power. */
  persist(handle: number): Promise<void>;
  /** Stores changes in the directory; of the root, all pending ones. @throws each failure once for each handle */
  persistDirectory(inode: number, handle?: number): Promise<void>;
  release(handle: number): Promise<void>;
  allocate(handle: number, mode: number, offset: number, length: number, caller: Caller): Promise<void>;
  /** @returns where data, or a hole, next begins at or after `offset`. @throws ENXIO beyond the end */
  seek(handle: number, offset: number, what: 'data' | 'hole'): Promise<number>;
  copyRange(
    from: number,
    fromOffset: number,
    to: number,
    toOffset: number,
    length: number,
    caller: Caller,
  ): Promise<number>;
  /** @returns a lock that conflicts with `request`, or null */
  lockHolder(handle: number, request: LockRequest): Promise<LockRequest | null>;
  /** @throws EAGAIN, EDEADLK or ENOLCK; EINTR after an abort of `signal`, if nothing was locked */
  lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void>;
  openDirectory(inode: number, flags?: number): Promise<number>;
  readDirectory(handle: number, offset: number, countMax: number): Promise<DirectoryPage>;
  /** What a listing returned for a name, if still valid. */
  listed(parent: number, name: string): Answered | undefined;
  releaseDirectory(handle: number): Promise<void>;
  /** Of the volume that has the inode. */
  space(inode: number): Promise<Space>;
  xattr(inode: number, name: string): Promise<Uint8Array>;
  /** @param caller only root sees all of them */
  xattrs(inode: number, caller: Caller): Promise<readonly string[]>;
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
  readonly source: string;
  /** Options of the kernel and of fusermount3: `ro`, `noexec`, `allow_other` … */
  readonly kernelOptions: readonly string[];
  readonly present: (attributes: Attributes) => Attributes;
  /** Later answers are replaced by ETIMEDOUT; writes have limits of their own. */
  readonly limitMs: number;
  readonly deadlineOf?: DeadlineOf;
  readonly xattrs: boolean;
  /** The kernel requests access control lists, and checks them. */
  readonly acls: boolean;
  readonly creationTimes: boolean;
  /** The minor device number of the mount; null: the kernel chooses one. */
  readonly deviceNumber: number | null;
  readonly log: Log;
}

export interface MountedTransport {
  readonly ended: Promise<void>;
  /** The kernel requests a file's attributes before a read, if its cached ones are not valid. */
  readonly checksAttributesBeforeReads: boolean;
  unmount(): Promise<void>;
  /** @param pages false: attributes only, which waits for no read or write */
  invalidateInode(inode: number, pages?: boolean): Promise<void>;
  /** Resolves when the kernel caches no names of these directories under a grant (`KernelCache.isGranted`). */
  expireNames(directories: readonly number[]): Promise<void>;
  /** Resolves when the kernel has dropped attributes cached by `KernelCache.validMs`; at once if it caches none. */
  dropAttributes(inode: number): Promise<void>;
  /**
   * Replaces cached pages of a file, after pages that are being read. Absent if the kernel cannot.
   * @param bytes whole pages within the size that the kernel knows; must not change until it resolves
   * @param isCurrent called just before; if false, the pages are not stored
   * @returns whether the kernel has them
   */
  storePages?(inode: number, offset: number, bytes: Uint8Array, isCurrent: () => boolean): Promise<boolean>;
}

export type FileKernel = Pick<
  MountedTransport,
  'checksAttributesBeforeReads' | 'invalidateInode' | 'dropAttributes' | 'storePages'
>;

export type Transport = (
  directory: string,
  calls: FileSystemCalls,
  options: TransportOptions,
) => Promise<MountedTransport>;

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';
export type Log = (level: LogLevel, message: string, facts?: Readonly<Record<string, unknown>>) => void;
