import { assert } from '../base/assert.ts';
import type { Statements } from './statements.ts';

/** A volume with unfilled inodes, and the snapshot that has what they lack. */
export interface CloneRow {
  readonly volume: number;
  readonly source: number;
  readonly serial: number;
  readonly unfilled: number;
  /** 1 if all of it is to be filled. */
  readonly flattens: number;
}

/** A directory or file of a clone that needs its origin, which the snapshot shows. */
export interface UnfilledRow {
  readonly inode: number;
  readonly volume: number;
  readonly origin: number;
  /** Of a directory: the last name that was copied. */
  readonly position: string;
  /** Of a file: the servers that copy its contents, separated by commas; '' before its first change. */
  readonly members: string;
}

/**
 * Entries of this directory are needed, and not all of them are here. No refusal: the command or query is executed
 * again once `clone-fill` has copied them, and no client sees this.
 */
export class UnfilledDirectory extends Error {
  override readonly name = 'UnfilledDirectory';
  readonly inode: number;

  constructor(inode: number) {
    super(`Directory ${inode} has entries that are to be copied from a snapshot`);
    this.inode = inode;
  }
}

const UNFILLED_COLUMNS = 'inode, volume, origin, position, members';
const CLONE_COLUMNS = 'volume, source, serial, unfilled, flattens';

/** Volumes that are clones of snapshots, and what they still share with them: docs/design/clones.md. */
export class CloneTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** @throws UnfilledDirectory */
  assertFilled(directory: number): void {
    if (this.isUnfilled(directory)) throw new UnfilledDirectory(directory);
  }

  isUnfilled(inode: number): boolean {
    return this.#statements.get('SELECT 1 FROM unfilled WHERE inode = ?', inode) !== undefined;
  }

  unfilled(inode: number): UnfilledRow | undefined {
    return this.#statements.get<UnfilledRow>(
      `SELECT ${UNFILLED_COLUMNS} FROM unfilled WHERE inode = ?`,
      inode,
    );
  }

  /** What is to be filled although no one needs it: files whose copies have begun, and all of some clones. */
  toFill(after: number, countMax: number): UnfilledRow[] {
    const volumes = this.#statements.all<{ volume: number }>('SELECT volume FROM clones WHERE flattens = 1');
    const found = [
      this.#unfilledAfter("members <> ''", after, countMax),
      ...volumes.map(({ volume }) => this.#unfilledAfter('volume = ?', after, countMax, volume)),
    ];
    const rows = new Map(found.flat().map((row) => [row.inode, row]));
    return [...rows.values()].sort((a, b) => a.inode - b.inode).slice(0, countMax);
  }

  #unfilledAfter(condition: string, after: number, countMax: number, ...values: number[]): UnfilledRow[] {
    return this.#statements.all<UnfilledRow>(
      `SELECT ${UNFILLED_COLUMNS} FROM unfilled WHERE ${condition} AND inode > ? ORDER BY inode LIMIT ?`,
      ...[...values, after, countMax],
    );
  }

  /** Whether a server is to copy contents of files. */
  areCopiedTo(server: string): boolean {
    return (
      this.#statements.get(
        "SELECT 1 FROM unfilled WHERE members <> '' AND INSTR(',' || members || ',', ?) > 0 LIMIT 1",
        `,${server},`,
      ) !== undefined
    );
  }

  get isEmpty(): boolean {
    return this.#statements.get('SELECT 1 FROM clones LIMIT 1') === undefined;
  }

  ofVolume(volume: number): CloneRow | undefined {
    return this.#statements.get<CloneRow>(`SELECT ${CLONE_COLUMNS} FROM clones WHERE volume = ?`, volume);
  }

  /** Clones that need a snapshot of the volume. @param serial null: any of its snapshots */
  ofSource(source: number, serial: number | null): CloneRow[] {
    return this.#statements.all<CloneRow>(
      `SELECT ${CLONE_COLUMNS} FROM clones WHERE source = ? AND (? IS NULL OR serial = ?) ORDER BY volume`,
      ...[source, serial, serial],
    );
  }

  create({ volume, source, serial }: Pick<CloneRow, 'volume' | 'source' | 'serial'>): void {
    this.#statements.run('INSERT INTO clones VALUES (?, ?, ?, 0, 0)', volume, source, serial);
  }

  flatten(volume: number): void {
    this.#statements.run('UPDATE clones SET flattens = 1 WHERE volume = ?', volume);
  }

  add(volume: number, inode: number, origin: number): void {
    this.#statements.run("INSERT INTO unfilled VALUES (?, ?, ?, '', '')", inode, volume, origin);
    this.#statements.run('UPDATE clones SET unfilled = unfilled + 1 WHERE volume = ?', volume);
  }

  setPosition(directory: number, position: string): void {
    this.#statements.run('UPDATE unfilled SET position = ? WHERE inode = ?', position, directory);
  }

  /** @param members of the first view of a file, separated by commas: they never change */
  setMembers(file: number, members: string): void {
    this.#statements.run('UPDATE unfilled SET members = ? WHERE inode = ?', members, file);
  }

  /** The inode needs its origin no longer; the last one of a volume makes that a volume like others. */
  end(inode: number): void {
    const row = this.unfilled(inode);
    if (row === undefined) return;
    this.#statements.run('DELETE FROM unfilled WHERE inode = ?', inode);
    const left = this.#statements.counter(
      'UPDATE clones SET unfilled = unfilled - 1 WHERE volume = ? RETURNING unfilled',
      row.volume,
    );
    assert(left >= 0, 'A clone counts its unfilled inodes');
    if (left === 0) this.#statements.run('DELETE FROM clones WHERE volume = ?', row.volume);
  }

  /** The copy of an origin that has another name in the clone already: this is one more of them. */
  nextName(volume: number, origin: number): number | undefined {
    const row = this.#statements.get<{ inode: number; names: number }>(
      'SELECT inode, names FROM clone_names WHERE volume = ? AND origin = ?',
      ...[volume, origin],
    );
    if (row === undefined) return undefined;
    const [change, ...values] =
      row.names === 1 ? ['DELETE FROM clone_names'] : ['UPDATE clone_names SET names = ?', row.names - 1];
    this.#statements.run(`${change} WHERE volume = ? AND origin = ?`, ...values, volume, origin);
    return row.inode;
  }

  /** @param names how many names of the origin are to come */
  expectNames(volume: number, origin: number, inode: number, names: number): void {
    this.#statements.run('INSERT INTO clone_names VALUES (?, ?, ?, ?)', volume, origin, inode, names);
  }
}
