import type Database from 'better-sqlite3';
import { ServiceError } from '../base/errors.ts';
import { type CatalogNumber, inodesOf, ROOT_CATALOG, ROOT_NUMBERS_END } from '../base/ids.ts';

/** The catalog's database handle; its owner opens and ends transactions. */
export type CatalogDatabase = Database.Database;

/** Version of the tables, stored as `user_version`. */
export const SCHEMA_VERSION = 16;

/** Kinds of inodes in the tables. A number is never reused. */
export const KIND_FILE = 1;
export const KIND_DIRECTORY = 2;
export const KIND_SYMLINK = 3;

/** Policies by their number in the tables. A number is never reused. */
export const POLICIES = ['quorum', 'all', 'read-only'] as const;

/**
 * All tables are STRICT, so that a value of another type is an error and no difference between replicas. Times are
 * 64-bit integers in nanoseconds, passed as decimal text, because a JavaScript number would round them.
 * `entries.name` sorts bytewise (BINARY over UTF-8), the order in which listings page.
 */
const TABLES = `
  CREATE TABLE counters (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    next_inode     INTEGER NOT NULL,
    next_volume    INTEGER NOT NULL,
    -- rows in sessions
    sessions       INTEGER NOT NULL,
    -- the latest last use of any forgotten session
    forgotten_seq  INTEGER NOT NULL
  ) STRICT;
  INSERT INTO counters VALUES (1, 1, 1, 0, 0);

  CREATE TABLE volumes (
    id            INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    root          INTEGER NOT NULL,
    replicas      INTEGER NOT NULL,
    object_bytes  INTEGER NOT NULL,
    inodes        INTEGER NOT NULL,
    used_bytes    INTEGER NOT NULL,
    -- of new files: index in POLICIES
    policy        INTEGER NOT NULL DEFAULT 0
  ) STRICT;

  CREATE TABLE inodes (
    id              INTEGER PRIMARY KEY,
    volume          INTEGER NOT NULL,
    kind            INTEGER NOT NULL,
    mode            INTEGER NOT NULL,
    uid             INTEGER NOT NULL,
    gid             INTEGER NOT NULL,
    links           INTEGER NOT NULL,
    size            INTEGER NOT NULL,
    accessed_ns     INTEGER NOT NULL,
    modified_ns     INTEGER NOT NULL,
    changed_ns      INTEGER NOT NULL,
    -- of a symbolic link
    target          TEXT NOT NULL,
    device          INTEGER NOT NULL,
    -- of a file: ids of servers, separated by commas
    replicas        TEXT NOT NULL,
    view            INTEGER NOT NULL,
    object_bytes    INTEGER NOT NULL,
    -- the settled contents, which size belongs to
    contents_epoch  INTEGER NOT NULL,
    contents_seq    INTEGER NOT NULL,
    -- the contents that modified_ns belongs to: it stays until newer ones are settled
    modified_epoch  INTEGER NOT NULL,
    modified_seq    INTEGER NOT NULL,
    live            INTEGER NOT NULL,
    -- the latest live mark of a primary: reports with an earlier mark are void
    mark_epoch      INTEGER NOT NULL,
    mark_turn       INTEGER NOT NULL,
    -- of a directory: its parent (a root is its own parent); else 0
    parent          INTEGER NOT NULL,
    -- of an unlinked file: the time from which its age counts; a later one keeps it longer
    orphaned_ns     INTEGER,
    -- of a file: the wanted number of replicas; 0: its volume's
    wanted          INTEGER NOT NULL DEFAULT 0,
    -- of a file: index in POLICIES
    policy          INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE INDEX orphans ON inodes (orphaned_ns, id) WHERE orphaned_ns IS NOT NULL;

  CREATE TABLE entries (
    parent  INTEGER NOT NULL,
    name    TEXT NOT NULL COLLATE BINARY,
    inode   INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE xattrs (
    inode  INTEGER NOT NULL,
    name   TEXT NOT NULL COLLATE BINARY,
    value  BLOB NOT NULL,
    PRIMARY KEY (inode, name)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE sessions (
    id        INTEGER PRIMARY KEY,
    used_seq  INTEGER NOT NULL,
    -- the largest request number executed
    highest   INTEGER NOT NULL
  ) STRICT;

  CREATE TABLE requests (
    session  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    outcome  TEXT NOT NULL,
    PRIMARY KEY (session, number)
  ) STRICT, WITHOUT ROWID;
`;

const SERVER_TABLES = `
  CREATE TABLE servers (
    id             TEXT PRIMARY KEY COLLATE BINARY,
    url            TEXT NOT NULL,
    zone           TEXT NOT NULL,
    -- in, draining or out
    state          TEXT NOT NULL,
    -- empty before the server first registered
    storage_id     TEXT NOT NULL,
    -- the next inode number when this store replaced another, or 1
    born_at        INTEGER NOT NULL,
    free_bytes     INTEGER NOT NULL,
    total_bytes    INTEGER NOT NULL,
    registered_ns  INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- stores that were replaced: they lack what was acknowledged since
  CREATE TABLE replaced_stores (
    storage_id  TEXT PRIMARY KEY COLLATE BINARY
  ) STRICT, WITHOUT ROWID;

  -- the files with a replica on a server: inodes.replicas by server
  CREATE TABLE placements (
    server  TEXT NOT NULL COLLATE BINARY,
    inode   INTEGER NOT NULL,
    PRIMARY KEY (server, inode)
  ) STRICT, WITHOUT ROWID;
`;

const QUOTAS = `
  -- 0 for none
  ALTER TABLE volumes ADD COLUMN quota_bytes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volumes ADD COLUMN quota_inodes INTEGER NOT NULL DEFAULT 0;
  -- linked and trashed inodes, with the growth allowed to files being written
  ALTER TABLE volumes ADD COLUMN named_inodes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volumes ADD COLUMN named_bytes INTEGER NOT NULL DEFAULT 0;
  -- of a file: the size that it may grow to; null if its volume had no quota at the last request
  ALTER TABLE inodes ADD COLUMN allowed INTEGER;
  UPDATE volumes SET
    named_inodes = (SELECT COUNT(*) FROM inodes i WHERE i.volume = volumes.id AND i.orphaned_ns IS NULL),
    named_bytes = (SELECT COALESCE(SUM(i.size), 0) FROM inodes i
      WHERE i.volume = volumes.id AND i.orphaned_ns IS NULL AND i.kind = ${KIND_FILE});
`;

const RESERVATIONS = `
  -- unused inode numbers that only their owner may use; a used number splits its range
  CREATE TABLE reserved (
    first  INTEGER PRIMARY KEY,
    last   INTEGER NOT NULL,
    owner  INTEGER NOT NULL,
    at_ns  INTEGER NOT NULL
  ) STRICT;
`;

const TRASH = `
  -- milliseconds that unlinked files are kept; 0: not at all
  ALTER TABLE volumes ADD COLUMN trash_ms INTEGER NOT NULL DEFAULT 0;
  -- the part of named_inodes and named_bytes that is in the trash
  ALTER TABLE volumes ADD COLUMN trashed_inodes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volumes ADD COLUMN trashed_bytes INTEGER NOT NULL DEFAULT 0;
  -- unlinked files that are kept until inodes.orphaned_ns
  CREATE TABLE trash (
    inode       INTEGER PRIMARY KEY,
    volume      INTEGER NOT NULL,
    -- the last path, from the volume's root
    path        TEXT NOT NULL COLLATE BINARY,
    removed_ns  INTEGER NOT NULL,
    -- empty if unknown
    removed_by  TEXT NOT NULL
  ) STRICT;
  CREATE INDEX trash_paths ON trash (volume, path, inode);
`;

/**
 * Snapshots (decision 0043), added in version 4. `serial` numbers a volume's snapshots. Those from `since` on see a
 * row; those from `since` to `until` see a row of a past table. Servers and marks of live rows are in no snapshot.
 */
const SNAPSHOTS = `
  -- the latest snapshot ever, and the latest existing one; 0: none
  ALTER TABLE volumes ADD COLUMN serial INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volumes ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE inodes ADD COLUMN since INTEGER NOT NULL DEFAULT 1;
  -- of a file: the inode that will preserve its contents, or 0
  ALTER TABLE inodes ADD COLUMN preserving INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX preserving ON inodes (id) WHERE preserving > 0;
  ALTER TABLE entries ADD COLUMN since INTEGER NOT NULL DEFAULT 1;
  ALTER TABLE xattrs ADD COLUMN since INTEGER NOT NULL DEFAULT 1;

  -- a snapshot waits until its volume has none
  CREATE INDEX live_files ON inodes (volume, id) WHERE live = 1 AND orphaned_ns IS NULL;

  CREATE TABLE snapshots (
    volume   INTEGER NOT NULL,
    serial   INTEGER NOT NULL,
    name     TEXT NOT NULL COLLATE BINARY,
    made_ns  INTEGER NOT NULL,
    PRIMARY KEY (volume, serial)
  ) STRICT, WITHOUT ROWID;
  CREATE UNIQUE INDEX snapshot_names ON snapshots (volume, name);

  -- removed snapshots whose rows are not all deleted yet
  CREATE TABLE sweeps (
    volume  INTEGER NOT NULL,
    serial  INTEGER NOT NULL,
    PRIMARY KEY (volume, serial)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE past_inodes (
    id              INTEGER NOT NULL,
    until           INTEGER NOT NULL,
    since           INTEGER NOT NULL,
    volume          INTEGER NOT NULL,
    kind            INTEGER NOT NULL,
    mode            INTEGER NOT NULL,
    uid             INTEGER NOT NULL,
    gid             INTEGER NOT NULL,
    links           INTEGER NOT NULL,
    size            INTEGER NOT NULL,
    accessed_ns     INTEGER NOT NULL,
    modified_ns     INTEGER NOT NULL,
    changed_ns      INTEGER NOT NULL,
    target          TEXT NOT NULL,
    device          INTEGER NOT NULL,
    object_bytes    INTEGER NOT NULL,
    contents_epoch  INTEGER NOT NULL,
    contents_seq    INTEGER NOT NULL,
    modified_epoch  INTEGER NOT NULL,
    modified_seq    INTEGER NOT NULL,
    parent          INTEGER NOT NULL,
    policy          INTEGER NOT NULL,
    -- of a file: the inode that has its contents; 0: the file itself still; -1: they are lost
    source          INTEGER NOT NULL,
    PRIMARY KEY (id, until)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX past_inodes_until ON past_inodes (volume, until, since);
  CREATE INDEX past_inodes_source ON past_inodes (source) WHERE source > 0;

  CREATE TABLE past_entries (
    parent  INTEGER NOT NULL,
    name    TEXT NOT NULL COLLATE BINARY,
    until   INTEGER NOT NULL,
    since   INTEGER NOT NULL,
    volume  INTEGER NOT NULL,
    inode   INTEGER NOT NULL,
    PRIMARY KEY (parent, name, until)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX past_entries_until ON past_entries (volume, until, since);

  CREATE TABLE past_xattrs (
    inode   INTEGER NOT NULL,
    name    TEXT NOT NULL COLLATE BINARY,
    until   INTEGER NOT NULL,
    since   INTEGER NOT NULL,
    volume  INTEGER NOT NULL,
    value   BLOB NOT NULL,
    PRIMARY KEY (inode, name, until)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX past_xattrs_until ON past_xattrs (volume, until, since);
`;

const RESERVED_MEMBERS = `
  -- ids of servers, separated by commas: members of the first view of files with these numbers; empty if an earlier
  -- release reserved them, which chose members when such a file was created
  ALTER TABLE reserved ADD COLUMN members TEXT NOT NULL DEFAULT '';
`;

const TIMED_SESSIONS = `
  -- sessions whose start is unknown: kept for a time. Those in sessions are kept until there are too many
  CREATE TABLE timed_sessions (
    id       INTEGER PRIMARY KEY,
    -- by the clock of the catalog, in milliseconds
    used_ms  INTEGER NOT NULL,
    -- the largest request number executed
    highest  INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX timed_sessions_used ON timed_sessions (used_ms, id);
  -- rows in timed_sessions
  ALTER TABLE counters ADD COLUMN timed_sessions INTEGER NOT NULL DEFAULT 0;
  -- 1 from the first batch on that distinguishes the two kinds of sessions
  ALTER TABLE counters ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;
`;

/** Files that may still grow; the catalog's primary has them settled if nothing changes (decision 0039). */
const RESERVING_FILES = `
  CREATE INDEX reserving_files ON inodes (id) WHERE live = 1 AND allowed > size;
`;

const VOTERS = `
  -- the voters of named leases; no row before the first change
  CREATE TABLE voters (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    number  INTEGER NOT NULL,
    -- as JSON
    view    TEXT NOT NULL
  ) STRICT;
`;

const PLANS = `
  -- servers that a planned change makes members of files, and the file's view at that time
  CREATE TABLE planned_members (
    server  TEXT NOT NULL COLLATE BINARY,
    inode   INTEGER NOT NULL,
    view    INTEGER NOT NULL,
    -- the plan's mark: epoch of the file's primary, and number of the plan in it
    epoch   INTEGER NOT NULL,
    turn    INTEGER NOT NULL,
    PRIMARY KEY (server, inode)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX planned_files ON planned_members (inode, server);
  -- 1 from the first plan on: all members of the catalog know plans
  ALTER TABLE counters ADD COLUMN planned INTEGER NOT NULL DEFAULT 0;
`;

const HOLES = `
  -- of a file: bytes of its size that are holes; 0 if none are known
  ALTER TABLE inodes ADD COLUMN holes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE past_inodes ADD COLUMN holes INTEGER NOT NULL DEFAULT 0;
`;

const CREATIONS = `
  -- creation time; null if created before all members of the catalog stored it
  ALTER TABLE inodes ADD COLUMN created_ns INTEGER;
  ALTER TABLE past_inodes ADD COLUMN created_ns INTEGER;
  -- 1 from the first batch on with creation times
  ALTER TABLE counters ADD COLUMN dated INTEGER NOT NULL DEFAULT 0;
`;

const FLAGS = `
  -- bits of FLAGS in flags.ts that protect it from changes; 0: none
  ALTER TABLE inodes ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE past_inodes ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;
  -- 1 from the first batch on with flags: all members of the catalog obey them
  ALTER TABLE counters ADD COLUMN flagged INTEGER NOT NULL DEFAULT 0;
`;

const REPLICA_COUNTS = `
  -- the number of a server's rows in placements; no row if it has none
  CREATE TABLE placement_counts (
    server  TEXT PRIMARY KEY COLLATE BINARY,
    files   INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO placement_counts SELECT server, COUNT(*) FROM placements GROUP BY server;
  -- the number of files with the same servers, in the same order; no row for none
  CREATE TABLE member_sets (
    members  TEXT PRIMARY KEY COLLATE BINARY,
    files    INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO member_sets SELECT replicas, COUNT(*) FROM inodes WHERE kind = ${KIND_FILE} AND replicas <> '' GROUP BY replicas;
  -- of a file: the number of servers in replicas
  ALTER TABLE inodes ADD COLUMN members INTEGER
    GENERATED ALWAYS AS (LENGTH(replicas) - LENGTH(REPLACE(replicas, ',', '')) + 1) VIRTUAL;
  -- finds files with too few or too many replicas without visiting the others
  CREATE INDEX file_members ON inodes (volume, members, wanted) WHERE kind = ${KIND_FILE} AND replicas <> '';
`;

const CLUSTER = `
  CREATE TABLE settings (
    id                INTEGER PRIMARY KEY CHECK (id = 1),
    -- wanted number of the catalog's members; 0: by the number of servers
    catalog_replicas  INTEGER NOT NULL
  ) STRICT;
  INSERT INTO settings VALUES (1, 0);
  -- until this time the server's replicas are not replaced; null: no maintenance
  ALTER TABLE servers ADD COLUMN maintenance_ns INTEGER;
`;

/** Replicas that servers may no longer need: see `DeletionLog`. */
const DELETIONS = `
  CREATE TABLE deletion_logs (
    server       TEXT PRIMARY KEY COLLATE BINARY,
    -- of the latest row, and of the latest one that is gone
    last_seq     INTEGER NOT NULL,
    trimmed_seq  INTEGER NOT NULL,
    -- rows kept at most; 0 while the server is out
    rows_max     INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE deletions (
    server  TEXT NOT NULL COLLATE BINARY,
    seq     INTEGER NOT NULL,
    inode   INTEGER NOT NULL,
    PRIMARY KEY (server, seq)
  ) STRICT, WITHOUT ROWID;
  -- 1 from the first batch on that writes the log
  ALTER TABLE counters ADD COLUMN logged INTEGER NOT NULL DEFAULT 0;
`;

/** Volumes with a catalog of their own. */
const CATALOGS = `
  -- of the root catalog: the catalogs of volumes; rows stay
  CREATE TABLE volume_catalogs (
    number         INTEGER PRIMARY KEY,
    name           TEXT NOT NULL COLLATE BINARY,
    -- creating, ready, removing or removed
    state          TEXT NOT NULL,
    -- the newest reported view, and its members: ids of servers, separated by commas
    view           INTEGER NOT NULL,
    members        TEXT NOT NULL,
    -- version of the list at which the row was made, and at which it got its state
    made           INTEGER NOT NULL,
    since          INTEGER NOT NULL,
    -- of the volume at its creation, as JSON
    settings       TEXT NOT NULL,
    -- the latest removal that was refused: its since, or 0, and the reason
    refused_since  INTEGER NOT NULL,
    refused_why    TEXT NOT NULL
  ) STRICT;
  -- which catalog this is
  CREATE TABLE own_catalog (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    -- 0: the root catalog; the other columns are of volumes' catalogs
    number         INTEGER NOT NULL,
    -- of its volume; empty before it has begun
    name           TEXT NOT NULL,
    begun          INTEGER NOT NULL,
    closed         INTEGER NOT NULL,
    -- the latest removal that it refused: since of its row, or 0, and the reason
    refused_since  INTEGER NOT NULL,
    refused_why    TEXT NOT NULL
  ) STRICT;
  INSERT INTO own_catalog VALUES (1, ${ROOT_CATALOG}, '', 0, 0, 0, '');
  -- inode numbers below it may be given out
  ALTER TABLE counters ADD COLUMN number_limit INTEGER NOT NULL DEFAULT ${ROOT_NUMBERS_END};
  -- of a volume's catalog: the epoch in which it gave out numbers last
  ALTER TABLE counters ADD COLUMN numbers_epoch INTEGER NOT NULL DEFAULT 0;

  CREATE UNIQUE INDEX volume_catalog_names ON volume_catalogs (name) WHERE state <> 'removed';

  -- catalogs of volumes that have nothing at a draining server, and place nothing there
  CREATE TABLE left_catalogs (
    server   TEXT NOT NULL COLLATE BINARY,
    catalog  INTEGER NOT NULL,
    PRIMARY KEY (server, catalog)
  ) STRICT, WITHOUT ROWID;

  -- version of the list at the server's last change that is listed
  ALTER TABLE servers ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
  -- version of the list when storage_id was stored
  ALTER TABLE servers ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
  -- version of the list of servers and volumes' catalogs
  ALTER TABLE counters ADD COLUMN catalogs_version INTEGER NOT NULL DEFAULT 0;
  -- the version of commands whose rules are applied, from version 12 on
  ALTER TABLE counters ADD COLUMN rules INTEGER NOT NULL DEFAULT 0;
`;

/** Which servers may hold files: with all labels, in any of the zones. Lists are separated by commas. */
const PLACEMENT_CLASSES = `
  ALTER TABLE servers ADD COLUMN labels TEXT NOT NULL DEFAULT '';
  ALTER TABLE volumes ADD COLUMN labels TEXT NOT NULL DEFAULT '';
  ALTER TABLE volumes ADD COLUMN zones TEXT NOT NULL DEFAULT '';
  -- of directories: these labels and zones are instead of the volume's
  CREATE TABLE directory_classes (
    directory  INTEGER PRIMARY KEY,
    volume     INTEGER NOT NULL,
    labels     TEXT NOT NULL,
    zones      TEXT NOT NULL,
    -- 0: as many as the volume
    replicas   INTEGER NOT NULL
  ) STRICT;
  -- the directory whose class the inode has, if it has one still; 0: its volume's
  ALTER TABLE inodes ADD COLUMN placement INTEGER NOT NULL DEFAULT 0;
  -- finds files with too few or too many replicas, or on other servers than allowed, without visiting the others
  DROP INDEX file_members;
  CREATE INDEX file_sets ON inodes (volume, placement, members, wanted, replicas) WHERE kind = ${KIND_FILE} AND replicas <> '';
`;

/** Volumes that are attached in others. */
const JUNCTIONS = `
  -- directories at which volumes with a catalog of their own may be attached: the root catalog lists whether they are
  CREATE TABLE junctions (
    inode    INTEGER PRIMARY KEY,
    catalog  INTEGER NOT NULL,
    -- of that catalog
    volume   TEXT NOT NULL,
    -- 1 once a second request to create it has returned it
    shared   INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  -- of the root catalog: the junction at which the volume is attached, or 0
  ALTER TABLE volume_catalogs ADD COLUMN attached INTEGER NOT NULL DEFAULT 0;
`;

/** Volumes that move from the root catalog to a catalog of their own. */
const MOVES = `
  -- of the root catalog; rows stay
  CREATE TABLE volume_moves (
    catalog   INTEGER PRIMARY KEY,
    volume    INTEGER NOT NULL,
    -- begun, splitting, frozen, numbered, moved, forgotten or joining
    phase     TEXT NOT NULL,
    -- while frozen: whose numbers are up to here is recorded; once moved: rows of numbers up to here are deleted
    position  INTEGER NOT NULL,
    -- while frozen: 1 if no number after the last of the volume's is another volume's
    extends   INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX frozen_volumes ON volume_moves (volume) WHERE phase IN ('frozen', 'numbered');
  CREATE INDEX moved_volumes ON volume_moves (volume) WHERE phase = 'moved';
  -- of the root catalog, and of the one that has them: numbers that the root catalog gave to inodes of the volume
  CREATE TABLE moved_numbers (
    first    INTEGER PRIMARY KEY,
    last     INTEGER NOT NULL,
    catalog  INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX numbers_moved_to ON moved_numbers (catalog, last, first);
  -- of a volume's catalog: how far it has imported the rows of its volume
  ALTER TABLE own_catalog ADD COLUMN imported TEXT NOT NULL DEFAULT '';
  -- id of the volume whose files alone may have the numbers, which move with it; 0 if the reservation named none
  ALTER TABLE reserved ADD COLUMN volume INTEGER NOT NULL DEFAULT 0;
`;

/** Directories that become volumes. */
const SPLITS = `
  -- of a volume that is split off: its root directory, else 0; the volume and the directory that have it until then
  ALTER TABLE volume_moves ADD COLUMN part INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volume_moves ADD COLUMN source INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE volume_moves ADD COLUMN above INTEGER NOT NULL DEFAULT 0;
  -- while it is split off: the last entry that was visited in a directory
  ALTER TABLE volume_moves ADD COLUMN visited TEXT NOT NULL DEFAULT '';
  DROP INDEX frozen_volumes;
  CREATE INDEX frozen_volumes ON volume_moves (volume) WHERE phase IN ('splitting', 'joining', 'frozen', 'numbered');
  -- while a volume is split off: directories whose entries are to be visited, and files of several names
  CREATE TABLE split_inodes (
    catalog  INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    -- names of the file that were visited; 0: a directory
    names    INTEGER NOT NULL,
    PRIMARY KEY (catalog, inode)
  ) STRICT, WITHOUT ROWID;
`;

/** Dates before which files and snapshots are neither changed nor removed: see `RetentionTables`. */
const RETENTIONS = `
  -- of inodes whose flags have the bit RETAINED
  CREATE TABLE retentions (
    inode     INTEGER PRIMARY KEY,
    until_ns  INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE retained_snapshots (
    volume    INTEGER NOT NULL,
    serial    INTEGER NOT NULL,
    until_ns  INTEGER NOT NULL,
    PRIMARY KEY (volume, serial)
  ) STRICT, WITHOUT ROWID;
  -- no row before the first retention
  CREATE TABLE retention_clock (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    clock_ns  INTEGER NOT NULL,
    -- the lease clock of the primary that advanced it last
    lease_ns  INTEGER NOT NULL
  ) STRICT;
  -- the latest date of any retention that the volume ever had; 0: none
  ALTER TABLE volumes ADD COLUMN retained_ns INTEGER NOT NULL DEFAULT 0;
  -- of the root catalog: the same of a volume with a catalog of its own, as reported
  ALTER TABLE volume_catalogs ADD COLUMN retained_ns INTEGER NOT NULL DEFAULT 0;
`;

/** Quotas of directories: see `DirectoryQuotaTables`. */
const DIRECTORY_QUOTAS = `
  -- a row lasts while anything counts against the quota; the directory counts itself, and files in the trash outlast it
  CREATE TABLE directory_quotas (
    directory     INTEGER PRIMARY KEY,
    volume        INTEGER NOT NULL,
    -- the directory with a quota that has this one in it; 0: none
    enclosing     INTEGER NOT NULL,
    -- 0 for none
    quota_bytes   INTEGER NOT NULL,
    quota_inodes  INTEGER NOT NULL,
    -- as of volumes, with what counts against quotas in it
    named_inodes  INTEGER NOT NULL DEFAULT 0,
    named_bytes   INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE INDEX directory_quotas_of_volume ON directory_quotas (volume, directory);
  CREATE INDEX enclosed_quotas ON directory_quotas (enclosing) WHERE enclosing > 0;
  CREATE INDEX full_quotas ON directory_quotas (volume) WHERE quota_bytes > 0 AND named_bytes * 10 > quota_bytes * 9
    OR quota_inodes > 0 AND named_inodes * 10 > quota_inodes * 9;
  -- the directory whose quota the inode counts against, if it has one still; 0: its volume's alone
  ALTER TABLE inodes ADD COLUMN quota INTEGER NOT NULL DEFAULT 0;
`;

/** Quotas of directories that have entries: see `QuotaWalkTables`. */
const QUOTA_WALKS = `
  CREATE TABLE quota_walks (
    directory     INTEGER PRIMARY KEY,
    volume        INTEGER NOT NULL,
    -- counting, checking, ending or refused
    phase         TEXT NOT NULL,
    -- while counting: the directory whose entries are visited, or 0, and the last one that was
    visiting      INTEGER NOT NULL,
    visited       TEXT NOT NULL COLLATE BINARY,
    -- why the quota is refused, or empty
    why           TEXT NOT NULL,
    -- limits of the quota once all is counted
    quota_bytes   INTEGER NOT NULL,
    quota_inodes  INTEGER NOT NULL
  ) STRICT;
  -- directories in it whose entries are to be visited
  CREATE TABLE quota_walk_directories (
    directory  INTEGER NOT NULL,
    inode      INTEGER NOT NULL,
    PRIMARY KEY (directory, inode)
  ) STRICT, WITHOUT ROWID;
  -- files that had several names when they got the quota
  CREATE TABLE quota_walk_files (
    inode      INTEGER PRIMARY KEY,
    directory  INTEGER NOT NULL,
    -- names that were visited
    names      INTEGER NOT NULL,
    -- one of them
    parent     INTEGER NOT NULL,
    name       TEXT NOT NULL COLLATE BINARY
  ) STRICT;
  CREATE INDEX quota_walk_files_of_directory ON quota_walk_files (directory, inode);
  -- finds what counts against a quota that ends
  CREATE INDEX quota_inodes ON inodes (quota) WHERE quota > 0;
  -- while a volume is split off: the directory of which a part of the entries was visited, or 0
  ALTER TABLE volume_moves ADD COLUMN visiting INTEGER NOT NULL DEFAULT 0;
`;

/** Volumes that begin as the tree of a snapshot: see `CloneTables`. */
const CLONES = `
  -- of a volume with unfilled inodes: the volume and number of the snapshot, and how many rows of unfilled it has
  CREATE TABLE clones (
    volume    INTEGER PRIMARY KEY,
    source    INTEGER NOT NULL,
    serial    INTEGER NOT NULL,
    unfilled  INTEGER NOT NULL,
    -- 1 if all of it is to be filled
    flattens  INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE INDEX clones_of ON clones (source, serial);
  -- directories whose entries, and files whose contents, are still those of an inode that the snapshot shows
  CREATE TABLE unfilled (
    inode     INTEGER PRIMARY KEY,
    volume    INTEGER NOT NULL,
    origin    INTEGER NOT NULL,
    -- of a directory: the last name that was copied
    position  TEXT NOT NULL COLLATE BINARY,
    -- of a file: the servers that copy its contents, separated by commas; '' before its first change
    members   TEXT NOT NULL COLLATE BINARY DEFAULT ''
  ) STRICT;
  CREATE INDEX unfilled_of_volume ON unfilled (volume, inode);
  CREATE INDEX unfilled_opened ON unfilled (inode) WHERE members <> '';
  -- copies of inodes with several names, while names are to come
  CREATE TABLE clone_names (
    volume  INTEGER NOT NULL,
    origin  INTEGER NOT NULL,
    inode   INTEGER NOT NULL,
    names   INTEGER NOT NULL,
    PRIMARY KEY (volume, origin)
  ) STRICT, WITHOUT ROWID;
`;

/** From version 1 to 2; servers are added when they register. */
const MIGRATION_2 = `
  ALTER TABLE volumes ADD COLUMN policy INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE inodes ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE inodes ADD COLUMN policy INTEGER NOT NULL DEFAULT 0;
  ${SERVER_TABLES}
  WITH RECURSIVE members (inode, server, rest) AS (
    SELECT id, '', replicas || ',' FROM inodes WHERE replicas <> ''
    UNION ALL
    SELECT inode, SUBSTR(rest, 1, INSTR(rest, ',') - 1), SUBSTR(rest, INSTR(rest, ',') + 1)
    FROM members WHERE rest <> ''
  )
  INSERT INTO placements SELECT server, inode FROM members WHERE server <> '';
`;

/** From version 1 to 2, and so on. */
const MIGRATIONS: readonly string[] = [
  MIGRATION_2,
  QUOTAS,
  RESERVATIONS + TRASH + SNAPSHOTS,
  RESERVED_MEMBERS + TIMED_SESSIONS + RESERVING_FILES + VOTERS,
  PLANS,
  HOLES,
  CREATIONS,
  FLAGS,
  REPLICA_COUNTS + CLUSTER + DELETIONS,
  CATALOGS + PLACEMENT_CLASSES,
  JUNCTIONS + MOVES,
  SPLITS + RETENTIONS,
  DIRECTORY_QUOTAS,
  QUOTA_WALKS,
  CLONES,
];

/** The tables, each with its key columns, in the order of the canonical dump. */
export const TABLE_KEYS = {
  counters: 'id',
  own_catalog: 'id',
  volumes: 'id',
  inodes: 'id',
  entries: 'parent, name',
  xattrs: 'inode, name',
  sessions: 'id',
  timed_sessions: 'id',
  requests: 'session, number',
  settings: 'id',
  servers: 'id',
  replaced_stores: 'storage_id',
  placements: 'server, inode',
  placement_counts: 'server',
  member_sets: 'members',
  planned_members: 'server, inode',
  deletion_logs: 'server',
  deletions: 'server, seq',
  voters: 'id',
  volume_catalogs: 'number',
  left_catalogs: 'server, catalog',
  volume_moves: 'catalog',
  moved_numbers: 'first',
  split_inodes: 'catalog, inode',
  reserved: 'first',
  directory_classes: 'directory',
  directory_quotas: 'directory',
  quota_walks: 'directory',
  quota_walk_directories: 'directory, inode',
  quota_walk_files: 'inode',
  junctions: 'inode',
  trash: 'inode',
  snapshots: 'volume, serial',
  sweeps: 'volume, serial',
  past_inodes: 'id, until',
  past_entries: 'parent, name, until',
  past_xattrs: 'inode, name, until',
  retentions: 'inode',
  retained_snapshots: 'volume, serial',
  retention_clock: 'id',
  clones: 'volume',
  unfilled: 'inode',
  clone_names: 'volume, origin',
} as const;

/**
 * Creates or upgrades the tables, and refuses those of a later version. The caller has no open transaction.
 * @param catalog whose tables they are, if they are created
 */
export function ensureSchema(db: CatalogDatabase, catalog: CatalogNumber = ROOT_CATALOG): void {
  const version = db.pragma('user_version', { simple: true });
  if (version === SCHEMA_VERSION) return;
  if (typeof version !== 'number' || version < 0 || version > SCHEMA_VERSION) {
    throw new ServiceError(
      'storage',
      `Cannot use a catalog of schema version ${version}: this program knows versions up to ${SCHEMA_VERSION}`,
    );
  }
  // A new database starts with version 2.
  const [first, from] = version === 0 ? [TABLES + SERVER_TABLES, 2] : ['', version];
  const last = version === 0 && catalog !== ROOT_CATALOG ? ofVolume(catalog) : '';
  const steps = MIGRATIONS.slice(from - 1).join('');
  db.exec(`BEGIN IMMEDIATE; ${first} ${steps} ${last} PRAGMA user_version = ${SCHEMA_VERSION}; COMMIT`);
}

/** The first number is the root directory's; others need a limit that is flushed. */
function ofVolume(catalog: CatalogNumber): string {
  const next = inodesOf(catalog).first + 1;
  return `UPDATE own_catalog SET number = ${catalog};
    UPDATE counters SET next_inode = ${next}, number_limit = ${next};`;
}
