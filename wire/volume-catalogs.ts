import type { MovedNumbers } from '../base/inode-catalogs.ts';
import {
  Catalog,
  Inode,
  Labels,
  Members,
  Nanoseconds,
  ServerName,
  ServerStates,
  ServerUrl,
  VOLUME_SETTINGS,
  VolumeName,
  VolumeSettings,
  Zone,
} from './catalog-values.ts';
import { type Static, Type } from './schema.ts';
import type { MovePhase } from './volume-moves.ts';

/** Volumes with a catalog of their own: commands of the root catalog, which lists them, and of these catalogs. */

/** Of the root's list of servers and volumes' catalogs; 0: none of them has changed since the list has versions. */
const ListVersion = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Why = Type.String({ maxLength: 1_000 });

/**
 * What volumes' catalogs know of a server, as the root lists it. `since`: the list's version of its last change.
 * `storageId` of its store; empty before it registered.
 */
export const ListedServer = Type.Object({
  id: ServerName,
  url: ServerUrl,
  zone: Zone,
  labels: Type.Optional(Labels),
  state: ServerStates,
  since: ListVersion,
  storageId: Type.String({ maxLength: 64 }),
  maintenanceNs: Type.Optional(Nanoseconds),
});
export type ListedServer = Static<typeof ListedServer>;

/** What a volume's catalog has flushed. Reports may arrive late, repeatedly and in any order. */
export const CatalogReport = Type.Union([
  Type.Object({ kind: Type.Literal('created') }),
  Type.Object({ kind: Type.Literal('closed') }),
  /** It did not close. `since`: of the row when it was to be removed. */
  Type.Object({ kind: Type.Literal('refused'), since: ListVersion, why: Why }),
  Type.Object({
    kind: Type.Literal('view'),
    view: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    members: Members,
  }),
  /** It has nothing at a draining server, and places nothing there. `since`: of the server when it was drained. */
  Type.Object({ kind: Type.Literal('none-left'), server: ServerName, since: ListVersion }),
  /** A file or snapshot is retained until then: before, the volume is not removed as lost. */
  Type.Object({ kind: Type.Literal('retained'), untilNs: Nanoseconds }),
]);
export type CatalogReport = Static<typeof CatalogReport>;

export const ROOT_COMMANDS = [
  /**
   * Lists a volume whose catalog `members` then open; `precondition-failed` unless each of them is `in`. Without
   * `members`, the primary chooses servers that are members of few catalogs.
   */
  Type.Object({
    kind: Type.Literal('catalog-create'),
    name: VolumeName,
    members: Type.Optional(Members),
    ...VOLUME_SETTINGS,
    /** Even with fewer servers than replicas. */
    force: Type.Optional(Type.Boolean()),
  }),
  Type.Object({ kind: Type.Literal('catalog-report'), number: Catalog, report: CatalogReport }),
  /**
   * The volume, which has a catalog of its own, is attached at the junction `inode` of another one. `attached` if it is
   * already, elsewhere; `precondition-failed` if it would be below itself.
   */
  Type.Object({ kind: Type.Literal('volume-attach'), name: VolumeName, inode: Inode }),
  /** Changes nothing if the volume is not attached, or not at `inode`. */
  Type.Object({
    kind: Type.Literal('volume-detach'),
    name: VolumeName,
    inode: Type.Optional(Inode),
  }),
] as const;

const Servers = Type.Array(ListedServer, { maxItems: 1_000 });

export const VOLUME_COMMANDS = [
  /** The first command of a volume's catalog: creates the volume. Changes nothing if it was executed before. */
  Type.Object({
    kind: Type.Literal('catalog-begin'),
    number: Catalog,
    name: VolumeName,
    settings: VolumeSettings,
    servers: Servers,
    /** The volume exists: all its rows are imported. */
    moved: Type.Optional(Type.Literal(true)),
  }),
  /** Closes the catalog for good if its volume is empty. `since`: of the row that is to be removed. */
  Type.Object({ kind: Type.Literal('catalog-close'), since: ListVersion }),
  /** Servers of the root's list; each counts if its `since` is larger than before. */
  Type.Object({ kind: Type.Literal('follow-servers'), servers: Servers }),
  /** Inode numbers below the limit may be given out, once it is flushed; it only rises. */
  Type.Object({
    kind: Type.Literal('extend-numbers'),
    limit: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  }),
] as const;

export type CatalogState = 'creating' | 'ready' | 'removing' | 'removed';

/** A volume's catalog in the root's list; its number is never used again. */
export interface ListedCatalog {
  readonly number: number;
  readonly name: string;
  readonly state: CatalogState;
  /** Its newest reported view. */
  readonly view: number;
  readonly members: readonly string[];
  /** The list's version at which it was made, and at which it got its present state. */
  readonly made: number;
  readonly since: number;
  /** At its creation. */
  readonly settings: VolumeSettings;
  /** The latest removal that it refused, by the `since` of that time. */
  readonly refused?: CatalogRefusal;
  /** The junction at which its volume is attached; absent if at none. */
  readonly attached?: number;
  /** Until when files or snapshots of the volume are retained, as far as reported; absent: none were. */
  readonly retainedNs?: string;
  /** Of a catalog in creation to which an existing volume moves: until it is ready, the root catalog has the volume. */
  readonly moving?: MovePhase;
}

/** Why a volume's catalog did not close. `since`: of its row when it was to be removed. */
export interface CatalogRefusal {
  readonly since: number;
  readonly why: string;
}

export interface RootCommandResults {
  readonly 'catalog-create': { readonly catalog: ListedCatalog };
  readonly 'catalog-report': Record<string, never>;
  readonly 'volume-attach': { readonly catalog: ListedCatalog };
  /** Without the row of a volume that is removed. */
  readonly 'volume-detach': { readonly catalog?: ListedCatalog };
  readonly 'volume-move': { readonly catalog: ListedCatalog };
  readonly 'volume-split': { readonly catalog: ListedCatalog };
  /** The removed catalog; absent if the volume does not move. */
  readonly 'volume-move-abort': { readonly catalog?: ListedCatalog };
}

export interface VolumeCommandResults {
  readonly 'catalog-begin': Record<string, never>;
  readonly 'catalog-close': { readonly closed: boolean; readonly refused?: CatalogRefusal };
  readonly 'follow-servers': Record<string, never>;
  readonly 'extend-numbers': { readonly limit: number };
}

/** The state of a volume's catalog. */
export interface OwnCatalogState {
  readonly number: number;
  /** Of its volume; empty before it has begun. */
  readonly name: string;
  readonly begun: boolean;
  readonly closed: boolean;
  readonly refused: CatalogRefusal | null;
  /** How far the rows of its volume are imported, if it moves from the root catalog; absent before the first ones. */
  readonly imported?: string;
  /** Of its volume; with `imported`. */
  readonly inodes?: number;
  /** `holds`: it has files, planned moves or reserved numbers there. */
  readonly servers: readonly {
    readonly id: string;
    readonly state: Static<typeof ServerStates>;
    readonly since: number;
    readonly holds: boolean;
  }[];
}

/** Whether the catalog serves, as far as the list says: a removal may be refused, so it does until it is removed. */
export function doesServe({ state }: Pick<ListedCatalog, 'state'>): boolean {
  return state === 'ready' || state === 'removing';
}

/** The root's list. Servers act only on a list that the root has flushed. */
export interface CatalogList {
  readonly version: number;
  readonly catalogs: readonly ListedCatalog[];
  /** All servers, removed ones too. */
  readonly servers: readonly ListedServer[];
  /** Numbers of volumes that have moved from the root catalog, ascending; those of a catalog stay. Absent: none. */
  readonly moved?: readonly MovedNumbers[];
}
