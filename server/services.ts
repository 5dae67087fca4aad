import type { FileId, ServerId } from '../base/ids.ts';
import type { PeerStatus, RequestId, View } from '../replica/actions.ts';
import type { Command, CommandRequest, CommandResults, Query, QueryResults } from '../wire/catalog-api.ts';
import type { FileState, Served, ServerStatus, WriteResult } from '../wire/http-api.ts';

/**
 * What this server itself can do, as the HTTP face sees it. Nothing here forwards: where another
 * server has to be asked, the call fails with `ServiceError` `not-primary`, whose `details.primary`
 * names it if it is known (absent: not known yet, ask again shortly). Other failures: `no-majority`
 * with `details.unreachable`, `recovering`, `clock-fault`, `busy`, `unknown`, and those of the operation.
 * Every call ends within the server's operation time-out.
 */
export interface CatalogService {
  /** Executes a command as the catalog's primary; resolves when a majority has it. */
  execute(request: CommandRequest): Promise<CommandResults[Command['kind']]>;
  /** Answers from committed state, as the catalog's primary. Live files' attributes are as the catalog has them. */
  query(query: Query): Promise<QueryResults[Query['kind']]>;
  /** All commands answered so far survive power loss of every server when it resolves. As the catalog's primary. */
  flush(): Promise<void>;
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

/** Contents of files whose primary this server is, or becomes by being asked. */
export interface FileService {
  /** Shorter than `length` at the end of the file. All bytes are of one state. */
  read(file: FileId, offset: number, length: number): Promise<FileRead>;
  /** What the replica here holds, however old. `not-primary` where there is none. */
  readStale(file: FileId, offset: number, length: number): Promise<FileRead>;
  /** Bytes at an offset, or behind the last one. At most `WRITE_BYTES_MAX`. Acknowledged by a majority when it resolves. */
  write(file: FileId, request: RequestId, offset: number | 'append', bytes: Uint8Array): Promise<WriteResult>;
  truncate(file: FileId, request: RequestId, sizeBytes: number): Promise<WriteResult>;
  /** All acknowledged operations survive power loss of every server when it resolves. */
  flush(file: FileId): Promise<FileState>;
  /**
   * Seals a file of policy `read-only`: from now on it changes no more, and any replica that has the seal answers
   * reads by itself. Resolves when a majority has it synced, and all replicas in reach have it. May be repeated.
   */
  seal(file: FileId): Promise<FileState>;
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
