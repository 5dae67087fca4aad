import type { ClusterSettings, ServerInfo, Voters } from '../wire/catalog-api.ts';
import { joinList, splitList } from './lists.ts';
import type { Statements } from './statements.ts';

const SERVER_COLUMNS = `id, url, zone, state, storage_id AS storageId, born_at AS bornAt,
  free_bytes AS freeBytes, total_bytes AS totalBytes, CAST(registered_ns AS TEXT) AS registeredNs,
  CAST(maintenance_ns AS TEXT) AS maintenanceNs, labels`;

type ServerRow = Omit<ServerInfo, 'maintenanceNs' | 'labels'> & {
  readonly maintenanceNs: string | null;
  readonly labels: string;
};

/** Servers, replaced stores, the voters of named leases, and settings. Plain access, no rules. */
export class ServerTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  server(id: string): ServerInfo | undefined {
    const row = this.#statements.get<ServerRow>(`SELECT ${SERVER_COLUMNS} FROM servers WHERE id = ?`, id);
    return row === undefined ? undefined : serverInfoOf(row);
  }

  all(): ServerInfo[] {
    return this.#statements
      .all<ServerRow>(`SELECT ${SERVER_COLUMNS} FROM servers ORDER BY id`)
      .map(serverInfoOf);
  }

  put(server: ServerInfo): void {
    this.#statements.run(
      `INSERT INTO servers
         (id, url, zone, state, storage_id, born_at, free_bytes, total_bytes, registered_ns, maintenance_ns, labels)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (id) DO UPDATE SET url = excluded.url, zone = excluded.zone, state = excluded.state,
         storage_id = excluded.storage_id, born_at = excluded.born_at, free_bytes = excluded.free_bytes,
         total_bytes = excluded.total_bytes, registered_ns = excluded.registered_ns,
         maintenance_ns = excluded.maintenance_ns, labels = excluded.labels`,
      server.id,
      server.url,
      server.zone,
      server.state,
      server.storageId,
      server.bornAt,
      server.freeBytes,
      server.totalBytes,
      server.registeredNs,
      server.maintenanceNs ?? null,
      joinList(server.labels),
    );
  }

  settings(): ClusterSettings {
    const count = this.#statements.counter('SELECT catalog_replicas FROM settings');
    return { catalogReplicas: count === 0 ? null : count };
  }

  setSettings({ catalogReplicas }: ClusterSettings): void {
    this.#statements.run('UPDATE settings SET catalog_replicas = ?', catalogReplicas ?? 0);
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

/** Empty fields are absent: earlier releases, which store the same results, do not know them. */
function serverInfoOf({ maintenanceNs, labels, ...server }: ServerRow): ServerInfo {
  return {
    ...server,
    ...(labels === '' ? {} : { labels: splitList(labels) }),
    ...(maintenanceNs === null ? {} : { maintenanceNs }),
  };
}
