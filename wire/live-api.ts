import type { Role } from './access.ts';
import type { ServerState } from './catalog-api.ts';
import type { Moving, ServerStatus } from './http-api.ts';

/** Kinds of events. A reader that does not know a kind still shows its sentence. */
export const SERVER_EVENT_KINDS = [
  'started',
  'takes-part',
  'primary-elected',
  'primary-ended',
  'fenced',
  'refused-old',
  'behind',
  'caught-up',
  'silent',
  'back',
  'no-majority',
  'majority',
  'stood-still',
  'clock-fault',
  'disk-full',
  'disk-has-room',
  'view-conflict',
  'late-error',
  'shortage',
  'shortage-ends',
  'disk-failed',
  'repaired',
  'catalog-damaged',
  'counters-wrong',
  'volume-moves',
  'volume-moved',
  'certificate-ends',
  'draining',
  'drained',
  'more',
] as const;

export type ServerEventKind = (typeof SERVER_EVENT_KINDS)[number];

/** An event, reported by the server that it concerns, or that noticed it. */
export interface ServerEvent {
  /** Server, its incarnation (`life`) and a number, joined by periods: the same in every report, never reused. */
  readonly id: string;
  /** The server's wall clock, in milliseconds since 1970. */
  readonly atMs: number;
  readonly server: string;
  readonly kind: ServerEventKind;
  /** `good`: something recovered; `bad`: something is worse than it should be. */
  readonly mood: 'good' | 'neutral' | 'bad';
  /** One sentence: what happened, and why no data is lost. `{file}` stands for the file's name. */
  readonly text: string;
  readonly about?: string;
  readonly file?: number;
  readonly path?: string;
  readonly epoch?: number;
}

export interface LiveReplica {
  readonly file: number;
  readonly role: 'primary' | 'backup' | 'none';
  readonly epoch: number;
  readonly version: number;
  readonly members: readonly string[];
  readonly lease: { readonly holder: string | null; readonly remainingMs: number };
  readonly replicas: readonly {
    readonly server: string;
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable';
    readonly version: number;
    readonly lagOperations: number;
  }[];
}

interface ServerVitals {
  readonly recoveringMs: number;
  readonly membership: ServerState;
  readonly uptimeMs: number;
  readonly primaries: number;
  readonly backups: number;
  readonly freeBytes: number;
  readonly totalBytes: number;
  readonly diskFull: boolean;
}

/** Answer of `GET /v1/events/self`: the server's state, and its events after number `after`. */
export interface LivePart extends ServerVitals {
  readonly server: string;
  /** Incarnation of the server. */
  readonly life: string;
  readonly state: Exclude<ServerStatus['state'], 'unreachable'>;
  readonly clockOffsets: ServerStatus['clockOffsets'];
  /** Since the start: acknowledged changes of contents as primary, and reads answered from the local disk. */
  readonly writes: number;
  readonly reads: number;
  /** Milliseconds since the last such change; null before the first. */
  readonly sinceWriteMs: number | null;
  /** The requested files that this server knows. */
  readonly files: readonly LiveReplica[];
  readonly happenings: readonly ServerEvent[];
  readonly last: number;
  /** At the catalog's primary, while files move. */
  readonly moving?: Moving;
}

export interface LiveServer extends ServerVitals {
  readonly id: string;
  readonly url: string;
  readonly state: ServerStatus['state'];
  /** When its maintenance ends, by the wall clock; absent if it is in none. */
  readonly maintenanceUntilMs?: number;
  /** Absent if it has none. */
  readonly labels?: readonly string[];
  /** How far its clock is ahead of the reporting server's, and the error; null if unknown. */
  readonly clock: { readonly offsetMs: number; readonly errorMs: number } | null;
  readonly writesPerS: number;
  readonly readsPerS: number;
}

/** The watched file, combined from its servers' reports. */
export interface LiveFile {
  readonly path: string;
  readonly file: number | null;
  /** The present primary; null between two primaries, or if the file is unused. */
  readonly primary: string | null;
  readonly epoch: number;
  /** The longest lease that any server knows. */
  readonly lease: { readonly holder: string | null; readonly remainingMs: number };
  readonly replicas: readonly {
    readonly server: string;
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable' | 'at-rest';
    readonly version: number | null;
    readonly lagOperations: number | null;
  }[];
}

/** A volume's trash and snapshots: texts that change whenever the lists do. */
export interface LiveVolumeLists {
  readonly volume: string;
  readonly trash: string;
  readonly snapshots: string;
}

/** `state`, several times a second. */
export interface LiveState {
  readonly atMs: number;
  readonly servers: readonly LiveServer[];
  /** Milliseconds since any server acknowledged a change of contents; null before the first. */
  readonly sinceWriteMs: number | null;
  readonly file: LiveFile | null;
  /** Absent if no files move. */
  readonly moving?: Moving;
  /** For the requested volume; absent if none, or its lists are unknown. */
  readonly kept?: LiveVolumeLists;
}

/** `resync`, at the start and after missed events: discard all earlier state. */
export interface LiveResync {
  readonly server: string;
  readonly cluster: string;
  readonly version: string;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly happenings: readonly ServerEvent[];
  /** Control URL and key of the process that started the servers; only in `leasehold dev` and `demo`. */
  readonly control?: { readonly url: string; readonly key: string };
}

/** The viewer: the first event of each stream, `you`. */
export interface LiveViewer {
  /** Name of the token or certificate; null without access control. */
  readonly name: string | null;
  readonly role: Role;
}
