import { RETAINED } from './retained-flag.ts';
import { KIND_DIRECTORY, KIND_FILE } from './schema.ts';

/** An inode in the tables; times are decimal nanoseconds. */
export interface InodeRow {
  readonly id: number;
  readonly volume: number;
  readonly volumeName: string;
  readonly kind: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly sizeBytes: number;
  /** Bytes of holes in a file; 0 if unknown. */
  readonly holeBytes: number;
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
  /** Null if unknown. */
  readonly createdNs: string | null;
  readonly target: string;
  readonly device: number;
  readonly replicas: string;
  readonly view: number;
  readonly objectBytes: number;
  readonly contentsEpoch: number;
  readonly contentsSeq: number;
  readonly modifiedEpoch: number;
  readonly modifiedSeq: number;
  readonly live: number;
  readonly markEpoch: number;
  readonly markTurn: number;
  readonly parent: number;
  /** Null while the inode is linked. */
  readonly orphanedNs: string | null;
  /** 1 if an unlinked file is in the trash, else 0. */
  readonly trashed: number;
  /** Replicas of the file; 0: the volume's number. */
  readonly wanted: number;
  readonly policy: number;
  /** The directory whose placement class the inode has; 0: its volume's. */
  readonly placement: number;
  /** The directory whose quota the inode counts against; 0: its volume's alone. */
  readonly quota: number;
  /** Protecting flags as bits of `FLAGS`. */
  readonly flags: number;
  /** Until when the file is retained, perhaps in the past; null if it never was. */
  readonly retainNs: string | null;
  readonly xattrs: number;
  /** Size that the file may grow to; null if its volume had no quota at the last request. */
  readonly allowed: number | null;
  /** Inode that will preserve the file's contents; or 0. */
  readonly preserving: number;
  /** The first snapshot that shows this row. */
  readonly since: number;
  /** Of a junction: its row, as JSON; null for other inodes. */
  readonly junction: string | null;
  /** 1 if the contents of the file are those that a snapshot shows, of which its volume is a clone, else 0. */
  readonly shared: number;
}

export interface EntryRow extends InodeRow {
  readonly entryName: string;
}

/** No joins for single rows: SQLite (STAT4) recompiles joins when a bound value changes, 30 times the execution. */
export const INODE_COLUMNS = `
  i.id, i.volume, (SELECT v.name FROM volumes v WHERE v.id = i.volume) AS volumeName, i.kind, i.mode, i.uid, i.gid, i.links, i.size AS sizeBytes,
  i.holes AS holeBytes,
  CAST(i.accessed_ns AS TEXT) AS accessedNs, CAST(i.modified_ns AS TEXT) AS modifiedNs,
  CAST(i.changed_ns AS TEXT) AS changedNs, CAST(i.created_ns AS TEXT) AS createdNs, i.target, i.device, i.replicas, i.view,
  i.object_bytes AS objectBytes, i.contents_epoch AS contentsEpoch, i.contents_seq AS contentsSeq,
  i.modified_epoch AS modifiedEpoch, i.modified_seq AS modifiedSeq, i.live,
  i.mark_epoch AS markEpoch, i.mark_turn AS markTurn, i.parent,
  CAST(i.orphaned_ns AS TEXT) AS orphanedNs,
  i.orphaned_ns IS NOT NULL AND EXISTS (SELECT 1 FROM trash t WHERE t.inode = i.id) AS trashed, i.wanted, i.policy, i.allowed,
  i.preserving, i.since, i.flags, i.placement, i.quota,
  CASE WHEN i.flags & ${RETAINED} THEN
    (SELECT CAST(r.until_ns AS TEXT) FROM retentions r WHERE r.inode = i.id) END AS retainNs,
  CASE i.kind WHEN ${KIND_DIRECTORY} THEN
    (SELECT json_object('catalog', j.catalog, 'volume', j.volume) FROM junctions j WHERE j.inode = i.id) END AS junction,
  i.kind = ${KIND_FILE} AND EXISTS (SELECT 1 FROM unfilled u WHERE u.inode = i.id) AS shared,
  (SELECT COUNT(*) FROM xattrs x WHERE x.inode = i.id) AS xattrs`;
