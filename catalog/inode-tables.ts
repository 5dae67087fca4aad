import { assert } from '../base/assert.ts';
import type { ChangeRecord } from './change-record.ts';
import { charge, chargeOf } from './charges.ts';
import type { InodeNumbers } from './inode-numbers.ts';
import { INODE_COLUMNS, type InodeRow } from './inode-rows.ts';
import { KIND_FILE } from './schema.ts';
import type { ServerTables } from './server-tables.ts';
import type { SnapshotTables } from './snapshot-tables.ts';
import type { Statements } from './statements.ts';
import type { TrashTables } from './trash-tables.ts';
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
  /** Of a directory: the one it is in, or `self` for the root of a volume. Else null. */
  readonly parent: number | 'self' | null;
  readonly orphanedNs: string | null;
  readonly policy: number;
  readonly allowed: number | null;
  /** A number that was reserved; absent: the next one. */
  readonly id?: number;
}

/** A file that comes with its contents, all of them settled. */
export interface BornInode {
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
}

// Made once: a statement is found by its text, and a text that is put together anew is hashed and compared anew.
const INODE = `SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.id = ?`;

/** What changes along. */
interface Others {
  readonly volumes: VolumeTables;
  readonly numbers: InodeNumbers;
  readonly servers: ServerTables;
  readonly trash: TrashTables;
  readonly snapshots: SnapshotTables;
  readonly changes: ChangeRecord;
}

/** The inodes. Straight access, no rules; what volumes count and servers hold is kept along. */
export class InodeTables {
  readonly #statements: Statements;
  readonly #volumes: VolumeTables;
  readonly #numbers: InodeNumbers;
  readonly #servers: ServerTables;
  readonly #trash: TrashTables;
  readonly #snapshots: SnapshotTables;
  readonly #changes: ChangeRecord;
  /** Times of creation are kept, as by all replicas that execute the same command. */
  isDated = false;

  constructor(statements: Statements, { volumes, numbers, servers, trash, snapshots, changes }: Others) {
    this.#statements = statements;
    this.#volumes = volumes;
    this.#numbers = numbers;
    this.#servers = servers;
    this.#trash = trash;
    this.#snapshots = snapshots;
    this.#changes = changes;
  }

  row(id: number): InodeRow | undefined {
    return this.#statements.get<InodeRow>(INODE, id);
  }

  /** An inode that one of our own tables or an earlier step names. */
  known(id: number): InodeRow {
    const row = this.row(id);
    assert(row !== undefined, 'An inode that is referred to exists');
    return row;
  }

  exists(id: number): boolean {
    return this.#statements.get('SELECT 1 FROM inodes WHERE id = ?', id) !== undefined;
  }

  /** @returns the new inode's number, larger than any before, also of inodes that are gone, unless it was reserved */
  insert(inode: NewInode): number {
    const id = inode.id ?? this.#numbers.take(1);
    this.#statements.run(
      `INSERT INTO inodes VALUES
         (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, ?, 0, 0, ?, ?, 0, ?, ?, ?, 0, 0, ?, 0)`,
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
      this.#snapshots.nextOf(inode.volume),
      this.isDated ? inode.atNs : null,
    );
    if (inode.replicas !== '') this.#servers.place(id, inode.replicas);
    this.#volumes.count(inode.volume, 1, 0);
    if (inode.orphanedNs === null) this.#volumes.charge(inode.volume, 1, chargeOf(inode));
    return id;
  }

  /** As `insert`, of a file with contents and a name; the volume is counted and charged by the caller, for many at once. */
  bear(inode: BornInode): void {
    this.#statements.run(
      `INSERT INTO inodes VALUES
         (?, ?, ${KIND_FILE}, ?, ?, ?, 1, ?, ?, ?, ?, '', 0, ?, 1, ?, ?, ?, ?, ?, 0, 0, 0, 0, NULL, 0, ?, ?, ?, 0, 0, ?, 0)`,
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
      this.#snapshots.nextOf(inode.volume),
      this.isDated ? inode.createdNs : null,
    );
    this.#servers.place(inode.id, inode.replicas);
  }

  /** Forgets an inode and its extended attributes. Its entries are gone already. */
  delete(inode: InodeRow): void {
    this.#changes.touch(inode.id);
    charge(this.#volumes, inode, -1, -chargeOf(inode));
    if (inode.trashed) this.#trash.delete(inode.id);
    this.#snapshots.keepWhole(inode.id);
    this.#statements.run('DELETE FROM xattrs WHERE inode = ?', inode.id);
    this.#statements.run('DELETE FROM inodes WHERE id = ?', inode.id);
    if (inode.replicas !== '') this.#servers.displace(inode.id, inode.replicas);
    this.#servers.endPlan(inode.id, Number.MAX_SAFE_INTEGER);
    this.#volumes.count(inode.volume, -1, inode.kind === KIND_FILE ? -inode.sizeBytes : 0);
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

  /** The servers that hold a file, and the number of the view that names them. */
  setView(inode: InodeRow, view: number, replicas: string): void {
    this.#changes.touch(inode.id);
    this.#servers.displace(inode.id, inode.replicas);
    this.#servers.place(inode.id, replicas);
    this.#servers.endPlan(inode.id, view);
    this.#statements.run('UPDATE inodes SET view = ?, replicas = ? WHERE id = ?', view, replicas, inode.id);
  }

  setWanted(id: number, wanted: number): void {
    this.#changes.touch(id);
    this.#statements.run('UPDATE inodes SET wanted = ? WHERE id = ?', wanted, id);
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

  /** A directory gained or lost a name, and perhaps a subdirectory. */
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

  /** As `setAccessed`, by a read: nobody is called back for that, and nobody is told. */
  noteAccessed(id: number, accessedNs: string): void {
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

  /** Contents as their primary told them. */
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

  /** A file that preserves the contents of another has them: where, and how large it is. */
  preserved(id: number, contents: InodeRow, view: number, replicas: string): void {
    this.#servers.place(id, replicas);
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

  /** The contents of a file with a name are others now. */
  modified(id: number): void {
    this.#changes.add({ kind: 'modified', inode: id });
  }
}
