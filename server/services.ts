import type { FileId, ServerId } from '../base/ids.ts';
import type { PeerStatus } from '../replica/actions.ts';
import type { RequestId } from '../replica/operation.ts';
import type { View } from '../replica/view.ts';
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
  Query,
  QueryResults,
  RememberedAnswer,
} from '../wire/catalog-api.ts';
import type { WritePart } from '../wire/file-operation.ts';
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
} from '../wire/http-api.ts';
import type { FileLocations } from '../wire/locations.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal, LocksHeld } from '../wire/lock-api.ts';

/** Who is to lead the files that commands make: told of each once by `making`, then by one of the others. */
export interface Maker {
  /** The file will be there once others have the command. */
  making(attributes: Attributes): void;
  /** It is there, and nobody knows of it yet. */
  made(attributes: Attributes): void;
  /** It is not there, or that is not known. */
  unmade(attributes: Attributes): void;
}

/**
 * What this server itself can do, as the HTTP face sees it. Nothing here forwards: where another
 * server has to be asked, the call fails with `ServiceError` `not-primary`, whose `details.primary`
 * names it if it is known (absent: not known yet, ask again shortly). Other failures: `no-majority`
 * with `details.unreachable`, `recovering`, `clock-fault`, `busy`, `unknown`, and those of the operation.
 * Every call ends within the server's operation time-out.
 */
export interface CatalogService {
  /**
   * Executes a command as the catalog's primary; resolves when a majority has it. A command of operators (volumes, servers,
   * snapshots, counts of replicas) then also survives power loss of every server.
   *
   * @param maker told before that where this very call makes a file
   */
  execute(request: CommandRequest, maker?: Maker): Promise<CommandResults[Command['kind']]>;
  /**
   * Answers from committed state, as the catalog's primary. Live files' attributes are as the catalog has them.
   *
   * @param exact a directory that is delegated to a client is recalled before
   */
  query(query: Query, exact?: boolean): Promise<QueryResults[Query['kind']]>;
  /**
   * As `query` with `exact`, for a client that remembers the answer.
   *
   * @param session as `cache` answered it
   * @param delegate the directory that is asked about is delegated to the session
   */
  queryRemembered(
    query: Query,
    session: number,
    delegate?: boolean,
  ): Promise<RememberedAnswer<QueryResults[Query['kind']]>>;
  /** Renews a client's session of remembering, as the catalog's primary; resolves when there is something to forget, or after a while. */
  cache(request: CacheRequest): Promise<CacheAnswer>;
  /** What was changed in a directory, or below it, as the catalog's primary; resolves when there is something to tell, or after a while. */
  changes(request: ChangesRequest): Promise<ChangesAnswer>;
  /**
   * All commands answered so far survive power loss of every server when it resolves. As the catalog's primary.
   *
   * @param answered commands that are to be among them
   * @returns those of `answered` that are not
   */
  flush(answered?: readonly AnsweredCommands[]): Promise<FlushAnswer>;
  status(): { primary: ServerId | null; epoch: number; seq: number; members: readonly ServerId[] };
  /** Moves the catalog's replicas to `members`, as the catalog's primary; resolves with the final view. @see FileService.changeMembers */
  changeMembers(members: readonly ServerId[]): Promise<View>;
}

/** Lease and replicas of one file as this server sees them. */
export interface FileStanding {
  readonly view: View;
  readonly primary: ServerId | null;
  readonly epoch: number;
  /** Role of this server. */
  readonly role: 'primary' | 'backup' | 'none';
  readonly lease: { readonly holder: ServerId | null; readonly remainingMs: number };
  /** Known at the primary only, else empty. */
  readonly replicas: readonly PeerStatus[];
}

/** Bytes of a file, all of one state. */
export interface FileRead {
  readonly bytes: Uint8Array;
  readonly state: FileState;
  /** Who answered: the primary, another replica by itself, or one that this server asked. */
  readonly served: Served;
  /** For how long at most this may have been outdated, in milliseconds: 0 unless a stale answer was asked for. */
  readonly ageMs: number;
}

/** Where the bytes that a read would answer lie on this server's disk. */
export interface FileLocated extends Pick<FileRead, 'state' | 'served'> {
  /** Null where there is no disk. */
  readonly locations: FileLocations | null;
}

/** Bytes `from` to before `to`, which become a hole; the file is made to reach to `to` where it `grows`. */
export interface Hole {
  readonly from: number;
  readonly to: number;
  readonly grows: boolean;
}

/** What is to be copied at a time. */
export type CopyPiece =
  | { readonly kind: 'data'; readonly bytes: Uint8Array }
  | { readonly kind: 'hole'; readonly length: number }
  | { readonly kind: 'end' };

/** A change of a file, once. */
export interface ChangeRequest extends RequestId {
  /** It is refused where the client has lost its locks on the file. */
  readonly under?: LocksHeld;
}

/** Contents of files whose primary this server is, or becomes by being asked. */
export interface FileService extends Maker {
  /**
   * Shorter than `length` at the end of the file. All bytes are of one state.
   *
   * @param asOf contents of another version are refused with `precondition-failed`
   */
  read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead>;
  /**
   * As `read`, for whoever reads this server's disk itself: where the bytes are, for `LOCATIONS_HELD_MS`. `not-primary` where this server
   * would have to ask anybody before it may answer.
   */
  locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated>;
  /** What the replica here holds, however old. `not-primary` where there is none. */
  readStale(file: FileId, offset: number, length: number): Promise<FileRead>;
  /**
   * Bytes at an offset, or behind the last one. At most `WRITE_BYTES_MAX`. Acknowledged by a majority when it resolves.
   *
   * @param guard what the file must be just before; a write that was done already is answered once more, whatever it is now
   */
  write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    guard?: WriteGuard,
  ): Promise<WriteResult>;
  /** Bytes at several places, as one operation. `offset` of the result is that of the first. */
  writeParts(file: FileId, request: ChangeRequest, parts: readonly WritePart[]): Promise<WriteResult>;
  truncate(file: FileId, request: ChangeRequest, sizeBytes: number): Promise<WriteResult>;
  /** Makes a hole. `offset` of the result is where it ends. Acknowledged by a majority when it resolves. */
  punch(file: FileId, request: ChangeRequest, hole: Hole): Promise<WriteResult>;
  /** Where data or a hole begins, not before `offset`; as a read, it is answered by who may answer one. */
  extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent>;
  /**
   * Writes to `toOffset` what `read` brings from elsewhere, as one operation; `read` is not asked where the request was carried
   * out before. `offset` of the result is how far the copy came: `toOffset` where there was nothing left to be copied.
   */
  copy(
    file: FileId,
    request: ChangeRequest,
    toOffset: number,
    read: () => Promise<CopyPiece>,
  ): Promise<WriteResult>;
  /**
   * All acknowledged operations survive power loss of every server when it resolves.
   *
   * @param unsynced changes that the caller made before: the answer says whether one of them is gone
   */
  flush(file: FileId, unsynced?: readonly AcknowledgedRequest[]): Promise<FlushResult>;
  /**
   * Seals a file of policy `read-only`: from now on it changes no more, and any replica that has the seal answers
   * reads by itself. Resolves when a majority has it synced, and all replicas in reach have it. May be repeated.
   */
  seal(file: FileId, expected?: ContentVersion): Promise<FileState>;
  /** Tells the catalog size, modification time and version; resolves when the catalog has them. */
  settle(file: FileId): Promise<FileState>;
  state(file: FileId): Promise<FileState>;
  /** As `state`, from the primary: this server becomes it if nobody is. */
  lead(file: FileId): Promise<FileState>;
  /**
   * Moves the file's replicas to `members`: those that are new learn the contents first, then a joint view
   * leads over. Resolves with the final view; at once where it has these members already. A change that was
   * begun and not finished is finished by whoever is primary next.
   */
  changeMembers(file: FileId, members: readonly ServerId[]): Promise<View>;
  /**
   * Sets a lock, or gives it back. Waits for it as long as the request says, and no longer than the service can.
   * `locked` where another has it, `deadlock`, `lock-limit`, and `busy` while locks are claimed from a new primary.
   */
  lock(file: FileId, order: LockOrder, holder: string | null): Promise<LockGrant>;
  /** A client lives, and has these locks. Claims those that it had from the primary before. */
  renewLocks(file: FileId, body: LockClaim, holder: string | null): Promise<LockRenewal>;
  locks(file: FileId): Promise<LockList>;
  /** What is known here without asking anybody; opens nothing. Null where this server never heard of the file. */
  standing(file: FileId): FileStanding | null;
}

export interface StatusService {
  self(): Promise<ServerStatus>;
  readonly cluster: string;
  readonly id: ServerId;
  /** Base URLs of all servers, this one included. */
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  /** How long one client request may take in all, forwarding and retries included, in milliseconds. */
  readonly operationTimeoutMs: number;
  isConnected(server: ServerId): boolean;
}

/** What a server can do by itself; the gateway adds its peers. */
export interface Services {
  readonly catalog: CatalogService;
  readonly files: FileService;
  readonly status: StatusService;
}
