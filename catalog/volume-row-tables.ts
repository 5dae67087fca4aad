import type { ExportedRow } from '../wire/volume-moves.ts';
import { EXPORTED, isBytes, isTime, type ShapedTable } from './exported-tables.ts';
import type { Statements } from './statements.ts';
import type { NumberRun } from './volume-move-tables.ts';

/** Of a row: the values of its table's key columns. */
export type RowKey = readonly (string | number)[];

/** Which rows are read: those of a volume, of a run of numbers, of a catalog, or all. */
export type RowScope =
  | { readonly kind: 'volume'; readonly volume: number }
  | { readonly kind: 'run'; readonly run: NumberRun }
  | { readonly kind: 'catalog'; readonly number: number }
  | { readonly kind: 'sessions' };

/**
 * Tables with all numbers in use: past rows may be of deleted inodes, and of inodes that no snapshot shows any more.
 */
export const NUMBERED_TABLES = ['inodes', 'past_inodes', 'past_entries', 'past_xattrs'] as const;

/** Numbers of a volume. */
export interface OwnedNumbers extends NumberRun {
  readonly volume: number;
}

type Row = Readonly<Record<string, unknown>>;

/** Rows of volumes as they are in the tables, for moves between catalogs. Plain access, no rules. */
export class VolumeRowTables {
  readonly #statements: Statements;
  readonly #queries = new Map<string, string>();

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Rows in the order of their keys, each read when it is taken. @param after null: from the first one */
  rows(table: ShapedTable, scope: RowScope, after: RowKey | null, countMax: number): Iterable<Row> {
    const name = `${table} ${scope.kind} ${after === null}`;
    let query = this.#queries.get(name);
    if (query === undefined) {
      query = queryOf(table, scope, after);
      this.#queries.set(name, query);
    }
    return this.#statements.each<Row>(query, ...boundOf(table, scope, after), ...(after ?? []), countMax);
  }

  /** @param volume in these tables @param rows values of the table's columns */
  insert(table: ShapedTable, volume: number, rows: readonly ExportedRow[]): void {
    const { columns, namesVolume } = EXPORTED[table];
    const names = namesVolume ? [...columns, 'volume'] : columns;
    const sql = `INSERT INTO ${table} (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`;
    const added = namesVolume ? [volume] : [];
    const areBytes = columns.map(isBytes);
    // Exported if it is not 0 only.
    const absent = columns.map((column) => (column === 'quota' ? 0 : null));
    for (const row of rows) {
      const values = areBytes.map((encoded, place) => {
        const value = row[place] ?? absent[place] ?? null;
        return encoded && typeof value === 'string' ? Buffer.from(value, 'base64') : value;
      });
      this.#statements.run(sql, ...values, ...added);
    }
  }

  /** Numbers after `after` with their volumes, ascending; those of several rows more than once. */
  numbers(table: (typeof NUMBERED_TABLES)[number], after: number, countMax: number): OwnedNumbers[] {
    const [number] = EXPORTED[table].key;
    return this.#statements.all<OwnedNumbers>(
      `SELECT ${number} AS first, ${number} AS last, volume FROM ${table} WHERE ${number} > ? ORDER BY ${number} LIMIT ?`,
      ...[after, countMax],
    );
  }

  /** Sets all columns of the row with this id. */
  set(table: 'volumes', id: number, row: ExportedRow): void {
    const { columns } = EXPORTED[table];
    const set = columns.map((column) => `${column} = ?`).join(', ');
    this.#statements.run(`UPDATE ${table} SET ${set} WHERE id = ?`, ...row, id);
  }

  /**
   * Deletes rows of a run. It also has numbers of directories that other volumes had: their quotas outlast them.
   * @returns their number
   */
  delete(table: ShapedTable, volume: number, run: NumberRun, countMax: number): number {
    const { key } = EXPORTED[table];
    const [number] = key;
    const isOwn = table === 'directory_quotas' ? 'volume = ?' : '? > 0';
    const found = this.#statements.all<Readonly<Record<string, string | number>>>(
      `SELECT ${key.join(', ')} FROM ${table} WHERE ${number} >= ? AND ${number} <= ? AND ${isOwn} LIMIT ?`,
      ...[run.first, run.last, volume, countMax],
    );
    const isKey = key.map((column) => `${column} = ?`).join(' AND ');
    for (const row of found)
      this.#statements.run(`DELETE FROM ${table} WHERE ${isKey}`, ...key.map((column) => row[column]));
    return found.length;
  }
}

/** The query of the rows, with parameters for `boundOf`, the key and the number of rows. */
function queryOf(table: ShapedTable, scope: RowScope, after: RowKey | null): string {
  const { columns, key } = EXPORTED[table];
  const read = columns.map((column) =>
    isTime(column) ? `CAST(t.${column} AS TEXT) AS ${column}` : `t.${column}`,
  );
  const compared = key.map((column) => `t.${column}`).join(', ');
  const behind = after === null ? '' : ` AND (${compared}) > (${key.map(() => '?').join(', ')})`;
  // Few sessions lead to their requests; most requests are of others.
  const [from, order] =
    table === 'requests'
      ? ['timed_sessions s CROSS JOIN requests t ON t.session = s.id', 's.id, t.number']
      : [`${table} t`, compared];
  const where = whereOf(table, scope, after);
  return `SELECT ${read.join(', ')} FROM ${from} WHERE ${where}${behind} ORDER BY ${order} LIMIT ?`;
}

function whereOf(table: ShapedTable, scope: RowScope, after: RowKey | null): string {
  switch (scope.kind) {
    case 'volume':
      return `t.${table === 'volumes' ? 'id' : 'volume'} = ?`;
    case 'catalog':
      return 't.catalog = ?';
    case 'sessions':
      return table === 'requests' ? 's.id >= ?' : 'TRUE';
    default: {
      const [number] = EXPORTED[table].key;
      // A single lower bound: with two, SQLite may choose the one that visits rows before `after` again.
      return after === null ? `t.${number} >= ? AND t.${number} <= ?` : `t.${number} <= ?`;
    }
  }
}

function boundOf(table: ShapedTable, scope: RowScope, after: RowKey | null): readonly (string | number)[] {
  switch (scope.kind) {
    case 'volume':
      return [scope.volume];
    case 'catalog':
      return [scope.number];
    case 'sessions':
      return table === 'requests' ? [after?.[0] ?? 0] : [];
    default:
      return after === null ? [scope.run.first, scope.run.last] : [scope.run.last];
  }
}
