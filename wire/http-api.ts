import type { ErrorCode, HolderDetails } from '../base/errors.ts';
import type { Attributes, ContentVersion, ServerState } from './catalog-api.ts';

/** What a client asks for, in the words of HTTP an upgrade, to have a connection for large writes (decision 0053). */
export const CONTENTS_PATH = '/v1/contents';
export const CONTENTS_PROTOCOL = 'leasehold-contents';

/** Response headers that say who answered. */
export const HEADER_PRIMARY = 'leasehold-primary';
export const HEADER_EPOCH = 'leasehold-epoch';
export const HEADER_ROLE = 'leasehold-role';
/** State of the file at the moment of a read: size in bytes, version of the contents as `epoch-seq`, and the rest of `FileState`. */
export const HEADER_SIZE = 'leasehold-size';
export const HEADER_CONTENTS = 'leasehold-contents';
export const HEADER_MODIFIED = 'leasehold-modified-ns';
export const HEADER_SEQ = 'leasehold-seq';
/** An operation of the catalog that has happened: a session of commands that begins now names it as `since`. */
export const HEADER_CATALOG_SEQ = 'leasehold-catalog-seq';
/** The newest epoch of the catalog that the server knows: a client begins another session of commands in each. */
export const HEADER_CATALOG_EPOCH = 'leasehold-catalog-epoch';
/** Who answered a read. */
export const HEADER_SERVED = 'leasehold-served';
/** For how long a stale answer may have been outdated, in milliseconds; `unknown` where that is not known. */
export const HEADER_AGE = 'leasehold-age-ms';

export type Served = 'primary' | 'local' | 'forwarded';
/** Request header between servers: this request was forwarded once and is not forwarded again. */
export const HEADER_FORWARDED = 'leasehold-forwarded';

/** Request header of clients where servers ask who they are: capabilities for the files that the request touches, with commas between. */
export const HEADER_CAPABILITY = 'leasehold-capability';
/** Files in one `POST /v1/catalog/capabilities` at the most. */
export const CAPABILITY_FILES_MAX = 100;

/** Answer of `POST /v1/catalog/capabilities`; empty where servers ask for none. */
export interface CapabilityAnswer {
  readonly capabilities: readonly { readonly file: number; readonly capability: string }[];
}

/** `application/problem+json` (RFC 9457) as every error of the HTTP face has it. */
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
}

/** Answer of `GET /v1/data/{file}/state`, and of every change of contents. */
export interface FileState {
  readonly file: number;
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly contents: ContentVersion;
  /** How many bytes within the size are holes; absent where there are none, or the server has not counted them. */
  readonly holeBytes?: number;
  /** The last operation of the file's sequence; a session that begins now names it as `since`. */
  readonly seq: number;
  readonly primary: string;
  readonly epoch: number;
  /** The contents change no more. */
  readonly sealed?: boolean;
}

/** A change that was acknowledged, by the number that its session gave it. */
export interface AcknowledgedRequest {
  readonly session: number;
  readonly number: number;
  /** What the session named as `since`. */
  readonly since: number;
}

export const UNSYNCED_REQUESTS_MAX = 16;

/** @param requests in the query of a flush; at most `UNSYNCED_REQUESTS_MAX` */
export function unsyncedText(requests: readonly AcknowledgedRequest[]): string {
  return requests.map(({ session, number, since }) => `${session}-${number}-${since}`).join(',');
}

/** Answer of a flush. */
export interface FlushResult extends FileState {
  /** One of the changes that the flush named is not in the contents: all servers have lost their power since it was acknowledged. */
  readonly lost?: boolean;
}

/** Answer of a write: the state after it, and where an append put its bytes. */
export interface WriteResult extends FileState {
  /**
   * The version of the contents just before: whoever has that one has `contents` now. Absent where the write is told once more, which
   * was carried out before.
   */
  readonly before?: ContentVersion;
  /**
   * The guard's `changedNs` was compared, and held: what took the name, or moved it, under a condition did so behind the write. Absent
   * where it was not compared. The repeated answer of a write has what was found when it was executed.
   */
  readonly sameNames?: true;
  readonly offset: number;
}

/** What a file must be in the moment in which a write takes its place in the order, else `precondition-failed`. */
export interface WriteGuard {
  readonly contents?: ContentVersion;
  readonly sizeBytes?: number;
  /**
   * When the inode was changed last, as the catalog has it: the same when the mark was set under which the write is ordered, so that
   * the file has the same names. Not compared where the primary does not know that, as where it has taken over the mark.
   */
  readonly changedNs?: string;
}

/** Files in one `POST /v1/data/settle` at the most. */
export const SETTLE_FILES_MAX = 500;

/** Answer of `POST /v1/data/settle`: the catalog has size and time of all files but these. */
export interface SettleAnswer {
  readonly failed: readonly { readonly file: number; readonly code: ErrorCode; readonly message: string }[];
}

/** What `lseek`(2) calls a place where data, or a hole, begins. */
export type Whence = 'data' | 'hole';

/** Answer of `GET /v1/data/{file}/extents`. */
export interface FileExtent extends FileState {
  /** Where what was looked for begins; null where nothing of it follows, or the search began behind the end. */
  readonly found: number | null;
}

/** Body of `POST /v1/data/{file}/copy`: which bytes of which file become those of `file` from `toOffset` on. */
export interface CopyOrder {
  readonly from: number;
  /** As this snapshot of its volume shows it. */
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
    /** `learner`: on its way to become a member; it does not vote yet. */
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable';
    readonly version: number;
    readonly reachable: boolean;
    /** Committed operations that it is not known to have. */
    readonly lagOperations: number;
    /** Bytes of them; null where they are kept no longer. */
    readonly lagBytes: number | null;
  }[];
}

/** How far the move of replicas is that goes on now, or was the last; from the catalog's primary. */
export interface Moving {
  /** Files that were to be moved since nothing was to do last, those included that are still to come. */
  readonly total: number;
  readonly done: number;
  /** Attempts that failed; they are repeated. */
  readonly failed: number;
  /** Files that are being moved now. */
  readonly current: readonly number[];
}

/** Replicas that a server found to be behind its own when it compared them last. */
export interface ReplicaLag {
  readonly files: number;
  /** Operations that they lack, as far as they can be counted. */
  readonly versions: number;
  /** Sizes of files that a server lacks wholly. */
  readonly bytes: number;
}

/** Answer of `GET /v1/servers`: what a server knows of the others without asking anybody. */
export interface ClusterServers {
  readonly cluster: string;
  readonly paramsHash: string;
  /** By option, what must be the same on all servers; absent in answers of earlier releases. */
  readonly settings?: Readonly<Record<string, string>>;
  /** With whom the cluster began. */
  readonly bootstrap: {
    readonly urls: Readonly<Record<string, string>>;
    readonly catalogMembers: readonly string[];
  };
  /** Who holds the catalog, by the newest view of it that the server has heard of. */
  readonly catalogMembers: readonly string[];
  readonly catalogView: number;
  readonly servers: readonly {
    readonly id: string;
    readonly url: string;
    readonly zone: string;
    readonly state: ServerState;
  }[];
}

export type Verdict = 'healthy' | 'degraded' | 'down';

/** A difference between a server's replica and the catalog, or another server. */
export interface Finding {
  readonly file: number;
  /** The server that has found it, and has the replica. */
  readonly server: string;
  /**
   * `members`: other members for the number of the view. `unnamed`: the catalog does not know the file. `catalog-behind`: the
   * replica goes by a newer view than the catalog names. `catalog-ahead`: the catalog knows newer contents than the replicas have.
   */
  readonly kind: 'members' | 'unnamed' | 'catalog-behind' | 'catalog-ahead';
  readonly what: string;
  /** The members that the server's replica goes by; absent where the catalog does not know the file. */
  readonly members?: readonly string[];
  /** `VOLUME:/path`; null where the file has no name. */
  readonly path: string | null;
}

/** Answer of `GET /v1/check`: of the files of one page, what all servers have found. */
export interface CheckPage {
  readonly findings: readonly Finding[];
  /** Replicas that were compared. */
  readonly compared: number;
  /** What the next request names with `after`; null where no files follow. */
  readonly next: number | null;
  /** Servers that have not answered. */
  readonly unreachable: readonly string[];
}

/** A file with a replica at a server, and other members for the same number of its view elsewhere. */
export interface ViewConflict {
  readonly file: number;
  /** The members here and elsewhere, as a sentence. */
  readonly what: string;
}

export interface ServerStatus {
  readonly id: string;
  readonly url: string;
  readonly reachable: boolean;
  readonly state: 'serving' | 'recovering' | 'clock-fault' | 'storage-failed' | 'unreachable';
  /** Why its disk is not used any more: `storage-failed` only. */
  readonly failure?: string;
  /** Damaged objects that it could not repair; absent where there are none. */
  readonly scrub?: Pick<ScrubStatus, 'unrepairable'>;
  /** Left of the silence after a restart, in milliseconds. */
  readonly recoveringMs: number;
  /** Files (the catalog's cell not counted) this server is primary of, and backup of, among those in use. */
  readonly primaries: number;
  readonly backups: number;
  /** Replicas on this server's disk. */
  readonly replicas: number;
  /** Paths or ids of files in use of which fewer replicas are current than there should be. */
  readonly underReplicated: readonly number[];
  /** Servers that hold the catalog and do not follow it, as its primary sees them; absent elsewhere, and where there are none. */
  readonly catalogBehind?: readonly string[];
  /** It is to hold the catalog, and has no replica of it that counts; absent where it has one, or need not. */
  readonly catalogReplica?: 'missing';
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** The same for servers that store on one file system, whose room is there once; absent where the server does not say. */
  readonly disk?: string;
  /** What is free is the reserve, which takes no contents; absent where there is more. */
  readonly diskFull?: true;
  /** What runs out of connections and descriptors, as clauses that complete "Server s1 …"; absent where nothing does. */
  readonly shortages?: readonly string[];
  /** Files of which this server has found two member sets for one view; absent where there are none. */
  readonly viewConflicts?: readonly ViewConflict[];
  readonly pid: number;
  /** Of the program; absent where the server does not say. */
  readonly version?: string;
  readonly uptimeMs: number;
  /** How far each peer's lease clock is ahead of this server's; the truth lies within offset ± error, in milliseconds. */
  readonly clockOffsets: Readonly<Record<string, { readonly offsetMs: number; readonly errorMs: number }>>;
  /** Absent where the server does not say. */
  readonly membership?: ServerState;
  /** The catalog knows this server and which disk it has; before, it takes no replicas. */
  readonly registered?: boolean;
  readonly lag?: ReplicaLag;
  /** Of the catalog's primary only. */
  readonly moving?: Moving;
  /** Leases under names; absent where the server does not answer. */
  readonly namedLeases?: {
    /** How many this server knows to be held. */
    readonly known: number;
    /** How many servers decide about one of them; absent where the server does not say. */
    readonly voters?: number;
    /** Left of the silence after a restart, in milliseconds. */
    readonly recoveringMs: number;
  };
}

/** How far a server is with reading all objects on its disk, as `GET /v1/scrub` tells for each server. */
export interface ScrubStatus {
  readonly state: 'running' | 'waiting';
  /** Begin and end of the pass under way, or of the last one, as ISO 8601; null where there is none. */
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly bytesPerSecond: number;
  /** Read so far in this pass. */
  readonly objects: number;
  readonly bytes: number;
  /** Found damaged, and repaired from another server. */
  readonly damaged: number;
  readonly repaired: number;
  /** Damaged, and whole on no server that could be reached; the path where the catalog knows one. */
  readonly unrepairable: readonly {
    readonly file: number;
    readonly object: number;
    readonly path: string | null;
  }[];
}

/** Answer of `GET` and `POST /v1/scrub`, by server; null for one that does not answer. */
export type ScrubStatuses = Readonly<Record<string, ScrubStatus | null>>;

/** Answer of `GET /v1/status`, put together by the server that was asked. */
export interface ClusterStatus {
  readonly verdict: Verdict;
  /** One sentence per thing that is wrong; empty when healthy. */
  readonly reasons: readonly string[];
  readonly cluster: string;
  readonly catalog: {
    readonly primary: string | null;
    readonly epoch: number;
    readonly seq: number;
    readonly members: readonly string[];
  };
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly servers: readonly ServerStatus[];
  readonly underReplicated: readonly number[];
  /** Absent where the catalog's primary does not answer. */
  readonly moving?: Moving;
  /** Of all servers together: a replica that is behind is counted by each server that is ahead of it. */
  readonly lag: ReplicaLag;
}

/** What one request has copied of a directory. */
export interface TreeCopy {
  readonly files: number;
  readonly directories: number;
  readonly links: number;
  readonly bytes: number;
  /** Files that were there with the size and time of their sources; absent from servers of before. */
  readonly same?: number;
  /** Paths of devices, pipes and sockets, which have no contents. */
  readonly skipped: readonly string[];
  /** There is more: the same request with `after` of `next` goes on. */
  readonly more: boolean;
  readonly next?: string;
}
