/** An inode as the tables have it; times are decimal nanoseconds. */
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
  /** How many bytes of a file are holes; 0 where none are known of. */
  readonly holeBytes: number;
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
  /** Null where that is not known. */
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
  /** Null while the inode has a name. */
  readonly orphanedNs: string | null;
  /** 1 of a file without a name that is in the trash, else 0. */
  readonly trashed: number;
  /** How many replicas a file wants; 0: as many as its volume says. */
  readonly wanted: number;
  readonly policy: number;
  /** That protect it from changes, as `FLAGS` numbers them; 0 for none. */
  readonly flags: number;
  /** How many extended attributes it has. */
  readonly xattrs: number;
  /** Of a file: the size that it may grow to; null where its volume had no quota when that was asked last. */
  readonly allowed: number | null;
  /** Of a file: the inode that its contents are about to be preserved as; or 0. */
  readonly preserving: number;
  /** The first snapshot that shows this form of the row. */
  readonly since: number;
}

export interface EntryRow extends InodeRow {
  readonly entryName: string;
}

/**
 * No joins where one row is asked for: SQLite (built with STAT4) compiles a join anew whenever a
 * bound value changes, which costs thirty times the execution. Subqueries are left alone.
 */
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
  i.preserving, i.since, i.flags,
  (SELECT COUNT(*) FROM xattrs x WHERE x.inode = i.id) AS xattrs`;
