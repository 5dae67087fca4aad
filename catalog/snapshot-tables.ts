import { assert } from '../base/assert.ts';
import type { CloneTables } from './clone-tables.ts';
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

/** Serial numbers of two snapshots of a volume, the older one first. */
export interface SnapshotRange {
  readonly from: number;
  readonly to: number;
}

/** A past row of an inode, in the order of its index. */
export interface PastRow {
  readonly until: number;
  readonly since: number;
  readonly inode: number;
}

/** The inodes of a name in the older and the newer snapshot. */
export interface ChangedEntry {
  readonly name: string;
  readonly old: number | null;
  readonly present: number | null;
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
  NULL AS orphanedNs, 0 AS trashed, 0 AS wanted, p.policy, NULL AS allowed, 0 AS preserving, p.since, p.flags, NULL AS retainNs, 0 AS placement, 0 AS quota, NULL AS junction, 0 AS shared, 0 AS xattrs,
  p.source`;

/**
 * Snapshots, and past rows that they show (decision 0043). Snapshots from `since` on see a row. Before a row that the
 * latest snapshot shows changes, a copy goes to the past tables, which snapshots up to `until` see; the live row is
 * seen from the next snapshot on. So creating a snapshot touches no row, and versions of a row do not overlap.
 */
export class SnapshotTables {
  readonly #statements: Statements;
  readonly #clones: CloneTables;
  /** Whether any volume has snapshots; otherwise nothing is kept or queried. */
  #any = false;

  constructor(statements: Statements, clones: CloneTables) {
    this.#statements = statements;
    this.#clones = clones;
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

  /** @returns the kind of an inode that the snapshot shows, else undefined; costs less than its row */
  kindAt(id: number, serial: number): number | undefined {
    return this.#statements.get<{ kind: number }>(
      `SELECT kind FROM past_inodes WHERE id = ? AND until >= ? AND since <= ?
       UNION ALL SELECT kind FROM inodes WHERE id = ? AND since <= ? AND orphaned_ns IS NULL`,
      id,
      serial,
      serial,
      id,
      serial,
    )?.kind;
  }

  volumeOfPast(id: number): number | undefined {
    return this.#statements.get<{ volume: number }>('SELECT volume FROM past_inodes WHERE id = ? LIMIT 1', id)
      ?.volume;
  }

  /** @throws UnfilledDirectory */
  childAt(parent: number, name: string, serial: number): number | undefined {
    this.#clones.assertFilled(parent);
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

  /** @throws UnfilledDirectory */
  childrenAt(
    parent: number,
    after: string,
    countMax: number,
    serial: number,
  ): { readonly name: string; readonly inode: number }[] {
    this.#clones.assertFilled(parent);
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

  /** @returns the next past row that the snapshot `from` shows and `to` does not; each is of another inode */
  nextChanged(volume: number, { from, to }: SnapshotRange, after: PastRow): PastRow | undefined {
    // One step of the index for each value of `until`: rows that only later snapshots show are not visited.
    for (let { until, since, inode } = after; until < to; ) {
      const row = this.#statements.get<PastRow>(
        `SELECT until, since, id AS inode FROM past_inodes
         WHERE volume = ? AND until = ? AND since <= ? AND (since, id) > (?, ?) ORDER BY since, id LIMIT 1`,
        volume,
        until,
        from,
        since,
        inode,
      );
      if (row !== undefined) return row;
      const next = this.#statements.get<{ until: number | null }>(
        'SELECT MIN(until) AS until FROM past_inodes WHERE volume = ? AND until > ?',
        volume,
        until,
      )?.until;
      [until, since, inode] = [next ?? to, 0, 0];
    }
    return undefined;
  }

  hasChangedXattrs(inode: number, { from, to }: SnapshotRange): boolean {
    return (
      this.#statements.get(
        `SELECT 1 FROM xattrs WHERE inode = ? AND since > ? AND since <= ?
         UNION ALL SELECT 1 FROM past_xattrs WHERE inode = ?
           AND (since <= ? AND until >= ? AND until < ? OR since > ? AND since <= ? AND until >= ?) LIMIT 1`,
        inode,
        from,
        to,
        inode,
        from,
        from,
        to,
        from,
        to,
        to,
      ) !== undefined
    );
  }

  /** @returns the name of an entry, present or past, so many after `name`; null if there are no more */
  nameAfter(parent: number, name: string, count: number): string | null {
    const row = this.#statements.get<{ name: string | null }>(
      `SELECT MIN(name) AS name FROM (
         SELECT * FROM (SELECT name FROM entries WHERE parent = ? AND name > ? ORDER BY name LIMIT 1 OFFSET ?)
         UNION ALL
         SELECT * FROM (SELECT name FROM past_entries WHERE parent = ? AND name > ? ORDER BY name LIMIT 1 OFFSET ?))`,
      parent,
      name,
      count,
      parent,
      name,
      count,
    );
    return row?.name ?? null;
  }

  /** @returns names after `after`, up to `last` (null: all), that the two snapshots do not show alike, in order */
  changedEntries(
    {
      parent,
      after,
      last,
    }: { readonly parent: number; readonly after: string; readonly last: string | null },
    { from, to }: SnapshotRange,
    countMax: number,
  ): ChangedEntry[] {
    // A name has at most two past rows of interest, one of each snapshot.
    return this.#statements.all(
      `SELECT name, MAX(old) AS old, MAX(present) AS present FROM (
         SELECT * FROM (SELECT name, NULL AS old, inode AS present FROM entries
           WHERE parent = ? AND name > ? AND (? IS NULL OR name <= ?) AND since > ? AND since <= ?
           ORDER BY name LIMIT ?)
         UNION ALL
         SELECT * FROM (
           SELECT name, CASE WHEN since <= ? THEN inode END, CASE WHEN until >= ? THEN inode END FROM past_entries
           WHERE parent = ? AND name > ? AND (? IS NULL OR name <= ?)
             AND (since <= ? AND until >= ? AND until < ? OR since > ? AND since <= ? AND until >= ?)
           ORDER BY name LIMIT ?))
       GROUP BY name ORDER BY name LIMIT ?`,
      ...[parent, after, last, last, from, to, countMax],
      ...[from, to],
      ...[parent, after, last, last],
      ...[from, from, to, from, to, to],
      ...[2 * countMax, countMax],
    );
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
