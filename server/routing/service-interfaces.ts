import type { CatalogNumber, CellId, FileId, ServerId } from '../../base/ids.ts';
import type { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { PeerStatus } from '../../replica/actions.ts';
import type { RequestId } from '../../replica/operation.ts';
import type { View } from '../../replica/view.ts';
import type {
  AnsweredCommands,
  Attributes,
  CacheAnswer,
  CacheRequest,
  ChangesAnswer,
  ChangesRequest,
  Command,
  CommandRequest,
  CommandResults,
  ContentVersion,
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
  ServerState,
} from '../../wire/catalog-api.ts';
import type { WritePart } from '../../wire/file-operation.ts';
import type {
  AcknowledgedRequest,
  FileExtent,
  FileState,
  FlushResult,
  Served,
  ServerStatus,
  Whence,
  WriteGuard,
  WriteResult,
} from '../../wire/http-api.ts';
import type { FileLocations } from '../../wire/locations.ts';
import type {
  LockClaim,
  LockGrant,
  LockList,
  LockOrder,
  LockRenewal,
  LocksHeld,
} from '../../wire/lock-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
export interface CreationListener {
  /** The file will exist once a majority has the command. */
  creating(attributes: Attributes): void;
  /** It exists, and no client knows of it yet. */
  created(attributes: Attributes): void;
  /** It does not exist, or that is unknown. */
  notCreated(attributes: Attributes): void;
}

/**
 * This server's own services, as HTTP uses them. They forward nothing: if another server has to be asked, the call
 * fails with `ServiceError` `not-primary`; `details.primary` names it if it is known (absent: ask again shortly). Other
 * failures: `no-majority` with `details.unreachable`, `recovering`, `clock-fault`, `busy`, `unknown`, and those of the
 * operation. Every call ends within the operation time-out.
 */
export interface CatalogService {
  /**
   * Executes a command; resolves when a majority has it. A command of operators (volumes, servers, snapshots, counts of
   * replicas) then also survives a loss of power of all servers.
   * @param maker called before that, if the command creates a file and is no retry of one that has
   */
  execute(request: CommandRequest, maker?: CreationListener): Promise<CommandResults[Command['kind']]>;
  /**
   * Answers from the catalog's committed state, also for live files.
   * @param exact recalls a directory's delegation, at the primary; else a backup with a read lease answers, too
   */
  query(query: Query, exact?: boolean): Promise<QueryResults[Query['kind']]>;
  /** As `query` with `exact`, for a client that caches the answer. @param delegate delegate the directory to it */
  queryWithGrants(
    query: Query,
    session: number,
    delegate?: boolean,
  ): Promise<GrantedAnswer<QueryResults[Query['kind']]>>;
  /** Renews a client's cache session; resolves when it has recalls, or after a while. */
  pollCache(request: CacheRequest): Promise<CacheAnswer>;
  /** Changes in a directory, or below it; resolves when there are some, or after a while. */
  changes(request: ChangesRequest): Promise<ChangesAnswer>;
  /** Has all commands answered so far survive a loss of power of all servers. @returns those of `answered` now lost */
  flush(answered?: readonly AnsweredCommands[]): Promise<FlushAnswer>;
  status(): CatalogStatus;
  /** Moves the catalog's replicas; resolves with the final view. @see FileService.changeMembers */
  changeMembers(members: readonly ServerId[]): Promise<View>;
}

/** The catalog as this server knows it; without a replica here, only its members. */
export interface CatalogStatus {
  readonly primary: ServerId | null;
  readonly epoch: number;
  /** The last operation applied here. */
  readonly seq: number;
  /** The last operation known to be committed; never beyond `seq` at a backup. */
  readonly committedSeq: number;
  readonly members: readonly ServerId[];
  /** This server is a backup, and clients may send it the queries that any member can answer. */
  readonly invitesQueries: boolean;
}

export interface FileLeaseStatus {
  readonly view: View;
  readonly primary: ServerId | null;
  readonly epoch: number;
  readonly role: 'primary' | 'backup' | 'none';
  readonly lease: { readonly holder: ServerId | null; readonly remainingMs: number };
  /** Known at the primary only, else empty. */
  readonly replicas: readonly PeerStatus[];
}

/** Bytes of a file, all of one state. */
export interface FileRead {
  readonly bytes: Uint8Array;
  readonly state: FileState;
  /** Which server answered: the primary, this server by another authority, or one to which the read was forwarded. */
  readonly served: Served;
  /** How outdated this may be, in milliseconds: 0 unless a stale answer was requested. */
  readonly ageMs: number;
}

/** Positions on this server's disk of the bytes that a read would return. */
export interface FileLocated extends Pick<FileRead, 'state' | 'served'> {
  readonly locations: FileLocations | null;
}

/** Bytes `from` to before `to`; if it `grows`, the file is extended to `to`. */
export interface Hole {
  readonly from: number;
  readonly to: number;
  readonly grows: boolean;
}

export type CopyPiece =
  | { readonly kind: 'data'; readonly bytes: Uint8Array }
  | { readonly kind: 'hole'; readonly length: number }
  | { readonly kind: 'end' };

export interface ChangeRequest extends RequestId {
  /** The change is refused if the client has lost its locks on the file. */
  readonly under?: LocksHeld;
}

/** Contents of files. This server becomes primary if a call needs that and there is none. */
export interface FileService extends CreationListener {
  /** Returns bytes of one state, fewer at the file's end. @param asOf other contents: `precondition-failed` */
  read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead>;
  /**
   * As `read`, for a process that reads this server's disk: positions that stay valid for `LOCATIONS_VALID_MS`.
   * `not-primary` if this server would have to ask another one before it may answer.
   */
  locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated>;
  /** Reads the replica here, however outdated it is. `not-primary` if there is none. */
  readStale(file: FileId, offset: number, length: number): Promise<FileRead>;
  /**
   * Writes at most `WRITE_BYTES_MAX` bytes; resolves when a majority has acknowledged them.
   * @param guard the expected state just before the write; a repeated write gets its first answer in any state
   */
  write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    guard?: WriteGuard,
  ): Promise<WriteResult>;
  /** Writes all parts as one operation. `offset` of the result is that of the first part. */
  writeParts(file: FileId, request: ChangeRequest, parts: readonly WritePart[]): Promise<WriteResult>;
  truncate(file: FileId, request: ChangeRequest, sizeBytes: number): Promise<WriteResult>;
  /** Makes a hole; resolves when a majority has acknowledged it. `offset` of the result is the hole's end. */
  punch(file: FileId, request: ChangeRequest, hole: Hole): Promise<WriteResult>;
  /** Finds where data or a hole begins, at `offset` or after it; needs the same authority as a read. */
  extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent>;
  /**
   * Writes to `toOffset` what `read` returns, as one operation; `read` is not called for a repeated request. `offset`
   * of the result is the end of what was copied: `toOffset` if the source has ended.
   */
  copy(
    file: FileId,
    request: ChangeRequest,
    toOffset: number,
    read: () => Promise<CopyPiece>,
  ): Promise<WriteResult>;
  /**
   * Resolves when all acknowledged operations survive a loss of power of all servers.
   * @param unsynced earlier changes of the caller: the answer says whether one of them is lost
   */
  flush(file: FileId, unsynced?: readonly AcknowledgedRequest[]): Promise<FlushResult>;
  /**
   * Seals a file of policy `read-only`: it changes no more, and any replica with the final seal answers reads by
   * itself. Resolves when a majority has the seal durably, and all reachable replicas have it. May be repeated.
   */
  seal(file: FileId, expected?: ContentVersion): Promise<FileState>;
  /** Reports size, modification time and version to the catalog; resolves when the catalog has them. */
  settle(file: FileId): Promise<FileState>;
  state(file: FileId): Promise<FileState>;
  /** As `state`, from the primary: this server becomes it if there is none. */
  becomePrimary(file: FileId): Promise<FileState>;
  /**
   * Moves the file's replicas to `members`: new ones fetch the contents first, then a joint view makes the transition.
   * Resolves with the final view; at once if these are the members. The next primary completes an unfinished change.
   * @param decidedBy the number of the view by which they were chosen: a later view stays as it is
   */
  changeMembers(file: FileId, members: readonly ServerId[], decidedBy?: number): Promise<View>;
  /**
   * Waits for the lock as long as the request says, within the service's bounds. `locked` if another client has it,
   * `deadlock`, `lock-limit`, and `busy` while locks are claimed from a new primary.
   */
  lock(file: FileId, order: LockOrder, holder: string | null): Promise<LockGrant>;
  /** Renews all locks of a client, which lists them: so it claims from a new primary those of the one before. */
  renewLocks(file: FileId, body: LockClaim, holder: string | null): Promise<LockRenewal>;
  locks(file: FileId): Promise<LockList>;
  /** Known without a request; loads nothing. Null if this server has no replica of the file. */
  leaseStatus(file: FileId): FileLeaseStatus | null;
}

export interface StatusService {
  self(): Promise<ServerStatus>;
  readonly cluster: string;
  readonly id: ServerId;
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  /** Time-out of one client request in all, forwarding and retries included, in milliseconds. */
  readonly operationTimeoutMs: number;
  isConnected(server: ServerId): boolean;
  readonly known: KnownCluster;
}

/** What a server knows of the cluster without a request, from the catalog's last list. */
export interface KnownCluster {
  /** Wanted number of the catalog's members; null: by the number of servers. */
  readonly catalogReplicas: number | null;
  stateOf(server: ServerId): ServerState;
  /** When a server's maintenance ends, by the wall clock; null if it is in none. */
  maintenanceUntilMs(server: ServerId): number | null;
  labelsOf(server: ServerId): readonly string[];
}

/** The catalogs of the cluster. */
export interface Catalogs {
  /** The one that has servers, volumes' names and settings. */
  readonly root: CatalogService;
  /**
   * This server's part of a catalog: calls fail with `not-primary` where another server has to be asked. Null for the
   * cell of a file, and of a catalog that is unknown here.
   */
  at(cell: CellId): CatalogService | null;
  /** The catalogs that serve, as far as this server knows; the root catalog first. */
  numbers(): readonly CatalogNumber[];
  /** The catalog of a volume, as far as this server knows; the root catalog if it knows of no other. */
  ofVolume(name: string): CatalogNumber;
  /** The catalog that has an inode, as far as this server knows. */
  ofInode(inode: number): CatalogNumber;
  /** As `ofInode`, for all inodes; another object if numbers have moved. */
  readonly inodeCatalogs: InodeCatalogs;
  /** Fetches the list of catalogs from the root catalog. */
  refresh(): Promise<void>;
  /** The list of volumes' catalogs, as this server knows it; with removed ones. */
  listed(): readonly ListedCatalog[];
  /** The list's row of a catalog; null if it has none, as for the root catalog. */
  row(number: CatalogNumber): ListedCatalog | null;
  /** @returns what to call to unsubscribe */
  onListChange(listener: () => void): () => void;
}

export interface Services {
  readonly catalogs: Catalogs;
  readonly files: FileService;
  readonly status: StatusService;
}
