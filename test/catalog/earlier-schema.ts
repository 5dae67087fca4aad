import type { CatalogDatabase } from '../../catalog/schema.ts';

/** Removes from a database of today what version 16 added. */
export function asVersion15(db: CatalogDatabase): void {
  db.exec('DROP TABLE clones; DROP TABLE unfilled; DROP TABLE clone_names; PRAGMA user_version = 15;');
}

/** And what version 15 added. */
export function asVersion14(db: CatalogDatabase): void {
  asVersion15(db);
  db.exec(`
    DROP TABLE quota_walks; DROP TABLE quota_walk_directories; DROP TABLE quota_walk_files;
    DROP INDEX quota_inodes;
    ALTER TABLE volume_moves DROP COLUMN visiting;
    PRAGMA user_version = 14;
  `);
}

/** And what version 14 added. */
export function asVersion13(db: CatalogDatabase): void {
  asVersion14(db);
  db.exec(`
    DROP TABLE directory_quotas;
    ALTER TABLE inodes DROP COLUMN quota;
    PRAGMA user_version = 13;
  `);
}

/** And what version 13 added. */
export function asVersion12(db: CatalogDatabase): void {
  asVersion13(db);
  db.exec(`
    DROP TABLE split_inodes;
    DROP INDEX frozen_volumes;
    ALTER TABLE volume_moves DROP COLUMN part;
    ALTER TABLE volume_moves DROP COLUMN source;
    ALTER TABLE volume_moves DROP COLUMN above;
    ALTER TABLE volume_moves DROP COLUMN visited;
    CREATE INDEX frozen_volumes ON volume_moves (volume) WHERE phase IN ('frozen', 'numbered');
    DROP TABLE retentions; DROP TABLE retained_snapshots; DROP TABLE retention_clock;
    ALTER TABLE volumes DROP COLUMN retained_ns;
    ALTER TABLE volume_catalogs DROP COLUMN retained_ns;
    PRAGMA user_version = 12;
  `);
}

/** And what version 12 added. */
export function asVersion11(db: CatalogDatabase): void {
  asVersion12(db);
  db.exec(`
    DROP TABLE junctions; DROP TABLE volume_moves; DROP TABLE moved_numbers;
    ALTER TABLE own_catalog DROP COLUMN imported;
    ALTER TABLE reserved DROP COLUMN volume;
    ALTER TABLE volume_catalogs DROP COLUMN attached;
    PRAGMA user_version = 11;
  `);
}

/** And what version 11 added. */
export function asVersion10(db: CatalogDatabase): void {
  asVersion11(db);
  db.exec(`
    DROP TABLE volume_catalogs; DROP TABLE left_catalogs; DROP TABLE own_catalog;
    ALTER TABLE servers DROP COLUMN since;
    ALTER TABLE servers DROP COLUMN stored_at;
    ALTER TABLE counters DROP COLUMN catalogs_version;
    ALTER TABLE counters DROP COLUMN rules;
    DROP INDEX file_sets;
    DROP TABLE directory_classes;
    ALTER TABLE inodes DROP COLUMN placement;
    CREATE INDEX file_members ON inodes (volume, members, wanted) WHERE kind = 1 AND replicas <> '';
    ALTER TABLE servers DROP COLUMN labels;
    ALTER TABLE volumes DROP COLUMN labels;
    ALTER TABLE volumes DROP COLUMN zones;
    ALTER TABLE counters DROP COLUMN number_limit;
    ALTER TABLE counters DROP COLUMN numbers_epoch;
    PRAGMA user_version = 10;
  `);
}

/** And what version 10 added. */
export function asVersion9(db: CatalogDatabase): void {
  asVersion10(db);
  db.exec(`
    DROP TABLE placement_counts;
    DROP TABLE member_sets;
    DROP INDEX file_members;
    ALTER TABLE inodes DROP COLUMN members;
    DROP TABLE settings;
    ALTER TABLE servers DROP COLUMN maintenance_ns;
    DROP TABLE deletions; DROP TABLE deletion_logs;
    ALTER TABLE counters DROP COLUMN logged;
    PRAGMA user_version = 9;
  `);
}

/** And what version 9 added. */
export function asVersion8(db: CatalogDatabase): void {
  asVersion9(db);
  db.exec(`
    ALTER TABLE inodes DROP COLUMN flags;
    ALTER TABLE past_inodes DROP COLUMN flags;
    ALTER TABLE counters DROP COLUMN flagged;
    PRAGMA user_version = 8;
  `);
}

/** And what version 8 added. */
export function asVersion7(db: CatalogDatabase): void {
  asVersion8(db);
  db.exec(`
    ALTER TABLE inodes DROP COLUMN created_ns;
    ALTER TABLE past_inodes DROP COLUMN created_ns;
    ALTER TABLE counters DROP COLUMN dated;
    PRAGMA user_version = 7;
  `);
}

/** And what version 7 added. */
export function asVersion6(db: CatalogDatabase): void {
  asVersion7(db);
  db.exec(`
    ALTER TABLE inodes DROP COLUMN holes;
    ALTER TABLE past_inodes DROP COLUMN holes;
    PRAGMA user_version = 6;
  `);
}

/** And what version 6 added. */
export function asVersion5(db: CatalogDatabase): void {
  asVersion6(db);
  db.exec(`
    DROP TABLE planned_members;
    ALTER TABLE counters DROP COLUMN planned;
    PRAGMA user_version = 5;
  `);
}

/** And what version 5 added. */
export function asVersion4(db: CatalogDatabase): void {
  asVersion5(db);
  db.exec(`
    ALTER TABLE reserved DROP COLUMN members;
    DROP INDEX reserving_files;
    DROP TABLE timed_sessions; DROP TABLE voters;
    ALTER TABLE counters DROP COLUMN timed_sessions;
    ALTER TABLE counters DROP COLUMN fenced;
    PRAGMA user_version = 4;
  `);
}

/** And what version 4 added. */
export function asVersion3(db: CatalogDatabase): void {
  asVersion4(db);
  db.exec(`
    DROP TABLE snapshots; DROP TABLE sweeps; DROP TABLE past_inodes; DROP TABLE past_entries; DROP TABLE past_xattrs;
    DROP INDEX live_files; DROP INDEX preserving;
    ALTER TABLE volumes DROP COLUMN serial;
    ALTER TABLE volumes DROP COLUMN kept;
    ALTER TABLE inodes DROP COLUMN since;
    ALTER TABLE inodes DROP COLUMN preserving;
    ALTER TABLE entries DROP COLUMN since;
    ALTER TABLE xattrs DROP COLUMN since;
    DROP TABLE reserved;
    DROP TABLE trash;
    ALTER TABLE volumes DROP COLUMN trash_ms;
    ALTER TABLE volumes DROP COLUMN trashed_inodes;
    ALTER TABLE volumes DROP COLUMN trashed_bytes;
    PRAGMA user_version = 3;
  `);
}

/** And what version 3 added. */
export function asVersion2(db: CatalogDatabase): void {
  asVersion3(db);
  db.exec(`
    ALTER TABLE volumes DROP COLUMN quota_bytes;
    ALTER TABLE volumes DROP COLUMN quota_inodes;
    ALTER TABLE volumes DROP COLUMN named_inodes;
    ALTER TABLE volumes DROP COLUMN named_bytes;
    ALTER TABLE inodes DROP COLUMN allowed;
    PRAGMA user_version = 2;
  `);
}

/** And what version 2 added. */
export function asVersion1(db: CatalogDatabase): void {
  asVersion2(db);
  db.exec(`
    DROP TABLE servers; DROP TABLE placements; DROP TABLE replaced_stores;
    ALTER TABLE volumes DROP COLUMN policy;
    ALTER TABLE inodes DROP COLUMN wanted;
    ALTER TABLE inodes DROP COLUMN policy;
    PRAGMA user_version = 1;
  `);
}
