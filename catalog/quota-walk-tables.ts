import type { Quota } from './directory-quota-tables.ts';
import type { Statements } from './statements.ts';

/** Limits of a quota; 0 for none. */
export type QuotaLimits = Pick<Quota, 'quotaBytes' | 'quotaInodes'>;

/**
 * Phases of a quota whose directory is walked. `counting`: what is in it gets the quota. `checking`: whether all
 * names of files with hard links are in it. `ending`: what counts against it gets the next outer one. `refused`: it has
 * ended.
 */
export type WalkPhase = 'counting' | 'checking' | 'ending' | 'refused';

export interface QuotaWalk extends QuotaLimits {
  readonly directory: number;
  readonly volume: number;
  readonly phase: WalkPhase;
  /** The directory whose entries are visited now, or 0, and its last entry that was visited. */
  readonly visiting: number;
  readonly visited: string;
  /** Why the quota ends, if it is refused; else empty. */
  readonly why: string;
}

/** A file that had several names when it got the quota, and how many of its names were visited. */
export interface SharedName {
  readonly inode: number;
  readonly names: number;
  /** A name that it had in the directory. */
  readonly parent: number;
  readonly name: string;
}

const COLUMNS = `directory, volume, phase, visiting, visited, why, quota_bytes AS quotaBytes,
  quota_inodes AS quotaInodes`;

/**
 * Names that were visited: all of a directory that has the quota, unless it is still to be visited; of the one that is
 * visited now, those up to the position.
 */
const IS_VISITED = `(SELECT i.quota FROM inodes i WHERE i.id = ?) = w.directory AND
  (NOT EXISTS (SELECT 1 FROM quota_walk_directories d WHERE d.directory = w.directory AND d.inode = ?)
    OR w.visiting = ? AND ? <= w.visited)`;

/** Quotas that begin at, or end at, directories with entries: how far their walks are. Plain access, no rules. */
export class QuotaWalkTables {
  readonly #statements: Statements;
  /** Whether any row exists; otherwise nothing is asked. */
  #any = false;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Call before each command. */
  begin(): void {
    this.#any = this.#statements.get('SELECT 1 FROM quota_walks LIMIT 1') !== undefined;
  }

  get isEmpty(): boolean {
    return !this.#any;
  }

  row(directory: number): QuotaWalk | undefined {
    if (!this.#any || directory === 0) return undefined;
    return this.#statements.get<QuotaWalk>(
      `SELECT ${COLUMNS} FROM quota_walks WHERE directory = ?`,
      directory,
    );
  }

  /** The walk to continue; undefined if there is none. */
  next(): QuotaWalk | undefined {
    return this.#statements.get<QuotaWalk>(
      `SELECT ${COLUMNS} FROM quota_walks WHERE phase <> 'refused' ORDER BY directory LIMIT 1`,
    );
  }

  /** A volume has one walk at a time. */
  ofVolume(volume: number): QuotaWalk | undefined {
    return this.#statements.get<QuotaWalk>(
      `SELECT ${COLUMNS} FROM quota_walks WHERE volume = ? AND phase <> 'refused' LIMIT 1`,
      volume,
    );
  }

  put({ directory, volume, phase, visiting, visited, why, quotaBytes, quotaInodes }: QuotaWalk): void {
    this.#any = true;
    this.#statements.run(
      `INSERT OR REPLACE INTO quota_walks
         (directory, volume, phase, visiting, visited, why, quota_bytes, quota_inodes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[directory, volume, phase, visiting, visited, why, quotaBytes, quotaInodes],
    );
  }

  delete(directory: number): void {
    this.#statements.run('DELETE FROM quota_walks WHERE directory = ?', directory);
  }

  /** The directory is removed, or gets another quota: why an earlier one was refused is not needed any more. */
  forgetRefusal(directory: number): void {
    if (!this.#any) return;
    this.#statements.run("DELETE FROM quota_walks WHERE directory = ? AND phase = 'refused'", directory);
  }

  /** What still counts against its quota, as files in the trash or with names elsewhere, gets the next outer one. */
  directoryRemoved(directory: number): void {
    this.forgetRefusal(directory);
    if (!this.#any) return;
    this.#statements.run("UPDATE quota_walks SET phase = 'ending', why = '' WHERE directory = ?", directory);
  }

  /** @param inode of a directory whose entries are to be visited */
  addDirectory(directory: number, inode: number): void {
    this.#statements.run('INSERT OR IGNORE INTO quota_walk_directories VALUES (?, ?)', directory, inode);
  }

  nextDirectory(directory: number): number | undefined {
    return this.#statements.get<{ inode: number }>(
      'SELECT inode FROM quota_walk_directories WHERE directory = ? ORDER BY inode LIMIT 1',
      directory,
    )?.inode;
  }

  deleteDirectory(directory: number, inode: number): void {
    this.#statements.run(
      'DELETE FROM quota_walk_directories WHERE directory = ? AND inode = ?',
      ...[directory, inode],
    );
  }

  isShared(directory: number, inode: number): boolean {
    return (
      this.#statements.get(
        'SELECT 1 FROM quota_walk_files WHERE inode = ? AND directory = ?',
        ...[inode, directory],
      ) !== undefined
    );
  }

  /** @param names that were visited with this one: 0 or 1 */
  addShared(directory: number, { inode, names, parent, name }: SharedName): void {
    this.#statements.run(
      `INSERT INTO quota_walk_files VALUES (?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET names = names + excluded.names, parent = excluded.parent, name = excluded.name`,
      ...[inode, directory, names, parent, name],
    );
  }

  shared(directory: number, countMax: number): SharedName[] {
    return this.#statements.all<SharedName>(
      `SELECT inode, names, parent, name FROM quota_walk_files INDEXED BY quota_walk_files_of_directory
       WHERE directory = ? ORDER BY inode LIMIT ?`,
      ...[directory, countMax],
    );
  }

  deleteShared(inode: number): void {
    this.#statements.run('DELETE FROM quota_walk_files WHERE inode = ?', inode);
  }

  /** Deletes rows about what is to be visited or checked. @returns how many; fewer than `countMax`: all are deleted */
  deleteLists(directory: number, countMax: number): number {
    const files = this.shared(directory, countMax);
    for (const { inode } of files) this.deleteShared(inode);
    const directories = this.#statements.all<{ inode: number }>(
      'SELECT inode FROM quota_walk_directories WHERE directory = ? ORDER BY inode LIMIT ?',
      ...[directory, countMax - files.length],
    );
    for (const { inode } of directories) this.deleteDirectory(directory, inode);
    return files.length + directories.length;
  }

  /** A file gets, or loses, a name: keeps the number of its names that were visited. Call before the loss. */
  nameChanged(parent: number, name: string, inode: number, change: 1 | -1): void {
    if (!this.#any) return;
    this.#statements.run(
      `UPDATE quota_walk_files SET names = names + ? WHERE inode = ? AND EXISTS (SELECT 1 FROM quota_walks w
         WHERE w.directory = quota_walk_files.directory AND ${IS_VISITED})`,
      ...[change, inode, parent, parent, parent, name],
    );
  }
}
