import type { PlanMark, PlannedMembers } from '../wire/catalog-api.ts';
import { KIND_FILE } from './schema.ts';
import type { Statements } from './statements.ts';

/** A file's servers in the tables. */
export interface PlacedRow {
  readonly id: number;
  readonly replicas: string;
  readonly view: number;
  readonly wanted: number;
  readonly volume: number;
  /** The directory whose class it has; 0: the volume's. */
  readonly placement: number;
  /** The directory whose quota it counts against; 0: its volume's alone. */
  readonly quota: number;
  readonly sizeBytes: number;
  /** Index of the file's policy; the volume's at creation. */
  readonly policy: number;
  readonly objectBytes: number;
}

/** Files of a class with equal servers, and equal numbers of wanted ones; `wanted` is 0 if the class decides. */
export interface PlacedSet {
  readonly volume: number;
  /** The directory whose class they have; 0: the volume's. */
  readonly placement: number;
  readonly members: number;
  readonly wanted: number;
  /** Server ids, separated by commas. */
  readonly replicas: string;
}

/** Files with equal servers; `first` is the smallest one. */
export interface MovingSet {
  readonly members: string;
  readonly files: number;
  readonly first: number;
}

const PLACED_COLUMNS =
  'id, replicas, view, wanted, volume, placement, quota, size AS sizeBytes, policy, object_bytes AS objectBytes';
const PLACED = `SELECT ${PLACED_COLUMNS} FROM inodes WHERE id = ? AND kind = ${KIND_FILE}`;
const PLACED_ON = 'SELECT 1 FROM placements WHERE server = ? LIMIT 1';
const PLANNED = 'SELECT 1 FROM planned_members WHERE server = ? LIMIT 1';
/** The condition of the index `file_sets`. A file without servers will preserve another's contents soon. */
const IS_PLACED = `kind = ${KIND_FILE} AND replicas <> ''`;

/** Which servers hold which files, and will hold them. Plain access, no rules. */
export class PlacementTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** @param replicas server ids, separated by commas */
  add(inode: number, replicas: string): void {
    this.insert(inode, replicas);
    this.addToCounts(replicas, 1);
  }

  /** Like `add`, without the counts; the caller adds to them once for many files. */
  insert(inode: number, replicas: string): void {
    for (const server of replicas.split(','))
      this.#statements.run('INSERT INTO placements VALUES (?, ?)', server, inode);
  }

  addToCounts(replicas: string, files: number): void {
    for (const server of replicas.split(','))
      this.#statements.run(
        'INSERT INTO placement_counts VALUES (?, ?) ON CONFLICT (server) DO UPDATE SET files = files + excluded.files',
        ...[server, files],
      );
    this.#statements.run(
      'INSERT INTO member_sets VALUES (?, ?) ON CONFLICT (members) DO UPDATE SET files = files + excluded.files',
      ...[replicas, files],
    );
  }

  remove(inode: number, replicas: string): void {
    for (const server of replicas.split(',')) {
      this.#statements.run('DELETE FROM placements WHERE server = ? AND inode = ?', server, inode);
      this.#statements.run('UPDATE placement_counts SET files = files - 1 WHERE server = ?', server);
      // So that the table depends on the placements alone, also where it was filled by a migration.
      this.#statements.run('DELETE FROM placement_counts WHERE server = ? AND files = 0', server);
    }
    this.#statements.run('UPDATE member_sets SET files = files - 1 WHERE members = ?', replicas);
    this.#statements.run('DELETE FROM member_sets WHERE members = ? AND files = 0', replicas);
  }

  /** The sets of servers that hold files and include `server`, with their numbers of files; visits no file. */
  memberSets(server: string): { readonly members: string; readonly files: number }[] {
    return this.#statements.all(
      "SELECT members, files FROM member_sets WHERE INSTR(',' || members || ',', ?) > 0 ORDER BY members",
      `,${server},`,
    );
  }

  /**
   * Of the files on `server` that one of `to` will hold: their sets of servers, with the number of files and the
   * smallest one. Visits each file that one of `to` will hold.
   */
  movingSets(server: string, to: readonly string[]): MovingSet[] {
    return this.#statements.all<MovingSet>(
      `SELECT i.replicas AS members, COUNT(DISTINCT i.id) AS files, MIN(i.id) AS first
       FROM json_each(?) t CROSS JOIN planned_members m ON m.server = t.value
         CROSS JOIN placements p ON p.server = ? AND p.inode = m.inode CROSS JOIN inodes i ON i.id = m.inode
       GROUP BY i.replicas ORDER BY i.replicas`,
      ...[JSON.stringify(to), server],
    );
  }

  /** Number of files that a server will hold; visits each of them. */
  plannedCount(server: string): number {
    return this.#statements.counter('SELECT COUNT(*) FROM planned_members WHERE server = ?', server);
  }

  /** Includes files of which the server will become a member. */
  hasFiles(server: string): boolean {
    return [PLACED_ON, PLANNED].some((query) => this.#statements.get(query, server) !== undefined);
  }

  /** Number of files that a server holds, as counted, or will hold; visits only the latter. */
  count(server: string): number {
    return this.#statements.counter(
      `SELECT COALESCE((SELECT files FROM placement_counts WHERE server = ?), 0)
         + (SELECT COUNT(*) FROM planned_members m WHERE m.server = ?
            AND NOT EXISTS (SELECT 1 FROM placements p WHERE p.server = m.server AND p.inode = m.inode))`,
      ...[server, server],
    );
  }

  /** Replaces the planned members of a file. */
  plan(inode: number, servers: readonly string[], view: number, { epoch, turn }: PlanMark): void {
    this.notePlanned();
    this.endPlan(inode, Number.MAX_SAFE_INTEGER);
    for (const server of servers)
      this.#statements.run(
        'INSERT INTO planned_members (server, inode, view, epoch, turn) VALUES (?, ?, ?, ?, ?)',
        ...[server, inode, view, epoch, turn],
      );
  }

  /** There is a plan, or was one. */
  notePlanned(): void {
    if (!this.hasPlanned) this.#statements.run('UPDATE counters SET planned = 1');
  }

  get hasPlanned(): boolean {
    return this.#statements.counter('SELECT planned FROM counters') === 1;
  }

  planOf(inode: number): PlannedMembers | null {
    const rows = this.#statements.all<{ server: string; view: number; epoch: number; turn: number }>(
      'SELECT server, view, epoch, turn FROM planned_members WHERE inode = ? ORDER BY server',
      inode,
    );
    const [first] = rows;
    if (first === undefined) return null;
    const { view, epoch, turn } = first;
    return { servers: rows.map(({ server }) => server), view, mark: { epoch, turn } };
  }

  /** Ends changes that began with a view below `view`. */
  endPlan(inode: number, view: number): void {
    this.#statements.run('DELETE FROM planned_members WHERE inode = ? AND view < ?', inode, view);
  }

  /** Files with planned members, by number. */
  plannedFiles(after: number, countMax: number): PlacedRow[] {
    return this.#statements
      .all<{ inode: number }>(
        'SELECT DISTINCT inode FROM planned_members WHERE inode > ? ORDER BY inode LIMIT ?',
        after,
        countMax,
      )
      .flatMap(({ inode }) => this.placed(inode) ?? []);
  }

  filesOn(server: string, after: number, countMax: number): PlacedRow[] {
    return this.#statements
      .all<{ inode: number }>(
        'SELECT inode FROM placements WHERE server = ? AND inode > ? ORDER BY inode LIMIT ?',
        server,
        after,
        countMax,
      )
      .flatMap(({ inode }) => this.placed(inode) ?? []);
  }

  /** A file's servers; undefined if the inode is no file or was deleted. */
  placed(inode: number): PlacedRow | undefined {
    return this.#statements.get<PlacedRow>(PLACED, inode);
  }

  /** The next set; undefined after the last. Takes one step in the index, however many files. */
  nextSet({ volume, placement, members, wanted, replicas }: PlacedSet): PlacedSet | undefined {
    // The least text that is greater. Not `>` of the set itself: SQLite would visit all its files first.
    return this.#setFrom(volume, placement, members, wanted, `${replicas}\0`);
  }

  /** The next set with another volume, class, number of members, or wanted number. */
  nextCount({ volume, placement, members, wanted }: PlacedSet): PlacedSet | undefined {
    return this.#setFrom(volume, placement, members, wanted + 1, '');
  }

  #setFrom(...from: [...counts: [number, number, number, number], replicas: string]): PlacedSet | undefined {
    return this.#statements.get<PlacedSet>(
      `SELECT volume, placement, members, wanted, replicas FROM inodes INDEXED BY file_sets
       WHERE ${IS_PLACED} AND (volume, placement, members, wanted, replicas) >= (?, ?, ?, ?, ?)
       ORDER BY volume, placement, members, wanted, replicas LIMIT 1`,
      ...from,
    );
  }

  filesOfSet(set: PlacedSet, after: number, countMax: number): PlacedRow[] {
    const { volume, placement, members, wanted, replicas } = set;
    return this.#statements.all<PlacedRow>(
      `SELECT ${PLACED_COLUMNS} FROM inodes INDEXED BY file_sets
       WHERE ${IS_PLACED} AND volume = ? AND placement = ? AND members = ? AND wanted = ? AND replicas = ? AND id > ?
       ORDER BY id LIMIT ?`,
      ...[volume, placement, members, wanted, replicas, after, countMax],
    );
  }
}
