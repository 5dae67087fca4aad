import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { QueryResults } from '../wire/catalog-api.ts';
import {
  EXPORT_END,
  EXPORT_START,
  EXPORTED_TABLES,
  type ExportedRow,
  type ExportedRows,
  type ExportedTable,
} from '../wire/volume-moves.ts';
import { EXPORTED, isShaped, type ShapedTable } from './exported-tables.ts';
import type { Tables } from './tables.ts';
import type { RowKey, RowScope } from './volume-row-tables.ts';
import type { VolumeRow } from './volume-tables.ts';

/** A page is executed as one command, which is a part of one message between servers. */
const ROWS_MAX = 500;
const CHARS_MAX = 128 * 1024;
/** Statements for one page: a volume may have its numbers in many runs. */
const STEPS_MAX = 2_000;

/** Where a page begins: in a table, behind a row, or behind all rows of numbers up to one. */
interface Position {
  readonly table: ExportedTable;
  readonly after: RowKey | null;
}

/** What a volume counts, in the order of `totals`. */
export function totalsOf(volume: VolumeRow): ExportedRow {
  const { inodes, usedBytes, namedInodes, namedBytes, trashedInodes, trashedBytes } = volume;
  return [inodes, usedBytes, namedInodes, namedBytes, trashedInodes, trashedBytes];
}

/**
 * A page of the rows of the volume that moves to catalog `number`: at the root, while it is frozen; at that catalog, of
 * what it has imported. The volume does not change meanwhile, so pages of several servers are of one state.
 */
export function volumeExport(tables: Tables, number: number, after: string): QueryResults['volume-export'] {
  return new ExportedPage(tables, number, exportedVolume(tables, number)).from(after);
}

function exportedVolume({ own, moves, volumes }: Tables, number: number): VolumeRow {
  if (own.isRoot) {
    const move = moves.row(number);
    if (move?.phase === 'numbered') return volumes.row(move.volume);
    // Before, rows may change, and it is not known which numbers are the volume's.
    if (move?.phase === 'begun' || move?.phase === 'splitting' || move?.phase === 'frozen')
      throw new ServiceError('busy', `The volume that moves to catalog ${number} cannot be copied yet`);
  } else {
    const [volume] = volumes.all();
    if (own.number === number && volume !== undefined) return volume;
  }
  throw new ServiceError('not-found', `No volume moves to catalog ${number}`);
}

class ExportedPage {
  readonly #tables: Tables;
  readonly #number: number;
  readonly #volume: VolumeRow;
  readonly #parts: { readonly table: ExportedTable; readonly rows: ExportedRow[] }[] = [];
  #rows = 0;
  #chars = 0;
  #steps = 0;

  constructor(tables: Tables, number: number, volume: VolumeRow) {
    this.#tables = tables;
    this.#number = number;
    this.#volume = volume;
  }

  from(start: string): QueryResults['volume-export'] {
    let position = positionOf(start);
    while (position !== null && !this.#isFull) {
      const after = this.#readFrom(position);
      position = after === null ? tableAfter(position.table) : { ...position, after };
    }
    const tables: readonly ExportedRows[] = this.#parts;
    return { tables, next: textOf(position) };
  }

  get #isFull(): boolean {
    return this.#rows >= ROWS_MAX || this.#chars >= CHARS_MAX || this.#steps >= STEPS_MAX;
  }

  /** Reads rows of the position's table. @returns behind which it continues; null at the end of the table */
  #readFrom({ table, after }: Position): RowKey | null {
    if (table === 'totals') {
      this.#add(table, totalsOf(this.#volume));
      return null;
    }
    if (table === 'retention_clock') {
      const clock = this.#tables.retentions.clock();
      // Importing it needs servers that know retentions.
      if (clock !== null && this.#volume.retainedNs !== '0') this.#add(table, [clock.clockNs]);
      return null;
    }
    switch (EXPORTED[table].by) {
      case 'number':
        return this.#readRun(table, after);
      case 'volume':
        return this.#read(table, { kind: 'volume', volume: this.#volume.id }, after);
      case 'own':
        return this.#read(table, { kind: 'catalog', number: this.#number }, after);
      default:
        return this.#read(table, { kind: 'sessions' }, after);
    }
  }

  /** Reads rows of one run of numbers. */
  #readRun(table: ShapedTable, after: RowKey | null): RowKey | null {
    const number = Number(after?.[0] ?? 0);
    const isWithin = after !== null && after.length === EXPORTED[table].key.length;
    const from = isWithin && after.length > 1 ? number : number + 1;
    const run = this.#tables.moves.runFrom(this.#number, from);
    if (run === undefined) return null;
    const isBehind = isWithin && number >= run.first;
    const rest = { first: Math.max(run.first, from), last: run.last };
    return this.#read(table, { kind: 'run', run: rest }, isBehind ? after : null) ?? [run.last];
  }

  /** @returns the key of the last row that was read if the page is full: there may be more; else null */
  #read(table: ShapedTable, scope: RowScope, after: RowKey | null): RowKey | null {
    const { columns, key } = EXPORTED[table];
    this.#steps += 1;
    // One by one: the values of as many rows as fit by their number may be large.
    for (const row of this.#tables.rows.rows(table, scope, after, ROWS_MAX - this.#rows)) {
      // A volume's root is its own parent; that of one that is split off has another one until it has moved.
      const isRoot = table === 'inodes' && row.id === this.#volume.root;
      const values = columns.map((column) => exported(row[isRoot && column === 'parent' ? 'id' : column]));
      // Its number is in a run, and what counts against it moves with the next outer quota.
      const isRemoved = table === 'directory_quotas' && !this.#tables.inodes.exists(Number(row.directory));
      // A page may end behind a row that it lacks.
      if (isRemoved) this.#rows += 1;
      else this.#add(table, table === 'inodes' ? this.#withQuota(values, columns) : values);
      if (this.#isFull) return key.map((column) => row[column] as string | number);
    }
    return null;
  }

  /** @returns values of an inode, the last of which is absent if it counts against no quota of a directory */
  #withQuota(values: ExportedRow, columns: readonly string[]): ExportedRow {
    assert(columns.at(-1) === 'quota', 'The quota is the last column');
    const quota = this.#presentQuota(Number(values.at(-1)));
    // A root catalog of an earlier release exports none, and both may be compared.
    return [...values.slice(0, -1), ...(quota === 0 ? [] : [quota])];
  }

  /** The quota of a removed directory, which files in the trash count against, does not move: the next outer one. */
  #presentQuota(quota: number): number {
    const { quotas, inodes } = this.#tables;
    return quotas.chain(quota).find(({ directory }) => inodes.exists(directory))?.directory ?? 0;
  }

  #add(table: ExportedTable, row: ExportedRow): void {
    if (this.#parts.at(-1)?.table !== table) this.#parts.push({ table, rows: [] });
    this.#parts.at(-1)?.rows.push(row);
    this.#rows += 1;
    this.#chars += JSON.stringify(row).length;
  }
}

function exported(value: unknown): string | number | null {
  return value instanceof Uint8Array
    ? Buffer.from(value).toString('base64')
    : (value as string | number | null);
}

function tableAfter(table: ExportedTable): Position | null {
  const next = EXPORTED_TABLES[EXPORTED_TABLES.indexOf(table) + 1];
  return next === undefined ? null : { table: next, after: null };
}

function textOf(position: Position | null): string {
  return position === null ? EXPORT_END : JSON.stringify([position.table, ...(position.after ?? [])]);
}

/** @throws ServiceError `bad-request` if no page ends there */
function positionOf(text: string): Position | null {
  if (text === EXPORT_START) return { table: EXPORTED_TABLES[0], after: null };
  if (text === EXPORT_END) return null;
  const [name, ...after] = parsed(text);
  const table = EXPORTED_TABLES.find((one) => one === name);
  if (table === undefined) throw noPosition(text);
  if (after.length === 0) return { table, after: null };
  const { key, by } = isShaped(table) ? EXPORTED[table] : { key: [], by: 'own' };
  const isKey = after.length === key.length || (by === 'number' && after.length === 1);
  if (!isKey || !after.every((part) => typeof part === 'string' || Number.isSafeInteger(part)))
    throw noPosition(text);
  return { table, after: after as RowKey };
}

function parsed(text: string): unknown[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw noPosition(text);
}

function noPosition(text: string): ServiceError {
  return new ServiceError('bad-request', `"${text}" is no position of an export`);
}
