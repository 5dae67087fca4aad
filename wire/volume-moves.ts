import { Catalog, Members, Path, VolumeName } from './catalog-values.ts';
import { type Static, Type } from './schema.ts';

/**
 * The move of an existing volume from the root catalog to a catalog of its own: commands of the root, and the copy of
 * its rows. Inodes keep their numbers.
 */

/**
 * A move until it ends. `begun`: clients' caches of the volume end. `splitting`, of a directory that becomes a volume:
 * what is in it becomes the volume's, and its changes wait. `frozen`: changes of the volume wait, and the root records
 * which numbers are the volume's. `numbered`: the rows can be copied.
 */
export type MovePhase = 'begun' | 'splitting' | 'frozen' | 'numbered';

const CountMax = Type.Integer({ minimum: 1, maximum: 10_000 });

/** How far rows are exported: opaque, except for the start and the end. */
export const EXPORT_START = '';
export const EXPORT_END = 'end';
const ExportPosition = Type.String({ maxLength: 5_000 });

/**
 * The tables with rows of a volume, in the order of the export. `retention_clock` is the clock of the root catalog, if
 * the volume has retentions; `totals` are the volume's counters.
 */
export const EXPORTED_TABLES = [
  'volumes',
  'snapshots',
  'retained_snapshots',
  'sweeps',
  'moved_numbers',
  'reserved',
  'timed_sessions',
  'requests',
  'trash',
  'directory_classes',
  'directory_quotas',
  'junctions',
  'inodes',
  'retentions',
  'xattrs',
  'entries',
  'planned_members',
  'past_inodes',
  'past_entries',
  'past_xattrs',
  'retention_clock',
  'totals',
] as const;
export type ExportedTable = (typeof EXPORTED_TABLES)[number];

/** Values in the order of the table's columns; bytes are in base64, and times decimal texts. */
const ExportedRow = Type.Array(Type.Union([Type.String(), Type.Number(), Type.Null()]));
export type ExportedRow = Static<typeof ExportedRow>;

const ExportedRows = Type.Object({
  table: Type.Union(EXPORTED_TABLES.map((table) => Type.Literal(table))),
  rows: Type.Array(ExportedRow, { maxItems: 10_000 }),
});
export type ExportedRows = Static<typeof ExportedRows>;

export const MOVE_COMMANDS = [
  /** Lists a catalog of its own for a volume of the root catalog. Returns that of a move that has begun already. */
  Type.Object({
    kind: Type.Literal('volume-move'),
    name: VolumeName,
    /** Absent: the primary chooses them. */
    members: Type.Optional(Members),
  }),
  /**
   * Lists a catalog for a new volume `name`, which a directory of a volume of the root catalog becomes. Its inodes keep
   * their numbers; the volume is attached where the directory was. Returns that of a split that has begun already.
   */
  Type.Object({
    kind: Type.Literal('volume-split'),
    name: VolumeName,
    volume: VolumeName,
    path: Path,
    /** Absent: the primary chooses them. */
    members: Type.Optional(Members),
  }),
  /** Makes the next `countMax` inodes those of the volume that is split off; or no longer, if the split was ended. */
  Type.Object({
    kind: Type.Literal('volume-part'),
    number: Catalog,
    countMax: CountMax,
    /** The next step continues in the directory in which this one ends. Absent from servers of earlier releases. */
    resumes: Type.Optional(Type.Literal(true)),
  }),
  /** Ends a move before the volume has moved: its catalog is removed. Changes nothing without a move. */
  Type.Object({ kind: Type.Literal('volume-move-abort'), name: VolumeName }),
  /** Changes of the volume wait from now on. */
  Type.Object({ kind: Type.Literal('volume-freeze'), number: Catalog }),
  /** Records which numbers of a frozen volume move, among the next `countMax` rows. */
  Type.Object({ kind: Type.Literal('volume-number'), number: Catalog, countMax: CountMax }),
  /** Deletes at most `countMax` rows of a volume that has moved. Its files live on, so no deletion is logged. */
  Type.Object({ kind: Type.Literal('volume-forget'), number: Catalog, countMax: CountMax }),
  /** Of the volume's catalog: takes over rows, if those before `after` were the latest. */
  Type.Object({
    kind: Type.Literal('catalog-import'),
    number: Catalog,
    after: ExportPosition,
    next: ExportPosition,
    tables: Type.Array(ExportedRows, { maxItems: EXPORTED_TABLES.length }),
  }),
] as const;

export const MOVE_QUERIES = [
  /** Volumes that move, or have moved. */
  Type.Object({ kind: Type.Literal('moves') }),
  /** Rows of the volume that moves to this catalog: of the root catalog, or as that catalog has imported them. */
  Type.Object({ kind: Type.Literal('volume-export'), number: Catalog, after: ExportPosition }),
] as const;

export interface VolumeMove {
  readonly catalog: number;
  /**
   * `moved`: the root catalog still has rows of the volume, which nothing shows. `joining`: the split was ended, and
   * its inodes become those of the other volume again.
   */
  readonly phase: MovePhase | 'moved' | 'forgotten' | 'joining';
}

export interface MoveQueryResults {
  readonly moves: { readonly moves: readonly VolumeMove[] };
  readonly 'volume-export': { readonly tables: readonly ExportedRows[]; readonly next: string };
}

export interface MoveCommandResults {
  readonly 'volume-freeze': Record<string, never>;
  readonly 'volume-part': { readonly done: boolean };
  readonly 'volume-number': { readonly done: boolean };
  readonly 'volume-forget': { readonly more: boolean };
  /** How far rows are imported. */
  readonly 'catalog-import': { readonly position: string };
}
