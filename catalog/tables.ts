import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import { charge, chargeOf } from './quota.ts';
import { type CatalogDatabase, KIND_FILE } from './schema.ts';
import { ServerTables } from './server-tables.ts';
import { SnapshotTables } from './snapshot-tables.ts';
import { Statements } from './statements.ts';
import { TrashTables } from './trash-tables.ts';

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
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
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

export interface VolumeRow {
  readonly id: number;
  readonly name: string;
  readonly root: number;
  readonly replicas: number;
  readonly objectBytes: number;
  readonly inodes: number;
  readonly usedBytes: number;
  readonly policy: number;
  /** 0 for none. */
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  /** Of inodes with a name or in the trash; with what files that are written may grow to. */
  readonly namedInodes: number;
  readonly namedBytes: number;
  /** How long files are kept that lost their last name, in milliseconds; 0: they are not. */
  readonly trashMs: number;
  /** What of the above is in the trash. */
  readonly trashedInodes: number;
  readonly trashedBytes: number;
  /** Of the latest snapshot that was ever made, and of the latest that is there; 0 for none. */
  readonly serial: number;
  readonly kept: number;
}

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
  readonly replicas: string;
  readonly objectBytes: number;
  readonly contentsEpoch: number;
  readonly contentsSeq: number;
  readonly policy: number;
  readonly allowed: number | null;
}

/** Numbers `first` to `last`, for who has `owner`. */
interface ReservedRow {
  readonly first: number;
  readonly last: number;
  readonly owner: number;
  readonly atNs: string;
}

export interface SessionRow {
  readonly usedSeq: number;
  readonly highest: number;
}

/**
 * No joins where one row is asked for: SQLite (built with STAT4) compiles a join anew whenever a
 * bound value changes, which costs thirty times the execution. Subqueries are left alone.
 */
const INODE_COLUMNS = `
  i.id, i.volume, (SELECT v.name FROM volumes v WHERE v.id = i.volume) AS volumeName, i.kind, i.mode, i.uid, i.gid, i.links, i.size AS sizeBytes,
  CAST(i.accessed_ns AS TEXT) AS accessedNs, CAST(i.modified_ns AS TEXT) AS modifiedNs,
  CAST(i.changed_ns AS TEXT) AS changedNs, i.target, i.device, i.replicas, i.view,
  i.object_bytes AS objectBytes, i.contents_epoch AS contentsEpoch, i.contents_seq AS contentsSeq,
  i.modified_epoch AS modifiedEpoch, i.modified_seq AS modifiedSeq, i.live,
  i.mark_epoch AS markEpoch, i.mark_turn AS markTurn, i.parent,
  CAST(i.orphaned_ns AS TEXT) AS orphanedNs,
  i.orphaned_ns IS NOT NULL AND EXISTS (SELECT 1 FROM trash t WHERE t.inode = i.id) AS trashed, i.wanted, i.policy, i.allowed,
  i.preserving, i.since,
  (SELECT COUNT(*) FROM xattrs x WHERE x.inode = i.id) AS xattrs`;

const VOLUME_COLUMNS = `id, name, root, replicas, object_bytes AS objectBytes, inodes, used_bytes AS usedBytes, policy,
  quota_bytes AS quotaBytes, quota_inodes AS quotaInodes, named_inodes AS namedInodes, named_bytes AS namedBytes,
  trash_ms AS trashMs, trashed_inodes AS trashedInodes, trashed_bytes AS trashedBytes,
  serial, kept`;

/** What happened to a name, or to the contents of a file that were written in place. */
export type NameChange =
  | {
      readonly kind: 'created' | 'replaced' | 'removed';
      readonly parent: number;
      readonly name: string;
      readonly inode: number;
    }
  | { readonly kind: 'modified'; readonly inode: number };

/** A name of an inode in a directory. */
export interface NameRow {
  readonly inode: number;
  readonly parent: number;
  readonly name: string;
}

/**
 * The tables as statements that are prepared once for a handle. Straight access, no rules: those
 * are in the commands. A statement is prepared at its first use, so that a handle for reading
 * prepares none that writes.
 */
export class Tables {
  /** Who holds what. */
  readonly servers: ServerTables;
  readonly trash: TrashTables;
  /** What snapshots show. Every change of a row that they show keeps it there first. */
  readonly snapshots: SnapshotTables;
  readonly #db: CatalogDatabase;
  readonly #statements: Statements;
  /** Inodes of which a row, a name or an extended attribute was written since `forgetTouched`. */
  readonly #touched = new Set<number>();
  /** What commands have done that were not undone, since it was last taken. */
  #changes: NameChange[] = [];
  #changesBefore = 0;

  private constructor(db: CatalogDatabase) {
    this.#db = db;
    this.#statements = new Statements(db);
    this.servers = new ServerTables(this.#statements);
    this.trash = new TrashTables(this.#statements);
    this.snapshots = new SnapshotTables(this.#statements);
  }

  static readonly #ofHandle = new WeakMap<CatalogDatabase, Tables>();

  static of(db: CatalogDatabase): Tables {
    const known = Tables.#ofHandle.get(db);
    if (known !== undefined) return known;
    const tables = new Tables(db);
    Tables.#ofHandle.set(db, tables);
    return tables;
  }

  // Savepoints --------------------------------------------------------------------------------

  begin(): void {
    assert(this.#db.inTransaction, 'A command runs inside the transaction of its batch');
    this.#run('SAVEPOINT command');
    this.snapshots.begin();
    this.#changesBefore = this.#changes.length;
  }

  keep(): void {
    this.#run('RELEASE command');
  }

  undo(): void {
    this.#run('ROLLBACK TO command');
    this.#changes.length = this.#changesBefore;
    this.#run('RELEASE command');
  }

  /** @returns inodes of which something was written since `forgetTouched`: rows, names in directories, extended attributes */
  touched(): number[] {
    return [...this.#touched];
  }

  /** @returns what was done to names and contents since the last call; of a transaction that was rolled back nothing counts */
  takeChanges(): readonly NameChange[] {
    const taken = this.#changes;
    this.#changes = [];
    return taken;
  }

  /** The contents of a file with a name are others now. */
  inodeModified(inode: number): void {
    this.#changes.push({ kind: 'modified', inode });
  }

  forgetTouched(): void {
    this.#touched.clear();
  }

  // Volumes -----------------------------------------------------------------------------------

  volume(id: number): VolumeRow {
    const row = this.#get<VolumeRow>(`SELECT ${VOLUME_COLUMNS} FROM volumes WHERE id = ?`, id);
    assert(row !== undefined, 'An inode belongs to a volume that exists');
    return row;
  }

  volumeNamed(name: string): VolumeRow | undefined {
    return this.#get<VolumeRow>(`SELECT ${VOLUME_COLUMNS} FROM volumes WHERE name = ?`, name);
  }

  volumes(): VolumeRow[] {
    return this.#all<VolumeRow>(`SELECT ${VOLUME_COLUMNS} FROM volumes ORDER BY name`);
  }

  volumeInsert(name: string, root: number, replicas: number, objectBytes: number, policy: number): number {
    const id = this.#counter('UPDATE counters SET next_volume = next_volume + 1 RETURNING next_volume - 1');
    this.#run(
      `INSERT INTO volumes (id, name, root, replicas, object_bytes, inodes, used_bytes, policy)
       VALUES (?, ?, ?, ?, ?, 0, 0, ?)`,
      id,
      name,
      root,
      replicas,
      objectBytes,
      policy,
    );
    return id;
  }

  volumeSetRoot(id: number, root: number): void {
    this.#run('UPDATE volumes SET root = ? WHERE id = ?', root, id);
  }

  volumeSet(
    id: number,
    values: Pick<VolumeRow, 'replicas' | 'policy' | 'quotaBytes' | 'quotaInodes' | 'trashMs'>,
  ): void {
    this.#run(
      'UPDATE volumes SET replicas = ?, policy = ?, quota_bytes = ?, quota_inodes = ?, trash_ms = ? WHERE id = ?',
      values.replicas,
      values.policy,
      values.quotaBytes,
      values.quotaInodes,
      values.trashMs,
      id,
    );
  }

  volumeDelete(id: number): void {
    this.#run('DELETE FROM volumes WHERE id = ?', id);
  }

  /** The counters that `df` shows are kept up to date with every change, never counted. */
  volumeCount(id: number, inodes: number, usedBytes: number): void {
    this.#run(
      'UPDATE volumes SET inodes = inodes + ?, used_bytes = used_bytes + ? WHERE id = ?',
      inodes,
      usedBytes,
      id,
    );
  }

  /** What quotas go by, kept up to date in the same way. */
  volumeCharge(id: number, inodes: number, bytes: number): void {
    if (inodes === 0 && bytes === 0) return;
    this.#run(
      'UPDATE volumes SET named_inodes = named_inodes + ?, named_bytes = named_bytes + ? WHERE id = ?',
      inodes,
      bytes,
      id,
    );
  }

  /** What of it is in the trash. */
  volumeChargeTrash(id: number, inodes: number, bytes: number): void {
    this.#run(
      'UPDATE volumes SET trashed_inodes = trashed_inodes + ?, trashed_bytes = trashed_bytes + ? WHERE id = ?',
      inodes,
      bytes,
      id,
    );
  }

  // Inodes ------------------------------------------------------------------------------------

  inode(id: number): InodeRow | undefined {
    return this.#get<InodeRow>(`SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.id = ?`, id);
  }

  /** An inode that one of our own tables or an earlier step names. */
  inodeKnown(id: number): InodeRow {
    const row = this.inode(id);
    assert(row !== undefined, 'An inode that is referred to exists');
    return row;
  }

  inodeExists(id: number): boolean {
    return this.#get('SELECT 1 FROM inodes WHERE id = ?', id) !== undefined;
  }

  /** Inodes are not numbered below `id` from now on. */
  inodesFrom(id: number): void {
    this.#run('UPDATE counters SET next_inode = ? WHERE next_inode < ?', id, id);
  }

  /** The number that the next inode is going to have. */
  nextInode(): number {
    return this.#counter('SELECT next_inode FROM counters');
  }

  /** @returns the first of so many numbers that were never used, nor will be by anybody else */
  inodesTake(count: number): number {
    const next = this.#counter('UPDATE counters SET next_inode = next_inode + ? RETURNING next_inode', count);
    if (!Number.isSafeInteger(next)) throw new ServiceError('no-space', 'Cannot number another inode');
    return next - count;
  }

  /** @returns the new inode's number, larger than any before, also of inodes that are gone, unless it was reserved */
  inodeInsert(inode: NewInode): number {
    const id = inode.id ?? this.inodesTake(1);
    this.#run(
      `INSERT INTO inodes VALUES
         (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, ?, 0, 0, ?, ?, 0, ?, ?, ?, 0)`,
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
      this.snapshots.nextOf(inode.volume),
    );
    if (inode.replicas !== '') this.servers.place(id, inode.replicas);
    this.volumeCount(inode.volume, 1, 0);
    if (inode.orphanedNs === null) this.volumeCharge(inode.volume, 1, chargeOf(inode));
    return id;
  }

  /** As `inodeInsert`, of a file with contents and a name; the volume is counted and charged by the caller, for many at once. */
  inodeBear(inode: BornInode): void {
    this.#run(
      `INSERT INTO inodes VALUES
         (?, ?, ${KIND_FILE}, ?, ?, ?, 1, ?, ?, ?, ?, '', 0, ?, 1, ?, ?, ?, ?, ?, 0, 0, 0, 0, NULL, 0, ?, ?, ?, 0)`,
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
      this.snapshots.nextOf(inode.volume),
    );
    this.servers.place(inode.id, inode.replicas);
  }

  // Reserved numbers --------------------------------------------------------------------------

  reservedInsert(first: number, last: number, owner: number, atNs: string): void {
    this.#run(
      'INSERT INTO reserved (first, last, owner, at_ns) VALUES (?, ?, ?, ?)',
      first,
      last,
      owner,
      atNs,
    );
  }

  isReserved(inode: number): boolean {
    return this.#reservedAround(inode) !== undefined;
  }

  /** Uses a number up. @returns whether it was reserved by that owner, and not used before */
  reservedTake(owner: number, inode: number): boolean {
    const range = this.#reservedAround(inode);
    if (range === undefined || range.owner !== owner) return false;
    const { first, last, atNs } = range;
    this.#run('DELETE FROM reserved WHERE first = ?', first);
    if (first < inode) this.reservedInsert(first, inode - 1, owner, atNs);
    if (inode < last) this.reservedInsert(inode + 1, last, owner, atNs);
    return true;
  }

  /** Forgets what was reserved before; nothing will have those numbers. */
  reservedForget(beforeNs: string): void {
    this.#run('DELETE FROM reserved WHERE at_ns < CAST(? AS INTEGER)', beforeNs);
  }

  #reservedAround(inode: number): ReservedRow | undefined {
    const row = this.#get<ReservedRow>(
      `SELECT first, last, owner, CAST(at_ns AS TEXT) AS atNs FROM reserved
       WHERE first <= ? ORDER BY first DESC LIMIT 1`,
      inode,
    );
    return row !== undefined && inode <= row.last ? row : undefined;
  }

  /** Forgets an inode and its extended attributes. Its entries are gone already. */
  inodeDelete(inode: InodeRow): void {
    this.#touched.add(inode.id);
    charge(this, inode, -1, -chargeOf(inode));
    if (inode.trashed) this.trash.delete(inode.id);
    this.snapshots.keepWhole(inode.id);
    this.#run('DELETE FROM xattrs WHERE inode = ?', inode.id);
    this.#run('DELETE FROM inodes WHERE id = ?', inode.id);
    if (inode.replicas !== '') this.servers.displace(inode.id, inode.replicas);
    this.volumeCount(inode.volume, -1, inode.kind === KIND_FILE ? -inode.sizeBytes : 0);
  }

  inodeSetLinks(id: number, links: number, orphanedNs: string | null, changedNs: string): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run(
      'UPDATE inodes SET links = ?, orphaned_ns = ?, changed_ns = ? WHERE id = ?',
      links,
      orphanedNs,
      changedNs,
      id,
    );
  }

  /** The servers that hold a file, and the number of the view that names them. */
  inodeSetView(inode: InodeRow, view: number, replicas: string): void {
    this.#touched.add(inode.id);
    this.servers.displace(inode.id, inode.replicas);
    this.servers.place(inode.id, replicas);
    this.#run('UPDATE inodes SET view = ?, replicas = ? WHERE id = ?', view, replicas, inode.id);
  }

  inodeSetWanted(id: number, wanted: number): void {
    this.#touched.add(id);
    this.#run('UPDATE inodes SET wanted = ? WHERE id = ?', wanted, id);
  }

  inodeSetOrphaned(id: number, orphanedNs: string): void {
    this.#touched.add(id);
    this.#run('UPDATE inodes SET orphaned_ns = ? WHERE id = ?', orphanedNs, id);
  }

  inodeSetChanged(id: number, changedNs: string): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run('UPDATE inodes SET changed_ns = ? WHERE id = ?', changedNs, id);
  }

  /** A directory gained or lost a name, and perhaps a subdirectory. */
  directoryTouch(id: number, linksDelta: number, atNs: string): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run(
      'UPDATE inodes SET links = links + ?, modified_ns = ?, changed_ns = ? WHERE id = ?',
      linksDelta,
      atNs,
      atNs,
      id,
    );
  }

  directorySetParent(id: number, parent: number): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run('UPDATE inodes SET parent = ? WHERE id = ?', parent, id);
  }

  inodeSetAttributes(id: number, mode: number, uid: number, gid: number, changedNs: string): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run(
      'UPDATE inodes SET mode = ?, uid = ?, gid = ?, changed_ns = ? WHERE id = ?',
      mode,
      uid,
      gid,
      changedNs,
      id,
    );
  }

  inodeSetAccessed(id: number, accessedNs: string): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run('UPDATE inodes SET accessed_ns = ? WHERE id = ?', accessedNs, id);
  }

  inodeSetModified(id: number, modifiedNs: string, epoch: number, seq: number): void {
    this.snapshots.keepInode(id);
    this.#touched.add(id);
    this.#run(
      'UPDATE inodes SET modified_ns = ?, modified_epoch = ?, modified_seq = ? WHERE id = ?',
      modifiedNs,
      epoch,
      seq,
      id,
    );
  }

  inodeMarkLive(id: number, epoch: number, turn: number): void {
    this.#touched.add(id);
    this.#run('UPDATE inodes SET live = 1, mark_epoch = ?, mark_turn = ? WHERE id = ?', epoch, turn, id);
  }

  /** Contents as their primary told them. */
  inodeSettle(
    id: number,
    sizeBytes: number,
    modifiedNs: string,
    changedNs: string,
    epoch: number,
    seq: number,
    live: number,
    allowed: number | null,
  ): void {
    this.#touched.add(id);
    this.#run(
      `UPDATE inodes SET size = ?, modified_ns = ?, changed_ns = ?, contents_epoch = ?, contents_seq = ?, live = ?,
         allowed = ?
       WHERE id = ?`,
      sizeBytes,
      modifiedNs,
      changedNs,
      epoch,
      seq,
      live,
      allowed,
      id,
    );
  }

  inodeSetPreserving(id: number, preserving: number): void {
    this.#run('UPDATE inodes SET preserving = ? WHERE id = ?', preserving, id);
  }

  /** Files whose contents are about to be preserved. */
  filesPreserving(): InodeRow[] {
    return this.#all<InodeRow>(`SELECT ${INODE_COLUMNS} FROM inodes i WHERE i.preserving > 0 ORDER BY i.id`);
  }

  /** A file that preserves the contents of another has them: where, and how large it is. */
  inodePreserved(id: number, contents: InodeRow, view: number, replicas: string): void {
    this.servers.place(id, replicas);
    this.#run(
      `UPDATE inodes SET view = ?, replicas = ?, size = ?, modified_ns = ?, contents_epoch = ?, contents_seq = ? WHERE id = ?`,
      view,
      replicas,
      contents.sizeBytes,
      contents.modifiedNs,
      contents.contentsEpoch,
      contents.contentsSeq,
      id,
    );
    this.volumeCount(contents.volume, 0, contents.sizeBytes);
  }

  inodeSetAllowed(id: number, allowed: number | null): void {
    this.#touched.add(id);
    this.#run('UPDATE inodes SET allowed = ? WHERE id = ?', allowed, id);
  }

  /** Files of a volume that have a name and may be being written. */
  liveFiles(volume: number, countMax: number): number[] {
    return this.#all<{ id: number }>(
      'SELECT id FROM inodes WHERE live = 1 AND orphaned_ns IS NULL AND volume = ? ORDER BY id LIMIT ?',
      volume,
      countMax,
    ).map(({ id }) => id);
  }

  /** Files without a name since before `beforeNs`, the longest nameless first. */
  orphansBefore(beforeNs: string, countMax: number): InodeRow[] {
    return this.#all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.orphaned_ns < CAST(? AS INTEGER)
       ORDER BY i.orphaned_ns, i.id LIMIT ?`,
      beforeNs,
      countMax,
    );
  }

  orphansOfVolume(volume: number): InodeRow[] {
    return this.#all<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.orphaned_ns IS NOT NULL AND i.volume = ? ORDER BY i.orphaned_ns, i.id`,
      volume,
    );
  }

  // Entries -----------------------------------------------------------------------------------

  /** The inode that `name` stands for in a directory. */
  child(parent: number, name: string): InodeRow | undefined {
    return this.#get<InodeRow>(
      `SELECT ${INODE_COLUMNS} FROM inodes i
       WHERE i.id = (SELECT e.inode FROM entries e WHERE e.parent = ? AND e.name = ?)`,
      parent,
      name,
    );
  }

  hasChild(parent: number, name: string): boolean {
    return this.#get('SELECT 1 FROM entries WHERE parent = ? AND name = ?', parent, name) !== undefined;
  }

  children(parent: number, after: string, countMax: number): EntryRow[] {
    return this.#all<EntryRow>(
      `SELECT e.name AS entryName, ${INODE_COLUMNS}
       FROM entries e JOIN inodes i ON i.id = e.inode
       WHERE e.parent = ? AND e.name > ? ORDER BY e.name LIMIT ?`,
      parent,
      after,
      countMax,
    );
  }

  /** One name of each of the inodes that has any. Reads all names, once. */
  firstNames(inodes: readonly number[]): NameRow[] {
    return this.#all<NameRow>(
      `SELECT inode, parent, min(name) AS name FROM entries
       WHERE inode IN (SELECT value FROM json_each(?)) GROUP BY inode ORDER BY inode`,
      JSON.stringify(inodes),
    );
  }

  /** The name of an inode in a directory. */
  nameIn(parent: number, inode: number): string | undefined {
    const row = this.#get<{ name: string }>(
      'SELECT name FROM entries WHERE parent = ? AND inode = ?',
      parent,
      inode,
    );
    return row?.name;
  }

  hasChildren(parent: number): boolean {
    return this.#get('SELECT 1 FROM entries WHERE parent = ? LIMIT 1', parent) !== undefined;
  }

  entryInsert(parent: number, name: string, inode: number): void {
    this.#touched.add(parent);
    this.#changes.push({ kind: 'created', parent, name, inode });
    const since = this.snapshots.nextIn(parent);
    this.#run(
      'INSERT INTO entries (parent, name, inode, since) VALUES (?, ?, ?, ?)',
      parent,
      name,
      inode,
      since,
    );
  }

  entrySetInode(parent: number, name: string, inode: number): void {
    this.#touched.add(parent);
    this.#changes.push({ kind: 'replaced', parent, name, inode });
    this.snapshots.keepEntry(parent, name);
    this.#run('UPDATE entries SET inode = ? WHERE parent = ? AND name = ?', inode, parent, name);
  }

  entryDelete(parent: number, name: string, inode: number): void {
    this.#touched.add(parent);
    this.#changes.push({ kind: 'removed', parent, name, inode });
    this.snapshots.keepEntry(parent, name);
    this.#run('DELETE FROM entries WHERE parent = ? AND name = ?', parent, name);
  }

  // Extended attributes -----------------------------------------------------------------------

  xattr(inode: number, name: string): Uint8Array | undefined {
    return this.#get<{ value: Uint8Array }>(
      'SELECT value FROM xattrs WHERE inode = ? AND name = ?',
      inode,
      name,
    )?.value;
  }

  xattrNames(inode: number): string[] {
    return this.#all<{ name: string }>('SELECT name FROM xattrs WHERE inode = ? ORDER BY name', inode).map(
      (row) => row.name,
    );
  }

  xattrCount(inode: number): number {
    return (
      this.#get<{ count: number }>('SELECT COUNT(*) AS count FROM xattrs WHERE inode = ?', inode)?.count ?? 0
    );
  }

  xattrPut(inode: number, name: string, value: Uint8Array): void {
    this.#touched.add(inode);
    this.snapshots.keepXattrs(inode, name);
    const since = this.snapshots.nextIn(inode);
    this.#run(
      'INSERT OR REPLACE INTO xattrs (inode, name, value, since) VALUES (?, ?, ?, ?)',
      inode,
      name,
      value,
      since,
    );
  }

  xattrDelete(inode: number, name: string): void {
    this.#touched.add(inode);
    this.snapshots.keepXattrs(inode, name);
    this.#run('DELETE FROM xattrs WHERE inode = ? AND name = ?', inode, name);
  }

  /** Gives `to` the extended attributes of `from` instead of its own. */
  xattrsCopy(from: number, to: number): void {
    this.#touched.add(to);
    this.snapshots.keepXattrs(to);
    this.#run('DELETE FROM xattrs WHERE inode = ?', to);
    const since = this.snapshots.nextIn(to);
    this.#run('INSERT INTO xattrs SELECT ?, name, value, ? FROM xattrs WHERE inode = ?', to, since, from);
  }

  // Sessions ----------------------------------------------------------------------------------

  session(id: number): SessionRow | undefined {
    return this.#get<SessionRow>('SELECT used_seq AS usedSeq, highest FROM sessions WHERE id = ?', id);
  }

  /** @returns how many sessions there are now */
  sessionInsert(id: number, usedSeq: number, highest: number): number {
    this.#run('INSERT INTO sessions (id, used_seq, highest) VALUES (?, ?, ?)', id, usedSeq, highest);
    return this.#counter('UPDATE counters SET sessions = sessions + 1 RETURNING sessions');
  }

  sessionUse(id: number, usedSeq: number, highest: number): void {
    this.#run('UPDATE sessions SET used_seq = ?, highest = ? WHERE id = ?', usedSeq, highest, id);
  }

  /** Forgets the sessions that were used last the longest time ago. */
  sessionsForget(count: number, spared: number): void {
    const oldest = this.#all<{ id: number; usedSeq: number }>(
      'SELECT id, used_seq AS usedSeq FROM sessions WHERE id <> ? ORDER BY used_seq, id LIMIT ?',
      spared,
      count,
    );
    for (const { id, usedSeq } of oldest) {
      this.#run('DELETE FROM requests WHERE session = ?', id);
      this.#run('DELETE FROM sessions WHERE id = ?', id);
      this.#run(
        'UPDATE counters SET sessions = sessions - 1, forgotten_seq = MAX(forgotten_seq, ?)',
        usedSeq,
      );
    }
  }

  sessionsForgottenSeq(): number {
    return this.#counter('SELECT forgotten_seq FROM counters');
  }

  request(session: number, number: number): string | undefined {
    return this.#get<{ outcome: string }>(
      'SELECT outcome FROM requests WHERE session = ? AND number = ?',
      session,
      number,
    )?.outcome;
  }

  requestInsert(session: number, number: number, outcome: string): void {
    this.#run('INSERT INTO requests (session, number, outcome) VALUES (?, ?, ?)', session, number, outcome);
  }

  requestsForget(session: number, through: number): void {
    this.#run('DELETE FROM requests WHERE session = ? AND number <= ?', session, through);
  }

  // -------------------------------------------------------------------------------------------

  #run(sql: string, ...values: readonly unknown[]): void {
    this.#statements.run(sql, ...values);
  }

  #get<Row>(sql: string, ...values: readonly unknown[]): Row | undefined {
    return this.#statements.get<Row>(sql, ...values);
  }

  #all<Row>(sql: string, ...values: readonly unknown[]): Row[] {
    return this.#statements.all<Row>(sql, ...values);
  }

  #counter(sql: string, ...values: number[]): number {
    const row = this.#get<Record<string, number>>(sql, ...values);
    assert(row !== undefined, 'The row of counters exists');
    const [value] = Object.values(row);
    assert(value !== undefined, 'A counter has a value');
    return value;
  }
}
