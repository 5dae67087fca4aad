import { assert } from '../base/assert.ts';
import type { InodeRow } from './inode-rows.ts';
import type { Statements } from './statements.ts';

export interface SnapshotRow {
  readonly volume: number;
  readonly serial: number;
  readonly name: string;
  readonly madeNs: string;
  /** Until when it is retained, perhaps in the past; null if it never was. */
  readonly retainNs: string | null;
}

/** `named`: 1 if the inode is linked. `serial`, `kept`: as in `VolumeRow`. */
interface InodeVersions {
  readonly since: number;
  readonly named: number;
  readonly volume: number;
  readonly serial: number;
  readonly kept: number;
}

const SNAPSHOT_COLUMNS = `volume, serial, name, CAST(made_ns AS TEXT) AS madeNs,
  (SELECT CAST(until_ns AS TEXT) FROM retained_snapshots r WHERE r.volume = snapshots.volume AND r.serial = snapshots.serial)
    AS retainNs`;

const PAST_INODE_COLUMNS = `id, until, since, volume, kind, mode, uid, gid, links, size, accessed_ns, modified_ns, changed_ns, target, device,
  object_bytes, contents_epoch, contents_seq, modified_epoch, modified_seq, parent, policy, source, holes, created_ns, flags`;

/** `until` and `source` do not come from the live row. */
const LIVE_INODE_VALUES = PAST_INODE_COLUMNS.replace('until', '?').replace('source', '0');

/** Columns of a past row in the form of `InodeRow`; the caller fills in the servers that have the contents now. */
const PAST_ROW = `
  p.id, p.volume, (SELECT v.name FROM volumes v WHERE v.id = p.volume) AS volumeName, p.kind, p.mode, p.uid, p.gid, p.links,
  p.size AS sizeBytes, p.holes AS holeBytes, CAST(p.accessed_ns AS TEXT) AS accessedNs, CAST(p.modified_ns AS TEXT) AS modifiedNs,
  CAST(p.changed_ns AS TEXT) AS changedNs, CAST(p.created_ns AS TEXT) AS createdNs, p.target, p.device, '' AS replicas, 0 AS view,
  p.object_bytes AS objectBytes, p.contents_epoch AS contentsEpoch, p.contents_seq AS contentsSeq,
  p.modified_epoch AS modifiedEpoch, p.modified_seq AS modifiedSeq, 0 AS live, 0 AS markEpoch, 0 AS markTurn, p.parent,
  NULL AS orphanedNs, 0 AS trashed, 0 AS wanted, p.policy, NULL AS allowed, 0 AS preserving, p.since, p.flags, NULL AS retainNs, 0 AS placement, NULL AS junction, 0 AS xattrs,
  p.source`;

/**
 * Snapshots, and past rows that they show (decision 0043). Snapshots from `since` on see a row. Before a row that the
 * latest snapshot shows changes, a copy goes to the past tables, which snapshots up to `until` see; the live row is
 * seen from the next snapshot on. So creating a snapshot touches no row, and versions of a row do not overlap.
 */
export class SnapshotTables {
  readonly #statements: Statements;
  /** Whether any volume has snapshots; otherwise nothing is kept or queried. */
  #any = false;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Call before each command, and before content queries between commands. */
  begin(): void {
    this.#any = this.#statements.get('SELECT 1 FROM snapshots LIMIT 1') !== undefined;
  }

  /** @returns the first snapshot that will show a new row of the volume */
  nextSerialOfVolume(volume: number): number {
    if (!this.#any) return 1;
    return (
      (this.#statements.get<{ serial: number }>('SELECT serial FROM volumes WHERE id = ?', volume)?.serial ??
        0) + 1
    );
  }

  /** Like `nextSerialOfVolume`, for rows of an inode. */
  nextSerialOfInode(inode: number): number {
    return this.#any ? (this.#versionsOfInode(inode)?.serial ?? 0) + 1 : 1;
  }

  /** Call before an inode's row changes: copies it if the latest snapshot shows it, which needs a linked inode. */
  keepInode(id: number): void {
    if (!this.#any) return;
    const versions = this.#versionsOfInode(id);
    if (versions === undefined) return;
    if (versions.since <= versions.kept && versions.named === 1) {
      this.#statements.run(
        `INSERT INTO past_inodes (${PAST_INODE_COLUMNS}) SELECT ${LIVE_INODE_VALUES} FROM inodes WHERE id = ?`,
        versions.serial,
        id,
      );
    }
    this.#statements.run('UPDATE inodes SET since = ? WHERE id = ?', versions.serial + 1, id);
  }

  /** Call before an inode is deleted: copies its row and its extended attributes for snapshots that show them. */
  keepInodeAndXattrs(id: number): void {
    this.keepXattrs(id);
    this.keepInode(id);
  }

  /** Call before an entry changes or is deleted: copies it if the latest snapshot shows it. */
  keepEntry(parent: number, name: string): void {
    if (!this.#any) return;
    const directory = this.#versionsOfInode(parent);
    const since = this.#statements.get<{ since: number }>(
      'SELECT since FROM entries WHERE parent = ? AND name = ?',
      parent,
      name,
    )?.since;
    if (directory === undefined || since === undefined) return;
    const { volume, serial, kept } = directory;
    if (since <= kept) {
      this.#statements.run(
        `INSERT INTO past_entries (parent, name, until, since, volume, inode)
         SELECT parent, name, ?, since, ?, inode FROM entries WHERE parent = ? AND name = ?`,
        serial,
        volume,
        parent,
        name,
      );
    }
    this.#statements.run(
      'UPDATE entries SET since = ? WHERE parent = ? AND name = ?',
      serial + 1,
      parent,
      name,
    );
  }

  /** Call before an xattr (null: all of the inode) changes: copies what a snapshot shows. The caller sets `since`. */
  keepXattrs(inode: number, name: string | null = null): void {
    if (!this.#any) return;
    const versions = this.#versionsOfInode(inode);
    if (versions === undefined || versions.kept === 0) return;
    this.#statements.run(
      `INSERT INTO past_xattrs (inode, name, until, since, volume, value)
       SELECT inode, name, ?, since, ?, value FROM xattrs WHERE inode = ? AND since <= ? AND (? IS NULL OR name = ?)`,
      versions.serial,
      versions.volume,
      inode,
      versions.kept,
      name,
      name,
    );
  }

  /** @returns whether a snapshot shows the file's present contents */
  showsContents(file: number): boolean {
    if (!this.#any) return false;
    if (this.#statements.get('SELECT 1 FROM past_inodes WHERE id = ? AND source = 0', file) !== undefined)
      return true;
    return (
      this.#statements.get(
        `SELECT 1 FROM inodes i WHERE i.id = ? AND i.orphaned_ns IS NULL
           AND i.since <= (SELECT v.kept FROM volumes v WHERE v.id = i.volume)`,
        file,
      ) !== undefined
    );
  }

  /** Call before a file's contents change. @param source inode that preserves what snapshots show; -1: it is lost */
  setContentsSource(file: number, source: number): void {
    this.keepInode(file);
    this.#statements.run('UPDATE past_inodes SET source = ? WHERE id = ? AND source = 0', source, file);
  }

  /** @returns whether a snapshot shows contents that this inode preserves */
  showsPreserved(source: number): boolean {
    return this.#statements.get('SELECT 1 FROM past_inodes WHERE source = ?', source) !== undefined;
  }

  /** The past version of an inode that the snapshot shows. */
  pastInode(id: number, serial: number): (InodeRow & { readonly source: number }) | undefined {
    const row = this.#statements.get<InodeRow & { readonly source: number }>(
      `SELECT ${PAST_ROW} FROM past_inodes p WHERE p.id = ? AND p.until >= ? ORDER BY p.until LIMIT 1`,
      id,
      serial,
    );
    return row !== undefined && row.since <= serial ? row : undefined;
  }

  volumeOfPast(id: number): number | undefined {
    return this.#statements.get<{ volume: number }>('SELECT volume FROM past_inodes WHERE id = ? LIMIT 1', id)
      ?.volume;
  }

  childAt(parent: number, name: string, serial: number): number | undefined {
    return this.#statements.get<{ inode: number }>(
      `SELECT inode FROM entries WHERE parent = ? AND name = ? AND since <= ?
       UNION ALL SELECT inode FROM past_entries WHERE parent = ? AND name = ? AND until >= ? AND since <= ?`,
      parent,
      name,
      serial,
      parent,
      name,
      serial,
      serial,
    )?.inode;
  }

  childrenAt(
    parent: number,
    after: string,
    countMax: number,
    serial: number,
  ): { readonly name: string; readonly inode: number }[] {
    return this.#statements.all(
      `SELECT name, inode FROM entries WHERE parent = ? AND name > ? AND since <= ?
       UNION ALL SELECT name, inode FROM past_entries WHERE parent = ? AND name > ? AND until >= ? AND since <= ?
       ORDER BY name LIMIT ?`,
      parent,
      after,
      serial,
      parent,
      after,
      serial,
      serial,
      countMax,
    );
  }

  /** @returns the extended attributes of an inode that the snapshot `serial` shows, by name */
  xattrsAt(inode: number, serial: number): { readonly name: string; readonly value: Uint8Array }[] {
    return this.#statements.all(
      `SELECT name, value FROM xattrs WHERE inode = ? AND since <= ?
       UNION ALL SELECT name, value FROM past_xattrs WHERE inode = ? AND until >= ? AND since <= ?
       ORDER BY name`,
      inode,
      serial,
      inode,
      serial,
      serial,
    );
  }

  xattrCountAt(inode: number, serial: number): number {
    const row = this.#statements.get<{ count: number }>(
      `SELECT (SELECT COUNT(*) FROM xattrs WHERE inode = ? AND since <= ?)
         + (SELECT COUNT(*) FROM past_xattrs WHERE inode = ? AND until >= ? AND since <= ?) AS count`,
      inode,
      serial,
      inode,
      serial,
      serial,
    );
    return row?.count ?? 0;
  }

  all(volume: number): SnapshotRow[] {
    return this.#statements.all<SnapshotRow>(
      `SELECT ${SNAPSHOT_COLUMNS} FROM snapshots WHERE volume = ? ORDER BY serial`,
      volume,
    );
  }

  byName(volume: number, name: string): SnapshotRow | undefined {
    return this.#statements.get<SnapshotRow>(
      `SELECT ${SNAPSHOT_COLUMNS} FROM snapshots WHERE volume = ? AND name = ?`,
      volume,
      name,
    );
  }

  bySerial(volume: number, serial: number): SnapshotRow | undefined {
    return this.#statements.get<SnapshotRow>(
      `SELECT ${SNAPSHOT_COLUMNS} FROM snapshots WHERE volume = ? AND serial = ?`,
      volume,
      serial,
    );
  }

  create(volume: number, name: string, madeNs: string): SnapshotRow {
    const row = this.#statements.get<{ serial: number }>(
      'UPDATE volumes SET serial = serial + 1, kept = serial + 1 WHERE id = ? RETURNING serial',
      volume,
    );
    assert(row !== undefined, 'A snapshot is of a volume that exists');
    this.#statements.run('INSERT INTO snapshots VALUES (?, ?, ?, ?)', volume, row.serial, name, madeNs);
    return { volume, serial: row.serial, name, madeNs, retainNs: null };
  }

  remove({ volume, serial }: SnapshotRow): void {
    this.#statements.run('DELETE FROM retained_snapshots WHERE volume = ? AND serial = ?', volume, serial);
    this.#statements.run('DELETE FROM snapshots WHERE volume = ? AND serial = ?', volume, serial);
    this.#statements.run('INSERT INTO sweeps VALUES (?, ?)', volume, serial);
    this.#statements.run(
      'UPDATE volumes SET kept = (SELECT COALESCE(MAX(s.serial), 0) FROM snapshots s WHERE s.volume = volumes.id) WHERE id = ?',
      volume,
    );
  }

  /** The volume has moved to another catalog. */
  forgetVolume(volume: number): void {
    this.#statements.run('DELETE FROM snapshots WHERE volume = ?', volume);
    this.#statements.run('DELETE FROM retained_snapshots WHERE volume = ?', volume);
  }

  #versionsOfInode(id: number): InodeVersions | undefined {
    return this.#statements.get<InodeVersions>(
      `SELECT i.since, i.orphaned_ns IS NULL AS named, i.volume,
         (SELECT v.serial FROM volumes v WHERE v.id = i.volume) AS serial,
         (SELECT v.kept FROM volumes v WHERE v.id = i.volume) AS kept
       FROM inodes i WHERE i.id = ?`,
      id,
    );
  }
}
