import type { ErrorCode, HolderDetails, JunctionDetails } from '../base/errors.ts';
import type { Attributes, ContentVersion, ServerState } from './catalog-api.ts';
import type { AttachedAt } from './junctions.ts';
import type { MovePhase } from './volume-moves.ts';

/** HTTP upgrade to a connection for large writes (decision 0053). */
export const CONTENTS_PATH = '/v1/contents';
export const CONTENTS_PROTOCOL = 'leasehold-contents';

export const HEADER_PRIMARY = 'leasehold-primary';
export const HEADER_EPOCH = 'leasehold-epoch';
export const HEADER_ROLE = 'leasehold-role';
/** The file's state at a read: size in bytes, content version as `epoch-seq`, and the rest of `FileState`. */
export const HEADER_SIZE = 'leasehold-size';
export const HEADER_CONTENTS = 'leasehold-contents';
export const HEADER_MODIFIED = 'leasehold-modified-ns';
export const HEADER_SEQ = 'leasehold-seq';
/** The number of a volume's catalog that a request is for, and of that which an answer is about; absent: the root. */
export const HEADER_CATALOG = 'leasehold-catalog';
/** An operation of the catalog, for a new session's `since`. */
export const HEADER_CATALOG_SEQ = 'leasehold-catalog-seq';
/** The newest catalog epoch that the server knows: a client starts a new session in each. */
export const HEADER_CATALOG_EPOCH = 'leasehold-catalog-epoch';
export const HEADER_SERVED = 'leasehold-served';
/** How old a stale answer may be, in milliseconds, or `unknown`. */
export const HEADER_AGE = 'leasehold-age-ms';

export type Served = 'primary' | 'local' | 'forwarded';
/** Between servers: forwarded once, not to be forwarded again. */
export const HEADER_FORWARDED = 'leasehold-forwarded';

/** Capabilities for the request's files, comma-separated, if servers require authentication. */
export const HEADER_CAPABILITY = 'leasehold-capability';
export const CAPABILITY_FILES_MAX = 100;

export interface CapabilityAnswer {
  readonly capabilities: readonly { readonly file: number; readonly capability: string }[];
}

/** `application/problem+json` (RFC 9457), the form of every error. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ErrorCode;
  readonly unreachable?: readonly string[];
  readonly primary?: string;
  readonly holder?: HolderDetails;
  readonly outdated?: readonly string[];
  readonly elsewhere?: true;
  readonly movedTo?: number;
  readonly junction?: JunctionDetails;
}

export interface FileState {
  readonly file: number;
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly contents: ContentVersion;
  /** Bytes of holes; absent if none, or not counted. */
  readonly holeBytes?: number;
  /** The last operation of the file's sequence, for a new session's `since`. */
  readonly seq: number;
  readonly primary: string;
  readonly epoch: number;
  readonly sealed?: boolean;
}

/** An acknowledged change, by session and number; `since` as in the session. */
export interface AcknowledgedRequest {
  readonly session: number;
  readonly number: number;
  readonly since: number;
}

export const UNSYNCED_REQUESTS_MAX = 16;

/** @param requests for a flush's query; at most `UNSYNCED_REQUESTS_MAX` */
export function unsyncedText(requests: readonly AcknowledgedRequest[]): string {
  return requests.map(({ session, number, since }) => `${session}-${number}-${since}`).join(',');
}

export interface FlushResult extends FileState {
  /** A change named by the flush is missing: all servers lost power since. */
  readonly lost?: boolean;
}

/** Answer of a write: the state after it, and an append's offset. */
export interface WriteResult extends FileState {
  /** The version just before: a client with it now has `contents`. Absent in a repeated answer. */
  readonly before?: ContentVersion;
  /** The guard's `changedNs` held: a conditional rename or replacement came after the write. Absent: not compared. */
  readonly sameNames?: true;
  readonly offset: number;
}

/** Required state when the write is ordered, else `precondition-failed`. */
export interface WriteGuard {
  readonly contents?: ContentVersion;
  readonly sizeBytes?: number;
  /** The catalog's ctime, at the write's live mark: if equal, the file has the same names. Not compared if unknown. */
  readonly changedNs?: string;
}

/** Most files per `POST /v1/data/settle`. */
export const SETTLE_FILES_MAX = 500;

/** Answer of `POST /v1/data/settle`: the catalog has size and time of all other files. */
export interface SettleAnswer {
  readonly failed: readonly { readonly file: number; readonly code: ErrorCode; readonly message: string }[];
}

/** As in `lseek`(2). */
export type Whence = 'data' | 'hole';

export interface FileExtent extends FileState {
  readonly found: number | null;
}

/** Body of `POST /v1/data/{file}/copy`: source range, and offset in `file`. */
export interface CopyOrder {
  readonly from: number;
  /** Read from this snapshot. */
  readonly snapshot?: number;
  readonly fromOffset: number;
  readonly toOffset: number;
  readonly length: number;
}

/** Answer of `GET /v1/info/{volume}/{path}`. */
export interface FileInfo {
  readonly file: number;
  readonly volume: string;
  readonly path: string;
  readonly attributes: Attributes;
  readonly size: number;
  readonly etag: string;
  readonly view: { readonly number: number; readonly members: readonly string[] };
  readonly primary: string | null;
  readonly epoch: number;
  readonly lease: { readonly holder: string | null; readonly remainingMs: number };
  readonly replicas: readonly {
    readonly server: string;
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable';
    readonly version: number;
    readonly reachable: boolean;
    /** Committed operations that it is not known to have; their bytes, or null if no longer kept. */
    readonly lagOperations: number;
    readonly lagBytes: number | null;
  }[];
}

export interface Moving {
  /** Files to move since the last idle moment, finished ones included. */
  readonly total: number;
  readonly done: number;
  /** Failed attempts, which are repeated. */
  readonly failed: number;
  /** Some of the files that are moving. */
  readonly current: readonly number[];
  /** The following are absent in answers of earlier releases. */
  readonly currentCount?: number;
  readonly doneBytes?: number;
  /** An estimate by the sizes of the files moved; null before the first. */
  readonly leftBytes?: number | null;
  /** Of the last minute. */
  readonly filesPerS?: number;
  readonly bytesPerS?: number;
  /** Estimated seconds until all are moved; null if nothing moves. */
  readonly etaS?: number | null;
}

export interface ReplicaLag {
  readonly files: number;
  readonly versions: number;
  /** Sizes of files that a server lacks completely. */
  readonly bytes: number;
}

export interface ClusterServers {
  readonly cluster: string;
  readonly paramsHash: string;
  readonly settings?: Readonly<Record<string, string>>;
  readonly bootstrap: {
    readonly urls: Readonly<Record<string, string>>;
    readonly catalogMembers: readonly string[];
  };
  /** The catalog's members, by the newest view that the server knows. */
  readonly catalogMembers: readonly string[];
  readonly catalogView: number;
  /** Wanted number of the catalog's members; null: by the number of servers. Absent from earlier releases. */
  readonly catalogReplicas?: number | null;
  readonly servers: readonly {
    readonly id: string;
    readonly url: string;
    readonly zone: string;
    /** Absent if it has none. */
    readonly labels?: readonly string[];
    readonly state: ServerState;
    /** Until this time, in nanoseconds since 1970, its replicas are not replaced; absent without maintenance. */
    readonly maintenanceNs?: string;
  }[];
}

/** Whether a server can be stopped now without making anything unavailable. */
export interface StopCheck {
  readonly server: string;
  readonly ok: boolean;
  readonly reasons: readonly string[];
  /** Files that would lack a majority of their servers, with the numbers of some. */
  readonly files: { readonly count: number; readonly examples: readonly number[] };
}

export type Verdict = 'healthy' | 'degraded' | 'down';

export interface Finding {
  readonly file: number;
  /** The server that found it and has the replica. */
  readonly server: string;
  /**
   * `members`: other members for the same view number. `unnamed`: unknown to the catalog. `catalog-behind`: the
   * replica's view is newer. `catalog-ahead`: the catalog has newer contents.
   */
  readonly kind: 'members' | 'unnamed' | 'catalog-behind' | 'catalog-ahead';
  readonly what: string;
  /** The replica's members; absent if the catalog does not know the file. */
  readonly members?: readonly string[];
  /** `VOLUME:/path`; null if unlinked. */
  readonly path: string | null;
}

export interface CheckPage {
  readonly findings: readonly Finding[];
  readonly compared: number;
  /** `after` of the next request; null at the end. */
  readonly next: number | null;
  readonly unreachable: readonly string[];
}

/** A replica and another server have different members for the same view number. */
export interface ViewConflict {
  readonly file: number;
  /** Both member sets, as a sentence. */
  readonly what: string;
}

export interface ServerStatus {
  readonly id: string;
  readonly url: string;
  readonly reachable: boolean;
  readonly state: 'serving' | 'recovering' | 'clock-fault' | 'storage-failed' | 'unreachable';
  readonly failure?: string;
  readonly scrub?: Pick<ScrubStatus, 'unrepairable'>;
  /** Milliseconds left of the recovery wait. */
  readonly recoveringMs: number;
  /** Files in use, without the catalog, that this server is primary or backup of. */
  readonly primaries: number;
  readonly backups: number;
  /** A part of them until all were counted for the first time. */
  readonly replicas: number;
  /** Other servers that this one is connected to; absent from earlier releases, and if it does not answer. */
  readonly connected?: readonly string[];
  /** Files in use with fewer current replicas than wanted. */
  readonly underReplicated: readonly number[];
  /** By server: replicas there that this server knows to be behind; absent if none, and from earlier releases. */
  readonly behind?: Readonly<Record<string, number>>;
  /** Connected servers whose idle replicas were not compared with those here since they connected. */
  readonly uncompared?: readonly string[];
  /** Catalog members that do not follow it, as its primary sees them. */
  readonly catalogBehind?: readonly string[];
  /** Of volumes' catalogs, by number: its primary is here. Absent if none, and from earlier releases. */
  readonly primaryOfCatalogs?: readonly number[];
  /** Of volumes that move to catalogs whose primary is here: how many inodes are copied. Absent if none. */
  readonly copied?: readonly { readonly catalog: number; readonly inodes: number }[];
  /** Should hold the catalog, but has no valid replica of it. */
  readonly catalogReplica?: 'missing';
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Equal for servers on one file system, which share its space. */
  readonly disk?: string;
  /** Only the reserve is free, which takes no contents. */
  readonly diskFull?: true;
  /** Connections or descriptors that run out, as clauses to complete "Server s1 …". */
  readonly shortages?: readonly string[];
  readonly viewConflicts?: readonly ViewConflict[];
  /** Of the catalog, as its primary's last recount found them, as clauses. */
  readonly wrongCounters?: readonly string[];
  /** Volumes that lack servers with their labels or in their zones, as the catalog's primary sees it; sentences. */
  readonly placementShortages?: readonly string[];
  readonly pid: number;
  readonly version?: string;
  readonly uptimeMs: number;
  /** How far each peer's lease clock is ahead, in milliseconds; the true value is within offset ± error. */
  readonly clockOffsets: Readonly<Record<string, { readonly offsetMs: number; readonly errorMs: number }>>;
  readonly membership?: ServerState;
  /** Until this time, as ISO 8601, its replicas are not replaced; in `ClusterStatus` only. */
  readonly maintenanceUntil?: string;
  /** Labels of the server, if any; in `ClusterStatus` only. */
  readonly labels?: readonly string[];
  /** The catalog knows this server and its disk; before, it takes no replicas. */
  readonly registered?: boolean;
  readonly lag?: ReplicaLag;
  readonly moving?: Moving;
  readonly namedLeases?: {
    readonly known: number;
    readonly voters?: number;
    /** At the catalog's primary: how many are to vote on one name. */
    readonly votersWanted?: number;
    readonly recoveringMs: number;
  };
}

/** Progress of the scrubber, per server in `GET /v1/scrub`. */
export interface ScrubStatus {
  readonly state: 'running' | 'waiting';
  /** Start and end of the present or last pass, as ISO 8601; null if none. */
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly bytesPerSecond: number;
  readonly objects: number;
  readonly bytes: number;
  readonly damaged: number;
  readonly repaired: number;
  /** Damaged, without a good copy on a reachable server; the path if the catalog knows one. */
  readonly unrepairable: readonly {
    readonly file: number;
    readonly object: number;
    readonly path: string | null;
  }[];
}

export type ScrubStatuses = Readonly<Record<string, ScrubStatus | null>>;

/** The catalog of a volume that has its own. */
export interface VolumeCatalogStatus {
  readonly number: number;
  /** Of the volume. */
  readonly name: string;
  readonly state: 'creating' | 'ready' | 'removing';
  readonly members: readonly string[];
  /** Null if no server reports that it is the primary. */
  readonly primary: string | null;
  /** The volume moves to this catalog; until then it is in the root catalog. */
  readonly moving?: VolumeMoveStatus;
}

export interface VolumeMoveStatus {
  readonly phase: MovePhase;
  /** Of its inodes, as the primary reports. */
  readonly copied?: number;
}

export interface ClusterStatus {
  readonly verdict: Verdict;
  readonly reasons: readonly string[];
  readonly cluster: string;
  readonly catalog: {
    readonly primary: string | null;
    readonly epoch: number;
    readonly seq: number;
    readonly members: readonly string[];
    /** How many servers are to hold it; absent from earlier releases. */
    readonly replicasWanted?: number;
  };
  /** Of volumes with a catalog of their own; absent from earlier releases. */
  readonly catalogs?: readonly VolumeCatalogStatus[];
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly servers: readonly ServerStatus[];
  readonly underReplicated: readonly number[];
  readonly moving?: Moving;
  /** Sums of all servers: each server counts a replica that it is ahead of. */
  readonly lag: ReplicaLag;
}

export interface TreeCopy {
  readonly files: number;
  readonly directories: number;
  readonly links: number;
  readonly bytes: number;
  /** Existing files with their sources' size and time; absent from earlier releases. */
  readonly same?: number;
  /** Paths of devices, pipes and sockets, which have no contents. */
  readonly skipped: readonly string[];
  /** Directories at which other volumes are attached: their copies are empty. */
  readonly junctions?: readonly AttachedAt[];
  /** Repeat the request with `after` = `next`. */
  readonly more: boolean;
  readonly next?: string;
}
