import type { CatalogList, CatalogState, ListedCatalog, ListedServer } from '../wire/volume-catalogs.ts';
import type { MovePhase } from '../wire/volume-moves.ts';
import { splitList } from './lists.ts';
import type { Statements } from './statements.ts';

interface CatalogRow {
  readonly number: number;
  readonly name: string;
  readonly state: CatalogState;
  readonly view: number;
  /** Server ids, separated by commas. */
  readonly members: string;
  readonly made: number;
  readonly since: number;
  /** As JSON. */
  readonly settings: string;
  readonly refusedSince: number;
  readonly refusedWhy: string;
  /** Inode, or 0. */
  readonly attached: number;
  /** `0`: none. */
  readonly retainedNs: string;
  /** Null if no volume moves to it. */
  readonly moving: MovePhase | null;
}

const COLUMNS = `number, name, state, view, members, made, since, settings, refused_since AS refusedSince,
  refused_why AS refusedWhy, attached, CAST(retained_ns AS TEXT) AS retainedNs,
  (SELECT phase FROM volume_moves WHERE catalog = number AND phase IN ('begun', 'splitting', 'frozen', 'numbered')) AS moving`;

/** The root catalog's list of volumes' catalogs and servers, with its version. Plain access, no rules. */
export class VolumeCatalogTables {
  /** False until all members of the root catalog keep the list's version. */
  isVersioned = false;
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Of the list; 0: no server or catalog has changed since the list has versions. */
  get version(): number {
    return this.#statements.counter('SELECT catalogs_version FROM counters');
  }

  /** Whether there has never been one. */
  get isEmpty(): boolean {
    return this.nextNumber() === 1;
  }

  /** Whether a volume is attached in another one. */
  get hasAttached(): boolean {
    return this.#statements.get('SELECT 1 FROM volume_catalogs WHERE attached > 0 LIMIT 1') !== undefined;
  }

  list(): CatalogList {
    return { version: this.version, catalogs: this.all(), servers: this.#servers() };
  }

  all(): ListedCatalog[] {
    return this.#statements
      .all<CatalogRow>(`SELECT ${COLUMNS} FROM volume_catalogs ORDER BY number`)
      .map(listedCatalogOf);
  }

  byNumber(number: number): ListedCatalog | undefined {
    const row = this.#statements.get<CatalogRow>(
      `SELECT ${COLUMNS} FROM volume_catalogs WHERE number = ?`,
      number,
    );
    return row === undefined ? undefined : listedCatalogOf(row);
  }

  /** The volume's catalog, also while it is created or removed. */
  byName(name: string): ListedCatalog | undefined {
    const row = this.#statements.get<CatalogRow>(
      `SELECT ${COLUMNS} FROM volume_catalogs WHERE name = ? AND state <> 'removed'`,
      name,
    );
    return row === undefined ? undefined : listedCatalogOf(row);
  }

  /** In how many catalogs each server is a member; servers in none are left out. */
  memberships(): ReadonlyMap<string, number> {
    return this.#counted((members) => members);
  }

  /** In how many catalogs each server is the first member, which is the primary unless it was away. */
  firstMemberships(): ReadonlyMap<string, number> {
    return this.#counted((members) => members.slice(0, 1));
  }

  #counted(which: (members: readonly string[]) => readonly string[]): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { members, state } of this.all())
      if (state !== 'removed') for (const id of which(members)) counts.set(id, (counts.get(id) ?? 0) + 1);
    return counts;
  }

  /** Rows stay, so that no number is used twice. */
  nextNumber(): number {
    return this.#statements.counter('SELECT COALESCE(MAX(number), 0) + 1 FROM volume_catalogs');
  }

  /** Counts a change of the list. @returns its version */
  nextVersion(): number {
    return this.#statements.counter(
      'UPDATE counters SET catalogs_version = catalogs_version + 1 RETURNING catalogs_version',
    );
  }

  put(catalog: ListedCatalog): void {
    const { number, name, state, view, members, made, since, settings, refused, attached } = catalog;
    this.#statements.run(
      'INSERT OR REPLACE INTO volume_catalogs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
      ...[number, name, state, view, members.join(','), made, since, JSON.stringify(settings)],
      ...[refused?.since ?? 0, refused?.why ?? '', attached ?? 0, BigInt(catalog.retainedNs ?? 0)],
    );
  }

  /** The list's version at the server's last change. */
  sinceOf(server: string): number {
    return this.#statements.counter('SELECT since FROM servers WHERE id = ?', server);
  }

  setSince(server: string, version: number): void {
    this.#statements.run('UPDATE servers SET since = ? WHERE id = ?', version, server);
  }

  /** The list's version when the server's present store was registered; 0: before the list has versions. */
  storedAt(server: string): number {
    return this.#statements.counter('SELECT stored_at FROM servers WHERE id = ?', server);
  }

  /** The server has another store from this version on. */
  storeChanged(server: string): void {
    this.#statements.run('UPDATE servers SET stored_at = ? WHERE id = ?', this.version, server);
  }

  /** A server's change gets the next version; what volumes' catalogs confirmed before it is void. */
  serverChanged(server: string): void {
    this.setSince(server, this.nextVersion());
    this.#statements.run('DELETE FROM left_catalogs WHERE server = ?', server);
  }

  /** The volume's catalog has nothing at the server, as it is since its last change, and places nothing there. */
  confirm(server: string, catalog: number): void {
    this.#statements.run('INSERT OR IGNORE INTO left_catalogs VALUES (?, ?)', server, catalog);
  }

  hasConfirmed(server: string, catalog: number): boolean {
    const found = this.#statements.get(
      'SELECT 1 FROM left_catalogs WHERE server = ? AND catalog = ?',
      ...[server, catalog],
    );
    return found !== undefined;
  }

  #servers(): ListedServer[] {
    return this.#statements
      .all<Omit<ListedServer, 'labels'> & { readonly labels: string; readonly maintenanceNs: string | null }>(
        `SELECT id, url, zone, state, since, storage_id AS storageId, CAST(maintenance_ns AS TEXT) AS maintenanceNs, labels FROM servers
         ORDER BY id`,
      )
      .map(({ maintenanceNs, labels, ...server }) => ({
        ...server,
        ...(labels === '' ? {} : { labels: splitList(labels) }),
        ...(maintenanceNs === null ? {} : { maintenanceNs }),
      }));
  }
}

function listedCatalogOf({
  members,
  settings,
  refusedSince,
  refusedWhy,
  attached,
  retainedNs,
  moving,
  ...row
}: CatalogRow): ListedCatalog {
  return {
    ...row,
    members: members.split(','),
    settings: JSON.parse(settings) as ListedCatalog['settings'],
    ...(refusedSince === 0 ? {} : { refused: { since: refusedSince, why: refusedWhy } }),
    ...(attached === 0 ? {} : { attached }),
    ...(retainedNs === '0' ? {} : { retainedNs }),
    ...(moving === null ? {} : { moving }),
  };
}
