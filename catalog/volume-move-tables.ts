import { type CatalogNumber, catalogOfInode } from '../base/ids.ts';
import type { MovedNumbers } from '../base/inode-catalogs.ts';
import type { VolumeMove } from '../wire/volume-moves.ts';
import type { OwnCatalog } from './own-catalog.ts';
import type { Statements } from './statements.ts';

export interface MoveRow extends VolumeMove {
  /** In the root catalog's tables. */
  readonly volume: number;
  /** While frozen: whose numbers are up to here is recorded. Once moved: rows of numbers up to here are deleted. */
  readonly position: number;
  /** While frozen: 1 if no number after the last of the volume's is another volume's. */
  readonly extends: number;
  /** Of a volume that is split off: its root directory; 0 of another one. */
  readonly part: number;
  /** The volume that has the directory until it moves, or 0. Until it is being split, `volume` is the same. */
  readonly source: number;
  /** The directory that has an entry for `part` until it moves, or 0. */
  readonly above: number;
  /** While splitting: the directory of which a part of the entries was visited, or 0, and the last one of these. */
  readonly visiting: number;
  readonly visited: string;
}

/** A move whose next phase begins. */
type EnteredMove = Pick<MoveRow, 'catalog' | 'volume'> & Partial<Pick<MoveRow, 'part' | 'source' | 'above'>>;

/** Numbers from `first` to `last`. */
export interface NumberRun {
  readonly first: number;
  readonly last: number;
}

/** Queries of the volumes that do not change here, because they move or have moved, and of those that have moved. */
export const UNCHANGING =
  "SELECT volume FROM volume_moves WHERE phase IN ('splitting', 'joining', 'frozen', 'numbered', 'moved')";
export const MOVED = "SELECT volume FROM volume_moves WHERE phase = 'moved'";

const LEAVING =
  "SELECT volume FROM volume_moves WHERE phase IN ('begun', 'splitting', 'joining', 'frozen', 'numbered')";
/** Volumes of which a directory is being visited. */
const SPLITTING = "SELECT source AS volume FROM volume_moves WHERE phase = 'splitting'";

const COLUMNS = 'catalog, volume, phase, position, "extends", part, source, above, visited, visiting';

/**
 * Volumes that move from the root catalog to catalogs of their own, and the numbers that move with them. A volume's
 * catalog has the numbers of its own volume. Plain access, no rules.
 */
export class VolumeMoveTables {
  readonly #statements: Statements;
  readonly #own: OwnCatalog;

  constructor(statements: Statements, own: OwnCatalog) {
    this.#statements = statements;
    this.#own = own;
  }

  row(catalog: number): MoveRow | undefined {
    return this.#statements.get<MoveRow>(`SELECT ${COLUMNS} FROM volume_moves WHERE catalog = ?`, catalog);
  }

  all(): MoveRow[] {
    return this.#statements.all<MoveRow>(`SELECT ${COLUMNS} FROM volume_moves ORDER BY catalog`);
  }

  /** Whether there has been none. */
  get isEmpty(): boolean {
    return this.#statements.get('SELECT 1 FROM volume_moves LIMIT 1') === undefined;
  }

  /** Whether a directory becomes a volume, or has become one. */
  get haveParts(): boolean {
    return this.#statements.get('SELECT 1 FROM volume_moves WHERE part > 0 LIMIT 1') !== undefined;
  }

  /** Whether the directory has an entry for one that is being split off. */
  hasPartIn(directory: number): boolean {
    const split = this.#statements.get(
      "SELECT 1 FROM volume_moves WHERE above = ? AND phase IN ('splitting', 'joining', 'frozen', 'numbered')",
      directory,
    );
    return split !== undefined;
  }

  enter({ catalog, volume, part, source, above }: EnteredMove, phase: MoveRow['phase']): void {
    const of = { part: part ?? 0, source: source ?? 0, above: above ?? 0 };
    this.put({ catalog, volume, phase, position: 0, extends: 0, visiting: 0, visited: '', ...of });
  }

  put({ catalog, volume, phase, position, extends: continues, ...split }: MoveRow): void {
    const { part, source, above, visiting, visited } = split;
    this.#statements.run(
      `INSERT OR REPLACE INTO volume_moves (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[catalog, volume, phase, position, continues, part, source, above, visited, visiting],
    );
  }

  delete(catalog: number): void {
    this.forgetRuns(catalog);
    this.#statements.run('DELETE FROM volume_moves WHERE catalog = ?', catalog);
  }

  forgetRuns(catalog: number): void {
    this.#statements.run('DELETE FROM moved_numbers WHERE catalog = ?', catalog);
  }

  /**
   * Volumes of which nothing may be cached: they move, but have not moved yet, or a directory of theirs, of which it is
   * not known yet what is in it, does.
   */
  leaving(): number[] {
    return [...this.#volumes(LEAVING), ...this.#volumes(SPLITTING)];
  }

  /** Volumes whose changes wait. */
  frozen(): number[] {
    return this.#volumes(
      "SELECT volume FROM volume_moves WHERE phase IN ('splitting', 'joining', 'frozen', 'numbered')",
    );
  }

  /** Volumes of which a directory is being split off. */
  sources(): number[] {
    return this.#volumes(
      `SELECT source AS volume FROM volume_moves
       WHERE part > 0 AND phase IN ('begun', 'splitting', 'joining', 'frozen', 'numbered')`,
    );
  }

  /** Volumes that have moved away, of which there are still rows. */
  moved(): number[] {
    return this.#volumes(MOVED);
  }

  /** Whether numbers of any volume move, or have moved. */
  get haveNumbers(): boolean {
    return this.#statements.get('SELECT 1 FROM moved_numbers LIMIT 1') !== undefined;
  }

  /** The catalog that has the inode if any does: the one that gave out its number, or to which its volume moved. */
  catalogOf(inode: number): CatalogNumber {
    return (this.#runAround(inode)?.catalog ?? catalogOfInode(inode)) as CatalogNumber;
  }

  /** The last of the numbers around `inode` that have moved away; null if the inode has not. */
  lastMovedAround(inode: number): number | null {
    return this.#runAround(inode)?.last ?? null;
  }

  /** The catalog's first run that ends at `from` or later. */
  runFrom(catalog: number, from: number): NumberRun | undefined {
    return this.#statements.get<NumberRun>(
      'SELECT first, last FROM moved_numbers WHERE catalog = ? AND last >= ? ORDER BY last LIMIT 1',
      ...[catalog, from],
    );
  }

  lastRun(catalog: number): NumberRun | undefined {
    return this.#statements.get<NumberRun>(
      'SELECT first, last FROM moved_numbers WHERE catalog = ? ORDER BY last DESC LIMIT 1',
      catalog,
    );
  }

  /** Runs of other catalogs that end after `after`, ascending. */
  runsOfOthers(catalog: number, after: number, countMax: number): NumberRun[] {
    // Runs have no common numbers: in the order of their first ones, they ascend by their last ones, too.
    return this.#statements.all<NumberRun>(
      `SELECT first, last FROM moved_numbers
       WHERE first >= COALESCE((SELECT MAX(first) FROM moved_numbers WHERE first <= ?), 0) AND last > ? AND catalog <> ?
       ORDER BY first LIMIT ?`,
      ...[after, after, catalog, countMax],
    );
  }

  runCount(): number {
    return this.#statements.counter('SELECT COUNT(*) FROM moved_numbers');
  }

  /** Adds a run, or extends the one with the same first number. */
  putRun(catalog: number, { first, last }: NumberRun): void {
    this.#statements.run('INSERT OR REPLACE INTO moved_numbers VALUES (?, ?, ?)', first, last, catalog);
  }

  /** Numbers of volumes that have moved. */
  list(): MovedNumbers[] {
    return this.#statements
      .all<NumberRun & { readonly catalog: number }>(
        `SELECT first, last, catalog FROM moved_numbers
         WHERE catalog IN (SELECT catalog FROM volume_moves WHERE phase IN ('moved', 'forgotten')) ORDER BY first`,
      )
      .map(({ first, last, catalog }) => ({ first, end: last + 1, catalog }));
  }

  /** At the root, those of a volume that has not moved yet do not count. */
  #runAround(inode: number): (NumberRun & { readonly catalog: number }) | undefined {
    const run = this.#statements.get<NumberRun & { readonly catalog: number }>(
      'SELECT first, last, catalog FROM moved_numbers WHERE first <= ? ORDER BY first DESC LIMIT 1',
      inode,
    );
    if (run === undefined || inode > run.last) return undefined;
    if (!this.#own.isRoot) return run;
    const phase = this.row(run.catalog)?.phase;
    return phase === 'moved' || phase === 'forgotten' ? run : undefined;
  }

  #volumes(sql: string): number[] {
    return this.#statements.all<{ volume: number }>(sql).map(({ volume }) => volume);
  }
}
