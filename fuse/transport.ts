import type { Attributes, NodeKind, Space } from './backend.ts';

/**
 * The calls of the kernel, by inode and not by path, as the FUSE protocol itself has them. `binding.ts`
 * brings them from a path-based library; a transport that speaks the protocol on /dev/fuse fits here as is.
 */

/** Who made the call. The kernel has applied the umask already. */
export interface Caller {
  readonly uid: number;
  readonly gid: number;
}

export interface Opened {
  readonly handle: number;
  /** The kernel's page cache is not to be used for this handle. */
  readonly directIo: boolean;
  /** Names these contents: pages cached from an earlier open of the same version may be kept. */
  readonly version: string;
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
    /** Where a read that goes on after this entry starts. */
    readonly next: number;
  }[];
}

/**
 * What a file system answers. All promises settle within the file system's time limit; they reject with
 * `ErrnoError` or `ServiceError`. Offsets and sizes are safe integers, modes have the file type where the
 * kernel gives it.
 */
export interface FileSystemCalls {
  readonly root: number;
  lookup(parent: number, name: string): Promise<Attributes>;
  attributes(inode: number): Promise<Attributes>;
  /** The inode that an open handle is of. */
  inodeOf(handle: number): number;
  setAttributes(inode: number, request: AttributeRequest): Promise<void>;
  truncate(inode: number, sizeBytes: number, caller: Caller): Promise<void>;
  readLink(inode: number): Promise<string>;
  makeNode(parent: number, name: string, mode: number, device: number, caller: Caller): Promise<void>;
  makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<void>;
  symlink(parent: number, name: string, target: string, caller: Caller): Promise<void>;
  link(inode: number, parent: number, name: string): Promise<void>;
  unlink(parent: number, name: string): Promise<void>;
  removeDirectory(parent: number, name: string): Promise<void>;
  rename(from: NamePlace, to: NamePlace, flags: number): Promise<void>;
  open(inode: number, flags: number, caller: Caller): Promise<Opened>;
  create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Opened>;
  read(handle: number, offset: number, length: number): Promise<Uint8Array>;
  /** Takes `bytes` over; @returns how many there were */
  write(handle: number, offset: number, bytes: Uint8Array, caller: Caller): Promise<number>;
  /** A descriptor was closed: errors of writes that nobody has heard of yet are told now. */
  flush(handle: number): Promise<void>;
  /** What was written survives a loss of power. */
  persist(handle: number): Promise<void>;
  release(handle: number): Promise<void>;
  allocate(handle: number, mode: number, offset: number, length: number): Promise<void>;
  openDirectory(inode: number): Promise<number>;
  readDirectory(handle: number, offset: number): Promise<DirectoryPage>;
  releaseDirectory(handle: number): Promise<void>;
  space(): Promise<Space>;
  xattr(inode: number, name: string): Promise<Uint8Array>;
  xattrs(inode: number): Promise<readonly string[]>;
  setXattr(inode: number, name: string, value: Uint8Array, flags: number): Promise<void>;
  removeXattr(inode: number, name: string): Promise<void>;
}

export interface NamePlace {
  readonly parent: number;
  readonly name: string;
}

export interface TransportOptions {
  /** What `mount` and `df` show as the source. */
  readonly source: string;
  /** An answer that takes longer is replaced by ETIMEDOUT; writes have limits of their own. */
  readonly limitMs: number;
  readonly xattrs: boolean;
  readonly log: Log;
}

export interface MountedTransport {
  /** Resolves when the mount is gone, by whomever. */
  readonly ended: Promise<void>;
  unmount(): Promise<void>;
}

/** Connects a file system with the kernel at a directory. */
export type Transport = (
  directory: string,
  calls: FileSystemCalls,
  options: TransportOptions,
) => Promise<MountedTransport>;

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';
export type Log = (level: LogLevel, message: string, facts?: Readonly<Record<string, unknown>>) => void;

/** Extended attributes that never reach the cluster: the kernel asks for them at every turn. */
export function xattrIsLocal(name: string): boolean {
  return name.startsWith('security.') || name.startsWith('system.');
}
