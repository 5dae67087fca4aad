import type { Statements } from './statements.ts';
import { UNCHANGING } from './volume-move-tables.ts';

/** Past rows of a volume that moves to another catalog, or has moved, are swept there. */
const DOES_CHANGE = `volume NOT IN (${UNCHANGING})`;

/** The result of sweeping past rows. */
export interface Swept {
  readonly rows: number;
  readonly more: boolean;
  /** Inodes whose contents, or preserved contents, a swept row referred to. */
  readonly sources: readonly number[];
}

export class SnapshotSweeps {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  isPending(): boolean {
    return this.#statements.get(`SELECT 1 FROM sweeps WHERE ${DOES_CHANGE} LIMIT 1`) !== undefined;
  }

  /** Whether there may be past rows of a volume's removed snapshots. */
  hasVolume(volume: number): boolean {
    return this.#statements.get('SELECT 1 FROM sweeps WHERE volume = ? LIMIT 1', volume) !== undefined;
  }

  /** Deletes past rows that no snapshot shows, at most `countMax` per table. */
  sweep(countMax: number): Swept {
    const next = this.#statements.get<{ volume: number; serial: number }>(
      `SELECT volume, serial FROM sweeps WHERE ${DOES_CHANGE} ORDER BY volume, serial LIMIT 1`,
    );
    if (next === undefined) return { rows: 0, more: false, sources: [] };
    const { volume, serial } = next;
    const [before, after] = this.#neighbours(volume, serial);
    const unshown = `volume = ? AND until > ? AND until < ? AND since > ? ORDER BY until, since LIMIT ?`;
    const bounds = [volume, before, after, before] as const;
    const inodes = this.#statements.all<{ id: number; until: number; source: number }>(
      `SELECT id, until, source FROM past_inodes WHERE ${unshown}`,
      ...bounds,
      countMax,
    );
    for (const { id, until } of inodes)
      this.#statements.run('DELETE FROM past_inodes WHERE id = ? AND until = ?', id, until);
    const entries = this.#statements.all<{ parent: number; name: string; until: number }>(
      `SELECT parent, name, until FROM past_entries WHERE ${unshown}`,
      ...bounds,
      countMax,
    );
    for (const { parent, name, until } of entries) {
      this.#statements.run(
        'DELETE FROM past_entries WHERE parent = ? AND name = ? AND until = ?',
        parent,
        name,
        until,
      );
    }
    const xattrs = this.#statements.all<{ inode: number; name: string; until: number }>(
      `SELECT inode, name, until FROM past_xattrs WHERE ${unshown}`,
      ...bounds,
      countMax,
    );
    for (const { inode, name, until } of xattrs) {
      this.#statements.run(
        'DELETE FROM past_xattrs WHERE inode = ? AND name = ? AND until = ?',
        inode,
        name,
        until,
      );
    }
    if (Math.max(inodes.length, entries.length, xattrs.length) < countMax) {
      this.#statements.run('DELETE FROM sweeps WHERE volume = ? AND serial = ?', volume, serial);
    }
    const sources = inodes.map(({ id, source }) => (source > 0 ? source : id));
    return {
      rows: inodes.length + entries.length + xattrs.length,
      more: this.isPending(),
      sources: [...new Set(sources)],
    };
  }

  /** A removed volume without snapshots: no query reads its past rows. */
  forgetVolume(volume: number): void {
    for (const table of ['past_inodes', 'past_entries', 'past_xattrs', 'sweeps'])
      this.#statements.run(`DELETE FROM ${table} WHERE volume = ?`, volume);
  }

  /** @returns the existing snapshots around a removed one: 0 and the largest number as defaults */
  #neighbours(volume: number, serial: number): readonly [number, number] {
    const before = this.#statements.get<{ serial: number | null }>(
      'SELECT MAX(serial) AS serial FROM snapshots WHERE volume = ? AND serial < ?',
      volume,
      serial,
    )?.serial;
    const after = this.#statements.get<{ serial: number | null }>(
      'SELECT MIN(serial) AS serial FROM snapshots WHERE volume = ? AND serial > ?',
      volume,
      serial,
    )?.serial;
    return [before ?? 0, after ?? Number.MAX_SAFE_INTEGER];
  }
}
