import type { DelegationEvents, Fence } from '../client/delegations.ts';
import type { ReservedNumbers } from '../wire/birth-numbers.ts';
import type { Birth } from '../wire/births.ts';
import type {
  Attributes as CatalogAttributes,
  CommandOf,
  ContentVersion,
  NodeKind,
} from '../wire/catalog-api.ts';
import type { InodeFlag } from '../wire/inode-flags.ts';
import type { LockHeld } from '../wire/lock-api.ts';

/** The little that the mount needs of the cluster; `cluster-backend.ts` is its real form, tests have one in memory. */

export type { ContentVersion, NodeKind };

/** What is known of an inode. */
export type Attributes = Omit<
  CatalogAttributes,
  'volume' | 'view' | 'objectBytes' | 'capability' | 'snapshot' | 'source'
>;

/** What a file's primary says of its contents. */
export interface FileState {
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly contents: ContentVersion;
  /** How many bytes within the size are holes; absent where there are none, or in the answer of a change. */
  readonly holeBytes?: number;
  /** Of a change: the version that it has changed. Absent where that is not known. */
  readonly before?: ContentVersion;
  /** The contents change no more. */
  readonly sealed?: boolean;
}

/** A lock that a program has, or would have; its owner is one of this mount. */
export type BackendLock = LockHeld;

/** Locks of this mount on one file. */
export interface BackendLocks {
  /** @throws ServiceError `locked` where it is not free, unless it `waits`; `deadlock`; `lock-limit`; the reason of `signal` */
  lock(lock: BackendLock, waits: boolean, signal: AbortSignal): Promise<void>;
  unlock(range: Omit<BackendLock, 'type'>): Promise<void>;
  /** @returns a lock that stands in the way, and whether it is one of this mount; or null */
  holder(lock: BackendLock): Promise<{ readonly lock: BackendLock; readonly own: boolean } | null>;
  /** The owner lost a lock, and has not given it back since: others may have it. */
  isLost(kind: BackendLock['kind'], owner: string): boolean;
  /** Gives everything back. */
  close(): Promise<void>;
}

/** Bytes of a file as they were at one moment, or, in pieces that were changed before they were read, later. */
export interface BackendRange {
  /** They were so at this moment, or later (monotonic, in milliseconds). */
  readonly sinceMs: number;
  /** Until when pieces can be read. */
  readonly untilMs: number;
  /** @returns the bytes there are: fewer than `length` only at the end of the file */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/**
 * The contents of one file. A file that is written is live from its first write on, without a word from
 * here (decision 0005), until it is settled. Every change is acknowledged by a majority when its promise resolves. */
export interface BackendFile {
  /** @returns the bytes there are: fewer than `length` only at the end of the file */
  read(offset: number, length: number): Promise<Uint8Array>;
  /**
   * Bytes that are about to be read in pieces, where that is cheaper than to ask for each.
   *
   * @returns null where it is not
   */
  range(offset: number, length: number): Promise<BackendRange | null>;
  /**
   * `parts`, which follow each other, stay untouched until the promise settles, and are the caller's again afterwards.
   *
   * @param expect the version of the contents just before the write; absent: any
   * @throws ServiceError `precondition-failed` where they have another version
   */
  write(offset: number, parts: readonly Uint8Array[], expect?: ContentVersion): Promise<FileState>;
  /** As `write`, at several places: whoever reads finds all of it or none, and of what overlaps the later. */
  writeParts(parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[]): Promise<FileState>;
  /** All of `bytes`, at the end of the file wherever that is by then, in one piece. */
  append(bytes: Uint8Array): Promise<FileState>;
  truncate(sizeBytes: number): Promise<FileState>;
  /** Bytes `from` to before `to` become a hole; the file is made to reach to `to` where it `grows`. */
  punch(from: number, to: number, grows: boolean): Promise<FileState>;
  /** @returns where data, or a hole, begins, not before `offset`; null where nothing of it follows */
  seek(offset: number, what: 'data' | 'hole'): Promise<number | null>;
  /**
   * Copies from another file of the volume, or from this one where the ranges do not overlap, without the bytes coming here.
   *
   * @returns how far it came, which may be less than `length`: then there is more to be had, unless it is 0
   */
  copyFrom(
    source: number,
    fromOffset: number,
    toOffset: number,
    length: number,
  ): Promise<{ readonly copiedBytes: number; readonly state: FileState }>;
  /** Whether bytes up to here would stay in this mount's memory: it is a new file that the cluster does not have yet. */
  keeps(endBytes: number): boolean;
  /**
   * What was acknowledged before is at the cluster: for a new file that has been kept here so far, also its name.
   *
   * @param isReported a program that made the file, or has it open for writing, learns of a failure
   * @returns of such a file, which version of its contents the cluster has; else nothing
   */
  arrive(isReported?: boolean): Promise<FileState | undefined>;
  /** What was acknowledged before survives a loss of power. */
  flush(): Promise<FileState>;
  /** The contents change no more, and every server of the file that can be reached has them. */
  seal(): Promise<void>;
  /** The catalog is told size and modification time. */
  settle(): Promise<void>;
  /** @param lost is told of locks that could not be kept */
  openLocks(lost: (locks: readonly BackendLock[]) => void): BackendLocks;
  state(): Promise<FileState>;
}

/** Whoever makes something; in a directory with the set-group-id bit, the directory's group comes first. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
  /** Bits that the mode loses, unless the directory has a default access control list. */
  readonly umask?: number;
}

/** A modification time is valid until newer contents come than those that there are. */
export type AttributeChanges = Omit<CommandOf<'set-attributes'>, 'kind' | 'inode' | 'contents'>;

/** A read. */
export type NotedAccess = CommandOf<'note-accesses'>['accesses'][number];

export interface Space {
  readonly totalBytes: number;
  readonly freeBytes: number;
  readonly inodes: number;
  /** What is free is what a quota leaves, and there is more on the disks. */
  readonly isQuota?: true;
  /** Absent where nothing bounds them. */
  readonly freeInodes?: number;
}

export type RenameMode = 'replace' | 'no-replace' | 'exchange';
export type XattrMode = 'set' | 'create' | 'replace';

/** Entries of a directory that follow each other in the order of their names. */
export interface ListedPage {
  readonly entries: readonly { readonly name: string; readonly attributes: Attributes }[];
  /** Others come after the last one. */
  readonly more: boolean;
}

/**
 * One volume of a cluster. Failures are `ServiceError`s. The backend retries what can be retried and gives
 * up within its own time limit; whoever calls it does not retry.
 *
 * `lookup` and `attributes` ask the primary of a file that is live. What is changed is answered by the catalog alone: of
 * a live file, its size, version and times of the contents are those of before it was written.
 */
export interface FileSystemBackend {
  /** @returns the inode of the volume's root */
  start(): Promise<number>;
  stop(): Promise<void>;
  lookup(parent: number, name: string): Promise<Attributes>;
  /** Whether `byNumber` finds inodes: not where the mount shows a part of a volume, or a snapshot. */
  readonly findsNumbers: boolean;
  /**
   * Finds an inode by its number alone, for file handles of the kernel.
   *
   * @returns the inode, or the directory that it is in. @throws ServiceError `not-found`, also for inodes of other volumes
   */
  byNumber(inode: number, which: 'self' | 'parent'): Promise<Attributes>;
  /** Answers are cached here until the cluster recalls them. */
  readonly caches: boolean;
  /** Whether a `lookup` of the name is answered from that cache. */
  isCached(parent: number, name: string): boolean;
  /** @returns what `lookup` would answer from that cache; undefined where it, or a pending operation, has to be asked */
  granted(parent: number, name: string): Attributes | undefined;
  /** As `granted`, of what `attributes` would answer. */
  grantedAttributes(inode: number): Attributes | undefined;
  /**
   * How long the kernel may cache attributes of a directory while only this mount changes it, in milliseconds; 0 for all others. The kernel
   * drops them itself when it has changed a name, and is made to when the outcome of a pending change is known.
   */
  delegatedAttributesMs(attributes: Attributes): number;
  /** How long the name is this inode's without a recall of the directory, in milliseconds; 0 if that is unknown. */
  nameGrantedMs(parent: number, name: string, inode: number): number;
  /** Whether no other client changes names of the directory before it is recalled from this mount. */
  isGranted(directory: number): boolean;
  attributes(inode: number): Promise<Attributes>;
  /** Entries with names after `after`, in the bytewise order of their names. */
  list(inode: number, after: string, countMax: number): Promise<ListedPage>;
  /** Where a file has the name it is answered, unless `exclusive`. */
  createFile(
    parent: number,
    name: string,
    mode: number,
    owner: Owner,
    exclusive: boolean,
  ): Promise<{
    readonly attributes: Attributes;
    readonly created: boolean;
    /** The cluster does not have it yet. */
    readonly uncommitted?: boolean;
  }>;
  /** Whether requests have failed for so long that only necessary ones are sent. */
  isAway(): boolean;
  /**
   * Changes of names and attributes that were answered before survive a loss of power of all servers.
   *
   * @param scope `cluster`: all of them. `mount`: renames, links and attributes that this mount has changed, at once where it has changed none
   *   since the last call
   */
  persistNames(scope: 'cluster' | 'mount'): Promise<void>;
  /** Whether new files of a directory are pending: its attributes are about to change. */
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
  /** Creates a file without a name; it is removed some time after the last `keepOrphan`, unless it gets a name. */
  createUnnamed(mode: number, owner: Owner): Promise<Attributes>;
  /** Gives its name to a file that `createUnnamed` has created. @throws ServiceError `exists` */
  nameFile(inode: number, parent: number, name: string): Promise<Attributes>;
  /**
   * @param uid of the program's user, for those who look who took the name away
   * @param isOpen whether a file is open here: the cluster has to know at once that it has no name any more
   * @returns the inode and the names that are left of it; `atNs`: the directory's times since, where they are known
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
    /** The cluster has not executed it yet: `atNs` is an estimate. */
    readonly behind?: boolean;
  }>;
  /**
   * @param inode that had the name when it was heard of last
   * @returns `atNs`: as of `unlink`
   */
  removeDirectory(parent: number, name: string, inode?: number): Promise<{ readonly atNs?: string }>;
  /** @returns `atNs`: the times of both directories since, where they are known and have changed */
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
  /** A new owner takes set-user-id, and set-group-id where the group may execute, from what is no directory, unless `mode` is given. */
  setAttributes(inode: number, changes: AttributeChanges): Promise<Attributes>;
  /** A file or directory has these flags from now on, and no others. */
  setFlags(inode: number, flags: readonly InodeFlag[]): Promise<Attributes>;
  /** Reads: makes access times later that no client has set since, and changes nothing else. Skips inodes that are gone. */
  noteAccesses(accesses: readonly NotedAccess[]): Promise<void>;
  /** A file without a name is still in use: its time to collection starts anew. */
  keepOrphan(inode: number): Promise<void>;
  xattr(inode: number, name: string): Promise<Uint8Array>;
  /** @param thread that of the program that asks; 0, or absent, where that is not known */
  xattrs(inode: number, thread?: number): Promise<readonly string[]>;
  /** @param clearsSetgid with an access control list: the set-group-id bit goes */
  setXattr(
    inode: number,
    name: string,
    value: Uint8Array,
    mode: XattrMode,
    clearsSetgid?: boolean,
  ): Promise<void>;
  removeXattr(inode: number, name: string): Promise<void>;
  space(): Promise<Space>;
  /** @param contents newest that is known of the file: what is done through it comes later */
  openFile(inode: number, replicas: readonly string[], contents: ContentVersion): BackendFile;
}

/** Numbers for files to come, valid at one server and until then on the monotonic clock. */
export type InodeNumbers = Pick<ReservedNumbers, 'first' | 'count' | 'named'> & {
  /** That creates files with them. */
  readonly server: string;
  readonly untilMs: number;
};

/** A new file, as the cluster creates it with all of its contents. */
export interface NewFile extends Birth {
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
}

/**
 * `refused`: not there, and not to be. `not-created`: not there, and can be created in the ordinary way by the same number; of one that
 * has its name it is not known whether it has its contents.
 */
export type CreateOutcome =
  | {
      readonly kind: 'created';
      readonly attributes: Attributes;
      /** When it got its name, which is its directory's time. */
      readonly namedNs: string;
      /** A server that holds files with such numbers is away or nearly full: other numbers are better. */
      readonly renew?: true;
    }
  | { readonly kind: 'refused'; readonly error: Error }
  | { readonly kind: 'not-created' };

export interface CreatedFile {
  readonly attributes: Attributes;
  /** False: an earlier request has created it. */
  readonly created: boolean;
  readonly namedNs: string | null;
}

/** A name that is to go, and the file that it is to be taken from. */
export interface UnlinkedName {
  readonly parent: number;
  readonly name: string;
  readonly inode: number;
}

/** A name that was acknowledged as gone before the cluster has removed it. */
export interface FencedName extends UnlinkedName {
  /** The contents that the file had: one that was written since keeps its name. */
  readonly contents: ContentVersion;
  /** The delegation under which that was acknowledged. */
  readonly fence: Fence;
}

/** `gone`: the inode did not have the name any more. `refused`: it has, or that is not known. */
export type UnlinkOutcome =
  | { readonly kind: 'removed' | 'gone' }
  | { readonly kind: 'refused'; readonly error: unknown };

/**
 * What a mount needs to create and remove files ahead of the cluster: directories that are delegated to it, in which no other client
 * creates names before the mount has returned them, and numbers for files.
 */
export interface DelegationBackend {
  /** Called before the first request. @see SessionEvents */
  listen(events: DelegationEvents): void;
  /** Whether no other client changes the directory's names at this moment, nor until `recalled` has resolved. */
  isDelegated(directory: number): boolean;
  /** For how long it certainly is without a recall, in milliseconds; 0 if it is not. */
  delegatedMs(directory: number): number;
  /** The delegation of a directory at this moment, for what is acknowledged now and sent later; null where there is none. */
  fenceOf(directory: number): Fence | null;
  /** What is delegated is in use. */
  use(): void;
  /** @returns the first names of the directory, which is delegated from now on; null where it is not */
  delegate(directory: number, countMax: number): Promise<ListedPage | null>;
  reserve(count: number): Promise<InodeNumbers>;
  /** The server at which numbers are valid now, as far as that is known. */
  creatingServer(): string | null;
  /** @returns what became of each, in their order; throws where that is not known */
  createWithContents(server: string, files: readonly NewFile[]): Promise<readonly CreateOutcome[]>;
  /**
   * Creates the file without its contents, or finds that an earlier request has created it by its number.
   *
   * @param times of the file: those in `file`, or that of the command, which is its directory's time, too
   * @returns `namedNs`: the times of its directory since, where they are known
   * @throws ServiceError `exists` where another file has the name
   */
  create(file: NewFile, times?: 'own' | 'catalog'): Promise<CreatedFile>;
  /**
   * Takes names from inodes while the delegations last that the names carry, all of one session. Asks until the cluster answers.
   *
   * @returns what became of each, in their order, and the times of their directories since, where they are known; throws where nothing was removed,
   *   or where that is not known
   */
  unlink(
    names: readonly FencedName[],
    how: { readonly uid: number | undefined; readonly signal: AbortSignal },
  ): Promise<{ readonly outcomes: readonly UnlinkOutcome[]; readonly atNs: string | null }>;
  stop(): Promise<void>;
}
