import type { FileClass } from './file-class.ts';
import type { Statements } from './statements.ts';
import { MOVED } from './volume-move-tables.ts';

/** Class of a directory; `replicas` is 0 for as many as the volume. */
export interface DirectoryClassRow extends FileClass {
  readonly directory: number;
  readonly volume: number;
}

const COLUMNS = 'directory, volume, labels, zones, replicas';

/** Placement classes of directories. Plain access, no rules. */
export class DirectoryClassTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(directory: number): DirectoryClassRow | undefined {
    return this.#statements.get<DirectoryClassRow>(
      `SELECT ${COLUMNS} FROM directory_classes WHERE directory = ?`,
      directory,
    );
  }

  /** Without those of volumes that have moved to other catalogs. */
  all(): DirectoryClassRow[] {
    return this.#statements.all<DirectoryClassRow>(
      `SELECT ${COLUMNS} FROM directory_classes
       WHERE volume NOT IN (${MOVED}) ORDER BY volume, directory`,
    );
  }

  count(): number {
    return this.#statements.counter('SELECT COUNT(*) FROM directory_classes');
  }

  get isEmpty(): boolean {
    return this.#statements.get('SELECT 1 FROM directory_classes LIMIT 1') === undefined;
  }

  put({ directory, volume, labels, zones, replicas }: DirectoryClassRow): void {
    this.#statements.run(
      'INSERT OR REPLACE INTO directory_classes (directory, volume, labels, zones, replicas) VALUES (?, ?, ?, ?, ?)',
      ...[directory, volume, labels, zones, replicas],
    );
  }

  /** The directory is in another volume, with its class if it has one. */
  setVolume(directory: number, volume: number): void {
    this.#statements.run('UPDATE directory_classes SET volume = ? WHERE directory = ?', volume, directory);
  }

  delete(directory: number): void {
    this.#statements.run('DELETE FROM directory_classes WHERE directory = ?', directory);
  }

  /** The class of inodes with this `placement` in a volume: of the directory if it still has one, else the volume's. */
  of(volume: FileClass, placement: number): FileClass {
    const row = placement === 0 ? undefined : this.row(placement);
    if (row === undefined) return volume;
    const { labels, zones, replicas } = row;
    return { labels, zones, replicas: replicas === 0 ? volume.replicas : replicas };
  }
}
