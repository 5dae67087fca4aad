import type { Role } from './access.ts';
import type { ServerState } from './catalog-api.ts';
import type { ServerStatus } from './http-api.ts';

/** What can be told in one sentence. A reader that does not know a kind shows the sentence all the same. */
export const HAPPENING_KINDS = [
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
  'certificate-ends',
  'draining',
  'drained',
  'more',
] as const;

export type HappeningKind = (typeof HAPPENING_KINDS)[number];

/** One thing that happened, as the server tells it to whom it happened, or who noticed it. */
export interface Happening {
  /** `server.life.number`: the same wherever it is told, and never given twice. */
  readonly id: string;
  /** Wall clock of `server`, in milliseconds since 1970. */
  readonly atMs: number;
  /** Who tells. */
  readonly server: string;
  readonly kind: HappeningKind;
  /** `good`: something is right again; `bad`: something is worse than it should be. */
  readonly mood: 'good' | 'neutral' | 'bad';
  /** One sentence: what happened, and why nothing is lost by it. `{file}` stands for the file's name. */
  readonly text: string;
  /** Whom it is about, where that is another server. */
  readonly about?: string;
  readonly file?: number;
  /** `VOLUME:/path`, or `the names of all files`, where that is known. */
  readonly path?: string;
  readonly epoch?: number;
}

/** One file as one server sees it, without asking anybody. */
export interface LiveStanding {
  readonly file: number;
  readonly role: 'primary' | 'backup' | 'none';
  readonly epoch: number;
  /** The last operation that this server's replica has. */
  readonly version: number;
  readonly members: readonly string[];
  readonly lease: { readonly holder: string | null; readonly remainingMs: number };
  /** At the primary: the others as it knows them. */
  readonly replicas: readonly {
    readonly server: string;
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable';
    readonly version: number;
    readonly lagOperations: number;
  }[];
}

/** How a server is, whoever tells it. */
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

/** Answer of `GET /v1/events/self`: how the server that is asked is, and what happened to it after number `after`. */
export interface LivePart extends ServerVitals {
  readonly server: string;
  readonly life: string;
  readonly state: Exclude<ServerStatus['state'], 'unreachable'>;
  readonly clockOffsets: ServerStatus['clockOffsets'];
  /** Since the start: changes of contents acknowledged by this server as a primary, and reads answered from its own disk. */
  readonly writes: number;
  readonly reads: number;
  /** Since the last such change, in milliseconds; null before the first. */
  readonly sinceWriteMs: number | null;
  /** Of the files that were asked for, those that this server has ever heard of. */
  readonly files: readonly LiveStanding[];
  readonly happenings: readonly Happening[];
  /** Number of the last one. */
  readonly last: number;
}

/** One server in a `state` event. */
export interface LiveServer extends ServerVitals {
  readonly id: string;
  readonly url: string;
  readonly state: ServerStatus['state'];
  /** How far its clock is ahead of that of the server that tells, and how far that may be wrong; null where it is not known. */
  readonly clock: { readonly offsetMs: number; readonly errorMs: number } | null;
  /** In the moment before, per second. */
  readonly writesPerS: number;
  readonly readsPerS: number;
}

/** The file that is watched, put together from what its servers say. */
export interface LiveFile {
  readonly path: string;
  /** Null where there is no file of that name, or the names cannot be asked at the moment. */
  readonly file: number | null;
  /** Who serves as the primary at this moment; null between two primaries, and where nobody uses the file. */
  readonly primary: string | null;
  readonly epoch: number;
  /** The longest lease that any server believes in. */
  readonly lease: { readonly holder: string | null; readonly remainingMs: number };
  readonly replicas: readonly {
    readonly server: string;
    readonly role: 'primary' | 'backup' | 'learner';
    readonly state: 'current' | 'catching-up' | 'unreachable' | 'at-rest';
    readonly version: number | null;
    /** Operations that it lacks; null where that is not known. */
    readonly lagOperations: number | null;
  }[];
}

/** What is kept of a volume beside its files. Of each list a text that is another whenever the list is. */
export interface LiveKept {
  readonly volume: string;
  readonly trash: string;
  readonly snapshots: string;
}

/** `state`, several times a second. */
export interface LiveState {
  readonly atMs: number;
  readonly servers: readonly LiveServer[];
  /** Since any server acknowledged a change of contents, in milliseconds; null before the first. */
  readonly sinceWriteMs: number | null;
  readonly file: LiveFile | null;
  /** Of the volume that was asked for; absent where none was, or its lists are not known. */
  readonly kept?: LiveKept;
}

/** `resync`, at the beginning, and where what was missed is not kept: what was known before is to be thrown away. */
export interface LiveResync {
  readonly server: string;
  readonly cluster: string;
  readonly version: string;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly happenings: readonly Happening[];
  /** Where the process that started the servers takes orders, and by which word; absent but in `leasehold dev` and `demo`. */
  readonly control?: { readonly url: string; readonly key: string };
}

/** Who watches: the first event of each stream, `you`. */
export interface LiveViewer {
  /** Name of the token or certificate; null where nobody is asked who he is. */
  readonly name: string | null;
  readonly role: Role;
}
