import type { ServerInfo, Voters } from '../wire/catalog-api.ts';
import type { Statements } from './statements.ts';

const SERVER_COLUMNS = `id, url, zone, state, storage_id AS storageId, born_at AS bornAt,
  free_bytes AS freeBytes, total_bytes AS totalBytes, CAST(registered_ns AS TEXT) AS registeredNs`;
/** Servers, replaced stores, and the voters of named leases. Plain access, no rules. */
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
}
