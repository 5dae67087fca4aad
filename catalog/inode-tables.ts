import { assert } from '../base/assert.ts';
import type { ChangeRecord } from './change-record.ts';
import { charge, chargeOf, chargeQuotas, isCounted, type QuotaCounters } from './charges.ts';
import type { CloneTables } from './clone-tables.ts';
import type { DeletionLog } from './deletion-log.ts';
import type { DirectoryClassTables } from './directory-class-tables.ts';
import type { DirectoryQuotaTables } from './directory-quota-tables.ts';
import type { InodeNumbers } from './inode-numbers.ts';
import { INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import type { PlacementTables } from './placement-tables.ts';
import type { QuotaWalkTables } from './quota-walk-tables.ts';
import type { RetentionTables } from './retention-tables.ts';
import { KIND_DIRECTORY, KIND_FILE } from './schema.ts';
import type { SnapshotTables } from './snapshot-tables.ts';
import type { Statements } from './statements.ts';
import type { TrashTables } from './trash-tables.ts';
import type { NumberRun } from './volume-move-tables.ts';
import type { VolumeTables } from './volume-tables.ts';

export interface NewInode {
  readonly volume: number;
  readonly kind: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly sizeBytes: number;
  readonly atNs: string;
  readonly target: string;
  readonly device: number;
  readonly replicas: string;
  readonly view: number;
  readonly objectBytes: number;
  readonly live: number;
  /** A directory's parent, or `self` for a volume's root; else null. */
  readonly parent: number | 'self' | null;
  readonly orphanedNs: string | null;
  readonly policy: number;
  readonly allowed: number | null;
  /** The directory whose placement class it has; absent: the volume's. */
  readonly placement?: number;
  /** The directory whose quota it counts against; absent: its volume's alone. */
  readonly quota?: number;
  /** A reserved number; absent: the next one. */
  readonly id?: number;
}

/** What new directories without entries have in common. */
export const EMPTY_DIRECTORY = {
  ...{ kind: KIND_DIRECTORY, links: 2, sizeBytes: 0, target: '', device: 0, replicas: '', view: 0 },
  ...{ objectBytes: 0, live: 0, orphanedNs: null, policy: 0, allowed: null },
} as const;

/** A file created with its contents, all settled. */
export interface InodeWithContents {
  readonly id: number;
  readonly volume: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
  readonly createdNs: string;
  readonly replicas: string;
  readonly objectBytes: number;
  readonly contentsEpoch: number;
  readonly contentsSeq: number;
  readonly policy: number;
  readonly allowed: number | null;
  readonly placement: number;
  readonly quota: number;
}

const INODE = `SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.id = ?`;

interface SharedTables {
  readonly volumes: VolumeTables;
  readonly numbers: InodeNumbers;
  readonly placements: PlacementTables;
  readonly classes: DirectoryClassTables;
  readonly quotas: DirectoryQuotaTables;
  readonly walks: QuotaWalkTables;
  readonly trash: TrashTables;
  readonly retentions: RetentionTables;
  readonly clones: CloneTables;
  readonly snapshots: SnapshotTables;
  readonly deletions: DeletionLog;
  readonly changes: ChangeRecord;
}

/** Inodes. Plain access, no rules; also updates volumes' counters and servers' placements. */
export class InodeTables {
  readonly #statements: Statements;
  readonly #volumes: VolumeTables;
  readonly #quotas: DirectoryQuotaTables;
  readonly #walks: QuotaWalkTables;
  readonly #numbers: InodeNumbers;
  readonly #placements: PlacementTables;
  readonly #classes: DirectoryClassTables;
  readonly #trash: TrashTables;
  readonly #retentions: RetentionTables;
  readonly #clones: CloneTables;
  readonly #snapshots: SnapshotTables;
  readonly #deletions: DeletionLog;
  readonly #changes: ChangeRecord;
  /** Whether creation times are stored; the same at all replicas executing a command. */
  storesCreationTimes = false;

  constructor(
    statements: Statements,
    { volumes, quotas, numbers, placements, classes, trash, retentions, ...others }: SharedTables,
  ) {
    this.#statements = statements;
    this.#volumes = volumes;
    this.#quotas = quotas;
    this.#numbers = numbers;
    this.#placements = placements;
    this.#classes = classes;
    this.#trash = trash;
    this.#retentions = retentions;
    this.#walks = others.walks;
    this.#clones = others.clones;
    this.#snapshots = others.snapshots;
    this.#deletions = others.deletions;
    this.#changes = others.changes;
  }

  get #counters(): QuotaCounters {
    return { volumes: this.#volumes, quotas: this.#quotas };
  }

  row(id: number): InodeRow | undefined {
    return this.#statements.get<InodeRow>(INODE, id);
  }

  existing(id: number): InodeRow {
    const row = this.row(id);
    assert(row !== undefined, 'An inode that is referred to exists');
    return row;
  }

  exists(id: number): boolean {
    return this.#statements.get('SELECT 1 FROM inodes WHERE id = ?', id) !== undefined;
  }

  volumeOf(id: number): number | undefined {
    return this.#statements.get<{ volume: number }>('SELECT volume FROM inodes WHERE id = ?', id)?.volume;
  }

  /** Inodes with numbers of the run, in their order. */
  within({ first, last }: NumberRun, countMax: number): number[] {
    return this.#statements
      .all<{ id: number }>(
        'SELECT id FROM inodes WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?',
        ...[first, last, countMax],
      )
      .map(({ id }) => id);
  }

  /** Inodes that count against the quota of a directory, or did, without the directory itself. */
  againstQuota(directory: number, countMax: number): number[] {
    return this.#statements
      .all<{ id: number }>(
        'SELECT id FROM inodes WHERE quota = ? AND quota > 0 AND id <> ? LIMIT ?',
        ...[directory, directory, countMax],
      )
      .map(({ id }) => id);
  }

  /** @returns the new inode's number: larger than all before, unless it was reserved */
  insert(inode: NewInode): number {
    const id = inode.id ?? this.#numbers.take(1);
    this.#statements.run(
      `INSERT INTO inodes VALUES
         (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, ?, 0, 0, ?, ?, 0, ?, ?, ?, 0, 0, ?, 0, ?, ?)`,
      id,
      inode.volume,
      inode.kind,
      inode.mode,
      inode.uid,
      inode.gid,
      inode.links,
      inode.sizeBytes,
      inode.atNs,
      inode.atNs,
      inode.atNs,
      inode.target,
      inode.device,
      inode.replicas,
      inode.view,
      inode.objectBytes,
      inode.live,
      inode.parent === 'self' ? id : (inode.parent ?? 0),
      inode.orphanedNs,
      inode.policy,
      inode.allowed,
      this.#snapshots.nextSerialOfVolume(inode.volume),
      this.storesCreationTimes ? inode.atNs : null,
      inode.placement ?? 0,
      inode.quota ?? 0,
    );
    if (inode.replicas !== '') this.#placements.add(id, inode.replicas);
    this.#volumes.count(inode.volume, 1, 0);
    if (inode.orphanedNs === null)
      chargeQuotas(this.#counters, { volume: inode.volume, quota: inode.quota ?? 0 }, 1, chargeOf(inode));
    return id;
  }

  /** Like `insert`, for a linked file with contents; the caller adds to all counters, once for many files. */
  insertWithContents(inode: InodeWithContents): void {
    this.#statements.run(
      `INSERT INTO inodes VALUES
         (?, ?, ${KIND_FILE}, ?, ?, ?, 1, ?, ?, ?, ?, '', 0, ?, 1, ?, ?, ?, ?, ?, 0, 0, 0, 0, NULL, 0, ?, ?, ?, 0, 0, ?, 0, ?, ?)`,
      inode.id,
      inode.volume,
      inode.mode,
      inode.uid,
      inode.gid,
      inode.sizeBytes,
      inode.accessedNs,
      inode.modifiedNs,
      inode.changedNs,
      inode.replicas,
      inode.objectBytes,
      inode.contentsEpoch,
      inode.contentsSeq,
      inode.contentsEpoch,
      inode.contentsSeq,
      inode.policy,
      inode.allowed,
      this.#snapshots.nextSerialOfVolume(inode.volume),
      this.storesCreationTimes ? inode.createdNs : null,
      inode.placement,
      inode.quota,
    );
    this.#placements.insert(inode.id, inode.replicas);
  }

  /**
   * Inserts the copy of an inode that a snapshot shows, into a clone that has had it from the beginning: snapshots of
   * the clone show it. A file has no servers, and the version of a file created with contents. The caller adds to the
   * counters. @returns its number
   */
  insertCopy(
    origin: InodeRow,
    at: { readonly parent: number | 'self' | null } & Pick<InodeRow, 'volume' | 'placement' | 'quota'>,
  ): number {
    const id = this.#numbers.take(1);
    const isFile = origin.kind === KIND_FILE;
    const version = isFile ? 1 : 0;
    this.#statements.run(
      `INSERT INTO inodes (id, volume, kind, mode, uid, gid, links, size, accessed_ns, modified_ns, changed_ns, target,
         device, replicas, view, object_bytes, contents_epoch, contents_seq, modified_epoch, modified_seq, live,
         mark_epoch, mark_turn, parent, policy, since, holes, created_ns, placement, quota)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, 1, ?, ?, ?, ?)`,
      ...[id, at.volume, origin.kind, origin.mode, origin.uid, origin.gid, origin.links, origin.sizeBytes],
      ...[origin.accessedNs, origin.modifiedNs, origin.changedNs, origin.target, origin.device],
      ...[origin.objectBytes, version, version, version, version],
      ...[at.parent === 'self' ? id : (at.parent ?? 0), origin.policy, origin.holeBytes, origin.createdNs],
      ...[isFile || origin.kind === KIND_DIRECTORY ? at.placement : 0, at.quota],
    );
    return id;
  }

  delete(inode: InodeRow): void {
    this.#changes.touch(inode.id);
    if (inode.kind === KIND_DIRECTORY) this.#classes.delete(inode.id);
    this.#snapshots.keepInodeAndXattrs(inode.id);
    this.#statements.run('DELETE FROM xattrs WHERE inode = ?', inode.id);
    this.#deletions.append(inode.id, inode.replicas);
    this.#placements.endPlan(inode.id, Number.MAX_SAFE_INTEGER);
    this.#clones.end(inode.id);
    this.forget(inode);
  }

  /** Deletes the row of an inode that lives on in another catalog: no client, snapshot or server learns of it. */
  forget(inode: InodeRow): void {
    charge(this.#counters, inode, -1, -chargeOf(inode));
    if (inode.trashed) this.#trash.delete(inode.id);
    if (inode.retainNs !== null) this.#retentions.delete(inode.id);
    if (inode.kind === KIND_DIRECTORY) this.#walks.directoryRemoved(inode.id);
    this.#statements.run('DELETE FROM inodes WHERE id = ?', inode.id);
    if (inode.replicas !== '') this.#placements.remove(inode.id, inode.replicas);
    this.#volumes.count(inode.volume, -1, inode.kind === KIND_FILE ? -inode.sizeBytes : 0);
  }

  /**
   * Moves an inode with a name from its volume to another one of the catalog. No client or snapshot learns of it. It
   * counts against the same quotas of directories.
   */
  setVolume(inode: InodeRow, volume: number): void {
    const bytes = inode.kind === KIND_FILE ? inode.sizeBytes : 0;
    if (isCounted(inode)) this.#volumes.charge(inode.volume, -1, -chargeOf(inode));
    this.#volumes.count(inode.volume, -1, -bytes);
    this.#statements.run('UPDATE inodes SET volume = ? WHERE id = ?', volume, inode.id);
    if (inode.kind === KIND_DIRECTORY) {
      this.#classes.setVolume(inode.id, volume);
      this.#quotas.setVolume(inode.id, volume);
    }
    this.#volumes.count(volume, 1, bytes);
    if (isCounted(inode)) this.#volumes.charge(volume, 1, chargeOf(inode));
  }

  setLinks(id: number, links: number, orphanedNs: string | null, changedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run(
      'UPDATE inodes SET links = ?, orphaned_ns = ?, changed_ns = ? WHERE id = ?',
      links,
      orphanedNs,
      changedNs,
      id,
    );
  }

  setView(inode: InodeRow, view: number, replicas: string): void {
    this.#changes.touch(inode.id);
    this.#placements.remove(inode.id, inode.replicas);
    this.#placements.add(inode.id, replicas);
    this.#placements.endPlan(inode.id, view);
    const members = replicas.split(',');
    const left = inode.replicas.split(',').filter((server) => !members.includes(server));
    this.#deletions.append(inode.id, left.join(','));
    this.#statements.run('UPDATE inodes SET view = ?, replicas = ? WHERE id = ?', view, replicas, inode.id);
  }

  /** A file without servers gets those of its first view. @param replicas server ids, separated by commas */
  setFirstView(id: number, replicas: string): void {
    this.#changes.touch(id);
    this.#placements.add(id, replicas);
    this.#statements.run('UPDATE inodes SET view = 1, replicas = ? WHERE id = ?', replicas, id);
  }

  setWanted(id: number, wanted: number): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET wanted = ? WHERE id = ?', wanted, id);
  }

  setPlacement(id: number, placement: number): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET placement = ? WHERE id = ?', placement, id);
  }

  /** The caller charges the quotas that it counted against, and those that it counts against now. */
  setQuota(id: number, quota: number): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET quota = ? WHERE id = ?', quota, id);
  }

  setOrphaned(id: number, orphanedNs: string): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET orphaned_ns = ? WHERE id = ?', orphanedNs, id);
  }

  setChanged(id: number, changedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET changed_ns = ? WHERE id = ?', changedNs, id);
  }

  /** A directory gained or lost an entry, and perhaps a subdirectory. */
  touchDirectory(id: number, linksDelta: number, atNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run(
      'UPDATE inodes SET links = links + ?, modified_ns = ?, changed_ns = ? WHERE id = ?',
      linksDelta,
      atNs,
      atNs,
      id,
    );
  }

  setParent(id: number, parent: number): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET parent = ? WHERE id = ?', parent, id);
  }

  setAttributes(id: number, mode: number, uid: number, gid: number, changedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run(
      'UPDATE inodes SET mode = ?, uid = ?, gid = ?, changed_ns = ? WHERE id = ?',
      mode,
      uid,
      gid,
      changedNs,
      id,
    );
  }

  setFlags(id: number, flags: number, changedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET flags = ?, changed_ns = ? WHERE id = ?', flags, changedNs, id);
  }

  setAccessed(id: number, accessedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET accessed_ns = ? WHERE id = ?', accessedNs, id);
  }

  /** Like `setAccessed`, for a read: recalls no client's cached copy, and watches report nothing. */
  setAccessedByRead(id: number, accessedNs: string): void {
    this.#snapshots.keepInode(id);
    this.#statements.run('UPDATE inodes SET accessed_ns = ? WHERE id = ?', accessedNs, id);
  }

  setModified(id: number, modifiedNs: string, epoch: number, seq: number): void {
    this.#snapshots.keepInode(id);
    this.#changes.touch(id);
    this.#statements.run(
      'UPDATE inodes SET modified_ns = ?, modified_epoch = ?, modified_seq = ? WHERE id = ?',
      modifiedNs,
      epoch,
      seq,
      id,
    );
  }

  markLive(id: number, epoch: number, turn: number): void {
    this.#changes.touch(id);
    this.#statements.run(
      'UPDATE inodes SET live = 1, mark_epoch = ?, mark_turn = ? WHERE id = ?',
      epoch,
      turn,
      id,
    );
  }

  /** Stores what a file's primary reported. */
  settle(
    id: number,
    sizeBytes: number,
    holeBytes: number,
    modifiedNs: string,
    changedNs: string,
    epoch: number,
    seq: number,
    live: number,
    allowed: number | null,
  ): void {
    this.#changes.touch(id);
    this.#statements.run(
      `UPDATE inodes SET size = ?, holes = ?, modified_ns = ?, changed_ns = ?, contents_epoch = ?, contents_seq = ?, live = ?,
         allowed = ?
       WHERE id = ?`,
      sizeBytes,
      holeBytes,
      modifiedNs,
      changedNs,
      epoch,
      seq,
      live,
      allowed,
      id,
    );
  }

  setPreserving(id: number, preserving: number): void {
    this.#statements.run('UPDATE inodes SET preserving = ? WHERE id = ?', preserving, id);
  }

  /** The inode got the contents that it preserves for snapshots: stores their servers, size and version. */
  storePreserved(id: number, contents: InodeRow, view: number, replicas: string): void {
    this.#placements.add(id, replicas);
    this.#statements.run(
      `UPDATE inodes SET view = ?, replicas = ?, size = ?, modified_ns = ?, contents_epoch = ?, contents_seq = ? WHERE id = ?`,
      view,
      replicas,
      contents.sizeBytes,
      contents.modifiedNs,
      contents.contentsEpoch,
      contents.contentsSeq,
      id,
    );
    this.#volumes.count(contents.volume, 0, contents.sizeBytes);
  }

  setAllowed(id: number, allowed: number | null): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET allowed = ? WHERE id = ?', allowed, id);
  }

  noteModified(id: number): void {
    this.#changes.add({ kind: 'modified', inode: id });
  }
}
