import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import { runQuery } from '../../catalog/queries.ts';
import type { CatalogDatabase } from '../../catalog/schema.ts';
import type { CommandOf } from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { EXPORT_END, EXPORT_START } from '../../wire/volume-moves.ts';
import { Pair } from './pair.ts';
import { MEMBERS } from './root.ts';

/** Rows of a volume, and in which table and order they are; `?` is its id. */
const OF_VOLUME: Readonly<Record<string, string>> = {
  volumes: 'id = ?',
  inodes: 'volume = ? ORDER BY id',
  entries: 'parent IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY parent, name',
  xattrs: 'inode IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY inode, name',
  placements: 'inode IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY server, inode',
  planned_members: 'inode IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY server, inode',
  reserved: 'volume = ? ORDER BY first',
  trash: 'volume = ? ORDER BY inode',
  directory_classes: 'volume = ? ORDER BY directory',
  directory_quotas: 'volume = ? ORDER BY directory',
  junctions: 'inode IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY inode',
  snapshots: 'volume = ? ORDER BY serial',
  sweeps: 'volume = ? ORDER BY serial',
  retentions: 'inode IN (SELECT id FROM inodes WHERE volume = ?) ORDER BY inode',
  retained_snapshots: 'volume = ? ORDER BY serial',
  past_inodes: 'volume = ? ORDER BY id, until',
  past_entries: 'volume = ? ORDER BY parent, name, until',
  past_xattrs: 'volume = ? ORDER BY inode, name, until',
};

/** All rows of a volume, without its id, and without the times of its reservations: the end of a move renews them. */
export function volumeDump(db: CatalogDatabase, name: string): string[] {
  const { id } = db.prepare('SELECT id FROM volumes WHERE name = ?').get(name) as { id: number };
  return Object.entries(OF_VOLUME).flatMap(([table, where]) => {
    const own = table === 'volumes' ? 'id' : 'volume';
    const rows = db.prepare(`SELECT * FROM ${table} WHERE ${where}`).safeIntegers(true).all(id);
    return (rows as Record<string, unknown>[]).map((row) => {
      const shown = Object.entries(row).filter(
        ([column]) =>
          (column !== own || table === 'junctions') && !(table === 'reserved' && column === 'at_ns'),
      );
      return `${table} ${shown.map(([column, value]) => `${column}=${textOf(value)}`).join(' ')}`;
    });
  });
}

function textOf(value: unknown): string {
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : String(value);
}

/** A root catalog from which a volume moves to the catalog `own`; both at a primary and a backup, which stay equal. */
export class Move {
  readonly root: Pair;
  readonly number: CatalogNumber;
  readonly own: Pair;
  readonly name: string;

  /** @param path of the directory of `main` that becomes the volume; absent: it is one */
  constructor(root: Pair, name = 'main', path?: string, members = MEMBERS) {
    this.root = root;
    this.name = name;
    const { catalog } =
      path === undefined
        ? root.done({ kind: 'volume-move', name, members })
        : root.done({ kind: 'volume-split', name, volume: 'main', path, members });
    this.number = catalog.number as CatalogNumber;
    this.own = new Pair(undefined, this.number);
  }

  freeze(): void {
    this.root.done({ kind: 'volume-freeze', number: this.number });
  }

  /** Makes what is in the directory the volume's, or no longer. @returns how many commands that took */
  visit(countMax = 1_000): number {
    for (let count = 1; ; count++)
      if (this.root.done({ kind: 'volume-part', number: this.number, countMax, resumes: true }).done)
        return count;
  }

  /** Records the volume's numbers. @returns how many commands that took */
  record(countMax = 1_000): number {
    for (let count = 1; ; count++)
      if (this.root.done({ kind: 'volume-number', number: this.number, countMax }).done) return count;
  }

  /** The command that imports the page after a position. */
  page(after: string): CommandOf<'catalog-import'> {
    const query = { kind: 'volume-export', number: this.number, after } as const;
    const { tables, next } = runQuery<'volume-export'>(this.root.backup, query);
    return { kind: 'catalog-import', number: this.number, after, next, tables: [...tables] };
  }

  copy(): void {
    for (let position: string = EXPORT_START; position !== EXPORT_END; )
      position = this.own.done(this.page(position)).position;
  }

  begin(): void {
    this.own.done(beginOf(this));
    this.own.done({ kind: 'extend-numbers', limit: inodesOf(this.number).end });
  }

  report(): void {
    this.root.done({ kind: 'catalog-report', number: this.number, report: { kind: 'created' } });
  }

  /** All steps of a frozen volume until its catalog has it. */
  complete(): void {
    this.record();
    this.copy();
    this.begin();
    this.report();
  }

  /** Deletes the volume's rows at the root. @returns how many commands that took */
  forget(countMax = 1_000): number {
    for (let count = 1; ; count++)
      if (!this.root.done({ kind: 'volume-forget', number: this.number, countMax }).more) return count;
  }

  /** All of it. */
  run(): void {
    this.freeze();
    this.visit();
    this.record();
    this.copy();
    this.begin();
    this.report();
    this.forget();
  }

  get row(): ListedCatalog | undefined {
    const { catalogs } = runQuery<'catalogs'>(this.root.backup, { kind: 'catalogs' });
    return catalogs.find(({ number }) => number === this.number);
  }
}

export function beginOf({ root, number, name }: Move): CommandOf<'catalog-begin'> {
  const { catalogs, servers } = runQuery<'catalogs'>(root.backup, { kind: 'catalogs' });
  const { settings } = catalogs.find((listed) => listed.number === number) as ListedCatalog;
  return { kind: 'catalog-begin', number, name, settings, servers: [...servers], moved: true };
}
