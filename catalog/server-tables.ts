import type { PlanMark, PlannedMembers, ServerInfo, Voters } from '../wire/catalog-api.ts';
import { KIND_FILE } from './schema.ts';
import type { Statements } from './statements.ts';

/** A file's servers in the tables. */
export interface PlacedRow {
  readonly id: number;
  readonly replicas: string;
  readonly view: number;
  readonly wanted: number;
  readonly volume: number;
  readonly sizeBytes: number;
  /** Index of the file's policy; the volume's at creation. */
  readonly policy: number;
  readonly objectBytes: number;
}

export interface ScannedRow extends PlacedRow {
  readonly kind: number;
}

const SERVER_COLUMNS = `id, url, zone, state, storage_id AS storageId, born_at AS bornAt,
  free_bytes AS freeBytes, total_bytes AS totalBytes, CAST(registered_ns AS TEXT) AS registeredNs`;
const PLACED_COLUMNS =
  'id, replicas, view, wanted, volume, size AS sizeBytes, policy, object_bytes AS objectBytes';
const PLACED = `SELECT ${PLACED_COLUMNS} FROM inodes WHERE id = ? AND kind = ${KIND_FILE}`;
const PLACED_ON = 'SELECT 1 FROM placements WHERE server = ? LIMIT 1';
const PLANNED = 'SELECT 1 FROM planned_members WHERE server = ? LIMIT 1';

export class ServerTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  server(id: string): ServerInfo | undefined {
    return this.#statements.get<ServerInfo>(`SELECT ${SERVER_COLUMNS} FROM servers WHERE id = ?`, id);
  }

  all(): ServerInfo[] {
    return this.#statements.all<ServerInfo>(`SELECT ${SERVER_COLUMNS} FROM servers ORDER BY id`);
  }

  put(server: ServerInfo): void {
    this.#statements.run(
      'INSERT OR REPLACE INTO servers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
      server.id,
      server.url,
      server.zone,
      server.state,
      server.storageId,
      server.bornAt,
      server.freeBytes,
      server.totalBytes,
      server.registeredNs,
    );
  }

  /** The voters on named leases; null before the first change. */
  voters(): Voters | null {
    const row = this.#statements.get<{ view: string }>('SELECT view FROM voters WHERE id = 1');
    return row === undefined ? null : (JSON.parse(row.view) as Voters);
  }

  setVoters(view: Voters): void {
    this.#statements.run('INSERT OR REPLACE INTO voters VALUES (1, ?, ?)', view.number, JSON.stringify(view));
  }

  retireStore(storageId: string): void {
    this.#statements.run('INSERT OR IGNORE INTO replaced_stores VALUES (?)', storageId);
  }

  isRetired(storageId: string): boolean {
    return (
      this.#statements.get('SELECT 1 FROM replaced_stores WHERE storage_id = ?', storageId) !== undefined
    );
  }

  /** @param replicas server ids, separated by commas */
  addPlacements(inode: number, replicas: string): void {
    for (const server of replicas.split(','))
      this.#statements.run('INSERT INTO placements VALUES (?, ?)', server, inode);
  }

  removePlacements(inode: number, replicas: string): void {
    for (const server of replicas.split(','))
      this.#statements.run('DELETE FROM placements WHERE server = ? AND inode = ?', server, inode);
  }

  /** Includes files of which the server will become a member. */
  hasFiles(server: string): boolean {
    return [PLACED_ON, PLANNED].some((query) => this.#statements.get(query, server) !== undefined);
  }

  /** Number of files that a server holds or will hold; visits each of them. */
  count(server: string): number {
    const row = this.#statements.get<{ count: number }>(
      `SELECT COUNT(*) AS count FROM (SELECT inode FROM placements WHERE server = ?
       UNION SELECT inode FROM planned_members WHERE server = ?)`,
      server,
      server,
    );
    return row?.count ?? 0;
  }

  /** Replaces the planned members of a file. */
  plan(inode: number, servers: readonly string[], view: number, { epoch, turn }: PlanMark): void {
    if (!this.hasPlanned) this.#statements.run('UPDATE counters SET planned = 1');
    this.endPlan(inode, Number.MAX_SAFE_INTEGER);
    for (const server of servers)
      this.#statements.run(
        'INSERT INTO planned_members (server, inode, view, epoch, turn) VALUES (?, ?, ?, ?, ?)',
        ...[server, inode, view, epoch, turn],
      );
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

  /** Inodes of all kinds, by number. */
  scan(after: number, countMax: number): ScannedRow[] {
    return this.#statements.all<ScannedRow>(
      `SELECT kind, ${PLACED_COLUMNS} FROM inodes WHERE id > ? ORDER BY id LIMIT ?`,
      after,
      countMax,
    );
  }
}
