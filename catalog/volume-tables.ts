import { assert } from '../base/assert.ts';
import type { Statements } from './statements.ts';
import { MOVED } from './volume-move-tables.ts';

export interface VolumeRow {
  readonly id: number;
  readonly name: string;
  readonly root: number;
  readonly replicas: number;
  readonly objectBytes: number;
  readonly inodes: number;
  readonly usedBytes: number;
  readonly policy: number;
  /** 0: none. */
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  /** Linked and trashed inodes; bytes include growth allowances. */
  readonly namedInodes: number;
  readonly namedBytes: number;
  /** Milliseconds that unlinked files are kept; 0: not at all. */
  readonly trashMs: number;
  /** The part in the trash. */
  readonly trashedInodes: number;
  readonly trashedBytes: number;
  /** The latest snapshot ever, and the latest existing one; 0: none. */
  readonly serial: number;
  readonly kept: number;
  /** Labels that servers of its files need, and their zones, separated by commas; empty: any server. */
  readonly labels: string;
  readonly zones: string;
  /** The latest date of any retention that it ever had; `0`: none. */
  readonly retainedNs: string;
}

const VOLUME_COLUMNS = `id, name, root, replicas, object_bytes AS objectBytes, inodes, used_bytes AS usedBytes, policy,
  quota_bytes AS quotaBytes, quota_inodes AS quotaInodes, named_inodes AS namedInodes, named_bytes AS namedBytes,
  trash_ms AS trashMs, trashed_inodes AS trashedInodes, trashed_bytes AS trashedBytes,
  serial, kept, labels, zones, CAST(retained_ns AS TEXT) AS retainedNs`;
/** Rows of a volume that has moved to another catalog stay for a while, and nothing shows them. */
const IS_HERE = `id NOT IN (${MOVED})`;
const VOLUME = `SELECT ${VOLUME_COLUMNS} FROM volumes WHERE id = ?`;

export class VolumeTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  find(id: number): VolumeRow | undefined {
    return this.#statements.get<VolumeRow>(VOLUME, id);
  }

  row(id: number): VolumeRow {
    const row = this.find(id);
    assert(row !== undefined, 'An inode belongs to a volume that exists');
    return row;
  }

  byName(name: string): VolumeRow | undefined {
    return this.#statements.get<VolumeRow>(`SELECT ${VOLUME_COLUMNS} FROM volumes WHERE name = ?`, name);
  }

  /** Without those that have moved to other catalogs. */
  all(): VolumeRow[] {
    return this.#statements.all<VolumeRow>(
      `SELECT ${VOLUME_COLUMNS} FROM volumes WHERE ${IS_HERE} ORDER BY name`,
    );
  }

  /** The ids of volumes whose files not every server may hold. */
  restricted(): number[] {
    return this.#statements
      .all<{ id: number }>(
        `SELECT id FROM volumes WHERE (labels <> '' OR zones <> '') AND ${IS_HERE} ORDER BY id`,
      )
      .map(({ id }) => id);
  }

  insert(name: string, root: number, replicas: number, objectBytes: number, policy: number): number {
    const id = this.#statements.counter(
      'UPDATE counters SET next_volume = next_volume + 1 RETURNING next_volume - 1',
    );
    this.#statements.run(
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

  rename(id: number, name: string): void {
    this.#statements.run('UPDATE volumes SET name = ? WHERE id = ?', name, id);
  }

  setRoot(id: number, root: number): void {
    this.#statements.run('UPDATE volumes SET root = ? WHERE id = ?', root, id);
  }

  /** A file or snapshot of the volume is retained until then. */
  noteRetained(id: number, untilNs: string): void {
    this.#statements.run(
      'UPDATE volumes SET retained_ns = MAX(retained_ns, ?) WHERE id = ?',
      BigInt(untilNs),
      id,
    );
  }

  /** The latest snapshot ever. */
  setSerial(id: number, serial: number): void {
    this.#statements.run('UPDATE volumes SET serial = ? WHERE id = ?', serial, id);
  }

  set(
    id: number,
    values: Pick<
      VolumeRow,
      'replicas' | 'policy' | 'quotaBytes' | 'quotaInodes' | 'trashMs' | 'labels' | 'zones'
    >,
  ): void {
    this.#statements.run(
      `UPDATE volumes SET replicas = ?, policy = ?, quota_bytes = ?, quota_inodes = ?, trash_ms = ?, labels = ?, zones = ?
       WHERE id = ?`,
      values.replicas,
      values.policy,
      values.quotaBytes,
      values.quotaInodes,
      values.trashMs,
      values.labels,
      values.zones,
      id,
    );
  }

  delete(id: number): void {
    this.#statements.run('DELETE FROM volumes WHERE id = ?', id);
  }

  /** Adds to the counters of `df`. */
  count(id: number, inodes: number, usedBytes: number): void {
    this.#statements.run(
      'UPDATE volumes SET inodes = inodes + ?, used_bytes = used_bytes + ? WHERE id = ?',
      inodes,
      usedBytes,
      id,
    );
  }

  /** Adds to the counters of quotas. */
  charge(id: number, inodes: number, bytes: number): void {
    if (inodes === 0 && bytes === 0) return;
    this.#statements.run(
      'UPDATE volumes SET named_inodes = named_inodes + ?, named_bytes = named_bytes + ? WHERE id = ?',
      inodes,
      bytes,
      id,
    );
  }

  chargeTrash(id: number, inodes: number, bytes: number): void {
    this.#statements.run(
      'UPDATE volumes SET trashed_inodes = trashed_inodes + ?, trashed_bytes = trashed_bytes + ? WHERE id = ?',
      inodes,
      bytes,
      id,
    );
  }
}
