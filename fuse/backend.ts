import type { CatalogNumber } from '../base/ids.ts';
import type { DelegationEvents, Fence } from '../client/cluster/delegations.ts';
import type {
  Attributes as CatalogAttributes,
  CommandOf,
  ContentVersion,
  Junction,
  NodeKind,
} from '../wire/catalog-api.ts';
import type { InodeFlag } from '../wire/inode-flags.ts';
import type { LockHeld } from '../wire/lock-api.ts';
import type { FileWithContents } from '../wire/new-files.ts';
import type { ReservedNumbers } from '../wire/reserved-numbers.ts';

/** What a mount needs of a cluster. Implemented by `cluster-backend.ts`; tests have one in memory. */

export type { ContentVersion, Junction, NodeKind };

export type Attributes = Omit<
  CatalogAttributes,
  'volume' | 'view' | 'objectBytes' | 'capability' | 'snapshot' | 'source'
>;

export interface FileState {
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly contents: ContentVersion;
  /** Bytes of holes within the size; absent if there are none, and in the answer of a change. */
  readonly holeBytes?: number;
  /** After a change: the version before it, if known. */
  readonly before?: ContentVersion;
  readonly sealed?: boolean;
}

export type BackendLock = LockHeld;

export interface BackendLocks {
  /** @throws ServiceError `locked` unless it is free or `waits`; `deadlock`; `lock-limit`; the reason of `signal` */
  lock(lock: BackendLock, waits: boolean, signal: AbortSignal): Promise<void>;
  unlock(range: Omit<BackendLock, 'type'>): Promise<void>;
  /** @returns a conflicting lock, and whether it is one of this mount; null if there is none */
  findConflict(lock: BackendLock): Promise<{ readonly lock: BackendLock; readonly own: boolean } | null>;
  /** The owner lost a lock and has not released it since: other clients may have it. */
  isLost(kind: BackendLock['kind'], owner: string): boolean;
  close(): Promise<void>;
}

/** Bytes of a file as of one time; pieces that were changed before they were read may be newer. */
export interface BackendRange {
  /** The bytes are as of this time or later (monotonic, in milliseconds). */
  readonly sinceMs: number;
  /** Until when pieces can be read. */
  readonly untilMs: number;
  /** @returns fewer than `length` bytes only at the end of the file */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A write makes the file live until it is settled (decision 0005). Each change resolves once a majority has it. */
export interface BackendFile {
  read(offset: number, length: number): Promise<Uint8Array>;
  /** Bytes to read in pieces soon; null if that is no cheaper than a request for each. */
  range(offset: number, length: number): Promise<BackendRange | null>;
  /**
   * `parts` are consecutive, and must not change until it settles.
   * @throws ServiceError `precondition-failed` unless the contents have the version `expect`, if given
   */
  write(offset: number, parts: readonly Uint8Array[], expect?: ContentVersion): Promise<FileState>;
  /** Writes at several places, atomically for readers; of overlapping parts the later one wins. */
  writeParts(parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[]): Promise<FileState>;
  /** Writes all of `bytes` at the current end of the file, in one piece. */
  append(bytes: Uint8Array): Promise<FileState>;
  truncate(sizeBytes: number): Promise<FileState>;
  /** Makes bytes `from` to before `to` a hole, and extends the file to `to` if it `grows`. */
  punch(from: number, to: number, grows: boolean): Promise<FileState>;
  /** @returns where data, or a hole, begins, at or after `offset`; null if there is none */
  seek(offset: number, what: 'data' | 'hole'): Promise<number | null>;
  /**
   * Copies at the servers; ranges of the same file must not overlap.
   * @returns how many bytes were copied; after fewer than `length`, but not 0, the caller continues
   */
  copyFrom(
    source: number,
    fromOffset: number,
    toOffset: number,
    length: number,
  ): Promise<{ readonly copiedBytes: number; readonly state: FileState }>;
  /** Whether bytes up to here would stay in memory: the file is uncommitted. */
  staysUncommitted(endBytes: number): boolean;
  /**
   * Resolves when the cluster has the file, with its name: an uncommitted file is sent, others are there already.
   * @param isReported whether a failure is returned to a program that created the file, or has it open for writing
   * @returns the state at the cluster of a file that was uncommitted; else nothing
   */
  ensureCommitted(isReported?: boolean): Promise<FileState | undefined>;
  /** Resolves when what was acknowledged before survives a loss of power. */
  flush(): Promise<FileState>;
  /** The contents change no more, and every reachable server of the file has them. */
  seal(): Promise<void>;
  /** Has the file's primary report size and modification time to the catalog. */
  settle(): Promise<void>;
  /** @param lost called with locks that could not be kept */
  openLocks(lost: (locks: readonly BackendLock[]) => void): BackendLocks;
  state(): Promise<FileState>;
}

/** The owner of a new inode; in a directory with the set-group-id bit, the directory's group replaces `gid`. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
  /** Bits removed from the mode, unless the directory has a default access control list. */
  readonly umask?: number;
}

/** A modification time holds until a change of the contents that is newer than it. */
export type AttributeChanges = Omit<CommandOf<'set-attributes'>, 'kind' | 'inode' | 'contents'>;

export type RecordedAccess = CommandOf<'note-accesses'>['accesses'][number];

export interface Space {
  readonly totalBytes: number;
  readonly freeBytes: number;
  readonly inodes: number;
  /** The free space is the rest of a quota; the disks have more. */
  readonly isQuota?: true;
  /** Absent without a limit. */
  readonly freeInodes?: number;
}

export type RenameMode = 'replace' | 'no-replace' | 'exchange';
export type XattrMode = 'set' | 'create' | 'replace';

export interface ListedPage {
  readonly entries: readonly { readonly name: string; readonly attributes: Attributes }[];
  readonly more: boolean;
}

/**
 * One volume of a cluster. Fails with `ServiceError`s. The backend retries within its own time limit; callers do not.
 * `lookup` and `attributes` include what a live file's primary reports. Answers of changes come from the catalog alone,
 * with a live file's size, version and times from before it was written.
 */
export interface FileSystemBackend {
  start(): Promise<number>;
  stop(): Promise<void>;
  lookup(parent: number, name: string): Promise<Attributes>;
  /** Whether `byNumber` finds inodes: false if the mount shows a part of a volume, or a snapshot. */
  readonly findsNumbers: boolean;
  /** For file handles of the kernel. @throws ServiceError `not-found`, also for inodes of other volumes */
  byNumber(inode: number, which: 'self' | 'parent'): Promise<Attributes>;
  /** Whether the backend caches answers until the cluster recalls them. */
  readonly caches: boolean;
  /** Whether that cache has the name; `granted` returns undefined if an operation on it is pending. */
  isCached(parent: number, name: string): boolean;
  /** @returns the answer of `lookup` from that cache; undefined if it needs the cluster or a pending operation */
  granted(parent: number, name: string): Attributes | undefined;
  grantedAttributes(inode: number): Attributes | undefined;
  /**
   * How long the kernel may cache attributes of a directory that only this mount changes, in milliseconds; 0 for
   * others. The kernel drops them at each change of a name, and the mount drops them at the outcome of a pending one.
   */
  delegatedAttributesMs(attributes: Attributes): number;
  /** How long the name certainly refers to this inode unless it is recalled, in milliseconds; 0 if unknown. */
  nameGrantedMs(parent: number, name: string, inode: number): number;
  /** Whether no other client changes names of the directory before it is recalled from this mount. */
  isGranted(directory: number): boolean;
  /**
   * The file's number at the cluster, once that has it: another one if its directory became a volume before the file
   * was sent.
   */
  numberOf(inode: number): Promise<number>;
  /** The number by which programs of this mount know such a file; else the same. */
  formerNumberOf(inode: number): number;
  attributes(inode: number): Promise<Attributes>;
  /** Entries with names after `after`, in bytewise order. */
  list(inode: number, after: string, countMax: number): Promise<ListedPage>;
  /** Creates a file, or finds the one that has the name, unless `exclusive`. */
  createFile(
    parent: number,
    name: string,
    mode: number,
    owner: Owner,
    exclusive: boolean,
  ): Promise<{
    readonly attributes: Attributes;
    readonly created: boolean;
    readonly uncommitted?: boolean;
  }>;
  /** Whether a request has reached its time limit, and none was answered since: only necessary ones should be sent. */
  isCatalogUnavailable(): boolean;
  /**
   * Makes changes of names and attributes survive a loss of power of all servers: those of all clients, or of this
   * mount since the last call (then returns at once if there are none).
   */
  persistNames(scope: 'cluster' | 'mount'): Promise<void>;
  /** Whether creates or unlinks in the directory are pending: its attributes are about to change. */
  isChanging(directory: number): boolean;
  makeDirectory(parent: number, name: string, mode: number, owner: Owner): Promise<Attributes>;
  makeNode(
    parent: number,
    name: string,
    type: 'fifo' | 'socket' | 'character' | 'block',
    device: number,
    mode: number,
    owner: Owner,
  ): Promise<Attributes>;
  symlink(parent: number, name: string, target: string, owner: Owner): Promise<Attributes>;
  link(inode: number, parent: number, name: string): Promise<Attributes>;
  /** Creates an unlinked file; it is removed some time after the last `keepOrphan`, unless it gets a name. */
  createUnnamed(mode: number, owner: Owner): Promise<Attributes>;
  /** Links a file of `createUnnamed`. @throws ServiceError `exists` */
  nameFile(inode: number, parent: number, name: string): Promise<Attributes>;
  /**
   * @param isOpen whether a file is open here: the catalog must then learn at once that it is unlinked
   * @returns the inode and its remaining links; `atNs`: the directory's new times, if known
   */
  unlink(
    parent: number,
    name: string,
    uid?: number,
    isOpen?: (inode: number) => boolean,
  ): Promise<{
    readonly inode: number;
    readonly links: number;
    readonly atNs?: string;
    /** The cluster has not executed it yet; `atNs` is an estimate. */
    readonly isPending?: boolean;
  }>;
  /** @param inode that last had the name, as far as known */
  removeDirectory(parent: number, name: string, inode?: number): Promise<{ readonly atNs?: string }>;
  rename(
    from: { readonly parent: number; readonly name: string },
    to: { readonly parent: number; readonly name: string },
    mode: RenameMode,
    uid?: number,
  ): Promise<{ readonly replaced: number | null; readonly atNs?: string }>;
  /** As `rename`; `from` becomes a character device 0/0 of the owner. */
  renameWhiteout(
    from: { readonly parent: number; readonly name: string },
    to: { readonly parent: number; readonly name: string },
    mode: Exclude<RenameMode, 'exchange'>,
    owner: Owner,
  ): Promise<{ readonly replaced: number | null; readonly atNs?: string }>;
  /** A new owner clears set-user-id, and the set-group-id of group-executables; not of directories, nor with `mode`. */
  setAttributes(inode: number, changes: AttributeChanges): Promise<Attributes>;
  setFlags(inode: number, flags: readonly InodeFlag[]): Promise<Attributes>;
  /** Records reads: moves access times forward that no client has set since. Skips inodes that do not exist. */
  recordAccesses(accesses: readonly RecordedAccess[]): Promise<void>;
  /** Restarts the time after which an unlinked file is removed. */
  keepOrphan(inode: number): Promise<void>;
  xattr(inode: number, name: string): Promise<Uint8Array>;
  xattrs(inode: number, thread?: number): Promise<readonly string[]>;
  setXattr(
    inode: number,
    name: string,
    value: Uint8Array,
    mode: XattrMode,
    clearsSetgid?: boolean,
  ): Promise<void>;
  removeXattr(inode: number, name: string): Promise<void>;
  /** @param inode also by the quotas of directories that it counts against; absent: by the volume's alone */
  space(inode?: number): Promise<Space>;
  /** @param contents newest known version: operations through the file follow it */
  openFile(inode: number, replicas: readonly string[], contents: ContentVersion): BackendFile;
}

/** Reserved inode numbers for new files, valid at one server and until a time of the monotonic clock. */
export type InodeNumbers = Pick<ReservedNumbers, 'first' | 'count' | 'named'> & {
  /** The server that creates files with them. */
  readonly server: string;
  readonly untilMs: number;
};

export interface NewFile extends FileWithContents {
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
}

/**
 * `refused`: does not exist, and must not. `not-created`: can be created by the same number without contents; if it has
 * its name already, whether it has its contents is unknown.
 */
export type CreateOutcome =
  | {
      readonly kind: 'created';
      readonly attributes: Attributes;
      /** When the catalog created its name; the directory has this time, too. */
      readonly namedNs: string;
      /** A server of these numbers is away or nearly full: the mount should reserve others. */
      readonly renew?: true;
    }
  | { readonly kind: 'refused'; readonly error: Error }
  | { readonly kind: 'not-created' };

export interface CreatedFile {
  readonly attributes: Attributes;
  readonly created: boolean;
  readonly namedNs: string | null;
  /** The cluster obeys `AttributeChanges.unchangedNs`. */
  readonly isConditional: boolean;
  /** Of the directory's delegation that another client's change of the file recalls; null if it recalls none. */
  readonly generation: number | null;
}

/** A name to remove, and the file that must have it. */
export interface UnlinkedName {
  readonly parent: number;
  readonly name: string;
  readonly inode: number;
}

/** A name whose removal was acknowledged before the cluster executed it. */
export interface FencedName extends UnlinkedName {
  /** A file that was written since this version keeps its name. */
  readonly contents: ContentVersion;
  /** The delegation under which the removal was acknowledged. */
  readonly fence: Fence;
}

/** `absent`: the inode does not have the name any more. `refused`: it has, or that is unknown. */
export type UnlinkOutcome =
  | { readonly kind: 'removed' | 'absent' }
  | { readonly kind: 'refused'; readonly error: unknown };

/** Creates and unlinks ahead of the cluster, under delegations and with reserved inode numbers. */
export interface DelegationBackend {
  /** Must be called before the first request. @see SessionEvents */
  listen(events: DelegationEvents): void;
  /** Whether no other client changes the directory's names now, nor before `recalled` has resolved. */
  isDelegated(directory: number): boolean;
  /** How long the delegation certainly lasts without a recall, in milliseconds; 0 if there is none. */
  delegatedMs(directory: number): number;
  /** The current delegation of a directory, for what is acknowledged now and sent later; null if there is none. */
  fenceOf(directory: number): Fence | null;
  /** Called when a delegation is used, or soon will be: the session ends if it is unused for some time. */
  markUsed(): void;
  /** Requests a delegation. @returns the first names of the directory; null if it is not delegated */
  delegate(directory: number, countMax: number): Promise<ListedPage | null>;
  /** @param placement the directory whose placement class the files will have; absent: the volume's */
  reserve(count: number, placement?: number): Promise<InodeNumbers>;
  /** What new reservations would name: the catalog, and its primary, which is null if unknown. */
  reserving(): { readonly server: string | null; readonly catalog: number };
  /** @returns the outcome of each, in order. @throws if the outcome is unknown */
  createWithContents(server: string, files: readonly NewFile[]): Promise<readonly CreateOutcome[]>;
  /**
   * Creates it without contents, or finds it by its number. `namedNs`: the directory's new times, if known.
   * @throws ServiceError `exists` if another file has the name
   */
  create(file: NewFile, times?: 'own' | 'catalog'): Promise<CreatedFile>;
  /** As `create`, in the catalog to which its directory has moved: the number is that one's, or moved there, too. */
  createAt(catalog: CatalogNumber, file: NewFile): Promise<CreatedFile>;
  /** Reserves a number of the catalog to which the directory has moved, for one file in it. */
  reserveAt(catalog: CatalogNumber, directory: number): Promise<number>;
  /**
   * Changes attributes of a file that was just created; its primary is not asked.
   * @throws ServiceError `precondition-failed` if the inode has changed since `unchangedNs`
   */
  changeAttributes(inode: number, changes: AttributeChanges): Promise<Attributes>;
  /**
   * Removes names while their delegations, all of one session, last. Retries until the cluster answers.
   * @throws if nothing was removed, or the outcome is unknown
   */
  unlink(
    names: readonly FencedName[],
    how: { readonly uid: number | undefined; readonly signal: AbortSignal },
  ): Promise<{ readonly outcomes: readonly UnlinkOutcome[]; readonly atNs: string | null }>;
  stop(): Promise<void>;
}
