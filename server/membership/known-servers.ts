import { readFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { isServerId, type ServerId, serverIdCompare } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ClusterSettings, ServerInfo, ServerState } from '../../wire/catalog-api.ts';
import type { ClusterServers } from '../../wire/http-api.ts';
import { maintenanceUntilMs } from '../../wire/maintenance.ts';
import { replaceFile } from '../storage/whole-file.ts';

/** The servers that a cluster began with: the first voters on named leases, and the first members of the catalog. */
export interface Bootstrap {
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly catalogMembers: readonly ServerId[];
}

export interface CatalogView {
  readonly number: number;
  readonly members: readonly ServerId[];
}

const FIRST_VIEW = 1;

/** Epoch and operation of the catalog from which a list of servers is: a list with a smaller one is older. */
export type CatalogVersion = readonly [epoch: number, seq: number];

export interface KnownServersParts {
  readonly self: ServerId;
  readonly selfUrl: string;
  readonly cluster: string;
  readonly paramsHash: string;
  /** Settings that must be the same on all servers, by option. */
  readonly settings: Readonly<Record<string, string>>;
  readonly bootstrap: Bootstrap;
  /** Addresses from this server's own configuration: they override the catalog's. */
  readonly configured: ReadonlyMap<ServerId, string>;
  readonly world: World;
  readonly file: string;
  readonly log: Logger;
}

type KnownServer = ClusterServers['servers'][number];

/**
 * What this server knows of the others without a request: their addresses and states. The catalog reports it, and it is
 * kept on disk, so that this server finds the others even without configuration and without a majority of the catalog.
 */
export class KnownServers {
  /** Base URLs of all servers that take part, this one included. Changes in place. */
  readonly urls = new Map<ServerId, string>();
  /** All servers that take part but this one. Changes in place. */
  readonly others: ServerId[] = [];
  readonly #parts: KnownServersParts;
  readonly #listeners = new Set<() => void>();
  #servers: readonly KnownServer[] = [];
  #catalogView: CatalogView;
  #moment: CatalogVersion = [0, 0];
  /** Null until the catalog has reported them. */
  #settings: ClusterSettings | null = null;
  #written = '';

  constructor(parts: KnownServersParts, remembered: ClusterServers | null) {
    this.#parts = parts;
    this.#catalogView = { number: FIRST_VIEW, members: parts.bootstrap.catalogMembers };
    if (remembered !== null) {
      this.#servers = remembered.servers;
      this.#catalogView = catalogViewOf(remembered);
      this.#settings = settingsOf(remembered);
    }
    this.#update();
  }

  /** The newest view of the catalog that this server knows. */
  get catalogView(): CatalogView {
    return this.#catalogView;
  }

  /** The wanted number of the catalog's members; null: by the number of servers. */
  get catalogReplicas(): number | null {
    return this.#settings?.catalogReplicas ?? null;
  }

  /** When a server's maintenance ends, by the wall clock; null if it is in none. */
  maintenanceUntilMs(server: ServerId): number | null {
    const known = this.#servers.find(({ id }) => id === server);
    const untilMs = known === undefined ? null : maintenanceUntilMs(known);
    return untilMs !== null && this.#parts.world.wallMs() < untilMs ? untilMs : null;
  }

  labelsOf(server: ServerId): readonly string[] {
    return this.#servers.find(({ id }) => id === server)?.labels ?? [];
  }

  /** The state of a server; `in` for an unknown one. */
  stateOf(server: ServerId): ServerState {
    return this.#servers.find(({ id }) => id === server)?.state ?? 'in';
  }

  get isDraining(): boolean {
    return this.stateOf(this.#parts.self) !== 'in';
  }

  /** @returns what to call to unsubscribe */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Adopts the catalog's list, unless an older one.
   * @param moment null if unknown: the list counts as the newest
   * @param settings null if unknown: those known before stay
   */
  adoptCatalogList(
    servers: readonly KnownServer[],
    catalogView: CatalogView | null,
    moment: CatalogVersion | null,
    settings: ClusterSettings | null = null,
  ): void {
    if (moment !== null) {
      const [epoch, seq] = this.#moment;
      if (moment[0] < epoch || (moment[0] === epoch && moment[1] < seq)) return;
      this.#moment = moment;
    }
    if (settings !== null) this.#settings = settings;
    this.#adopt(servers, catalogView);
  }

  /**
   * Merges another server's list, which may be older: adds unknown servers, and adopts a newer view of the catalog. So
   * a member of the catalog whose disk was replaced finds the others, even while the catalog waits for it.
   */
  mergePeerList({ servers, ...rest }: ClusterServers): void {
    const unknown = servers.filter(({ id }) => !this.#servers.some((known) => known.id === id));
    const catalogView = catalogViewOf(rest);
    if (unknown.length > 0 || catalogView.number > this.#catalogView.number)
      this.#adopt([...this.#servers, ...unknown], catalogView);
  }

  /** Whether the cluster has this server. If it is unknown here, first adopts the catalog's list, which may have it. */
  async find(server: ServerId, listed: () => Promise<readonly ServerInfo[]>): Promise<boolean> {
    if (!this.urls.has(server)) this.adoptCatalogList((await listed()).map(knownServerOf), null, null);
    return this.urls.has(server);
  }

  /** Replaces the list of servers, and the catalog's view by a newer one; stores both. Calls listeners if changed. */
  #adopt(servers: readonly KnownServer[], catalogView: CatalogView | null): void {
    this.#servers = servers.map(knownServerOf);
    const moved = catalogView !== null && catalogView.number > this.#catalogView.number;
    if (moved) this.#catalogView = catalogView;
    const changed = this.#update() || moved;
    this.#remember();
    if (changed) for (const listener of [...this.#listeners]) listener();
  }

  /** The answer to another server that joins, or queries the list of servers. */
  describe(): ClusterServers {
    const { cluster, paramsHash, settings, bootstrap } = this.#parts;
    return {
      cluster,
      paramsHash,
      settings,
      bootstrap: { urls: Object.fromEntries(bootstrap.urls), catalogMembers: bootstrap.catalogMembers },
      catalogMembers: this.#catalogView.members,
      catalogView: this.#catalogView.number,
      ...(this.#settings === null ? {} : { catalogReplicas: this.#settings.catalogReplicas }),
      servers: this.#servers,
    };
  }

  /** Recomputes `urls` and `others`. @returns whether they, or this server's state, have changed */
  #update(): boolean {
    const { self, selfUrl, configured, bootstrap } = this.#parts;
    const before = JSON.stringify([[...this.urls], this.stateOf(self)]);
    const urls = new Map<ServerId, string>(bootstrap.urls);
    for (const { id, url, state } of this.#servers) {
      if (!isServerId(id)) continue;
      if (state === 'out') urls.delete(id);
      else urls.set(id, configured.get(id) ?? url);
    }
    urls.set(self, selfUrl);
    const sorted = [...urls].toSorted(([a], [b]) => serverIdCompare(a, b));
    this.urls.clear();
    for (const [id, url] of sorted) this.urls.set(id, url);
    this.others.splice(0, this.others.length, ...[...this.urls.keys()].filter((id) => id !== self));
    return before !== JSON.stringify([[...this.urls], this.stateOf(self)]);
  }

  #remember(): void {
    const text = `${JSON.stringify(this.describe(), null, 2)}\n`;
    if (text === this.#written) return;
    const { file, world, log } = this.#parts;
    try {
      replaceFile(file, text, world.randomBytes(8).toString('hex'));
      this.#written = text;
    } catch (error) {
      // The file only helps the next start.
      log.warn({ err: error, file }, 'the list of servers could not be written');
    }
  }
}

/** @returns what an earlier process recorded; null if there is nothing usable */
export function readRecordedServers(file: string): ClusterServers | null {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError || (error instanceof Error && 'code' in error)) return null;
    throw error;
  }
  return isClusterServers(value) ? value : null;
}

export function isClusterServers(value: unknown): value is ClusterServers {
  if (typeof value !== 'object' || value === null) return false;
  const { cluster, paramsHash, bootstrap, catalogMembers, catalogView, servers } = value as Record<
    string,
    unknown
  >;
  if (!Number.isSafeInteger(catalogView)) return false;
  if (typeof cluster !== 'string' || typeof paramsHash !== 'string') return false;
  if (typeof bootstrap !== 'object' || bootstrap === null) return false;
  const { urls, catalogMembers: first } = bootstrap as Record<string, unknown>;
  return (
    typeof urls === 'object' &&
    urls !== null &&
    Object.entries(urls).every(([id, url]) => isServerId(id) && typeof url === 'string') &&
    areServerIds(first) &&
    areServerIds(catalogMembers) &&
    Array.isArray(servers) &&
    servers.every(isKnownServer)
  );
}

export function catalogViewOf({
  catalogView,
  catalogMembers,
}: Pick<ClusterServers, 'catalogView' | 'catalogMembers'>): CatalogView {
  return { number: catalogView, members: catalogMembers as readonly ServerId[] };
}

/** Null from servers of earlier releases, and before the catalog has reported them. */
export function settingsOf({ catalogReplicas }: ClusterServers): ClusterSettings | null {
  return catalogReplicas === undefined ? null : { catalogReplicas };
}

function areServerIds(value: unknown): value is ServerId[] {
  return Array.isArray(value) && value.every((id) => typeof id === 'string' && isServerId(id));
}

function isKnownServer(value: unknown): value is KnownServer {
  if (typeof value !== 'object' || value === null) return false;
  const { id, url, zone, labels, state, maintenanceNs } = value as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    isServerId(id) &&
    typeof url === 'string' &&
    URL.canParse(url) &&
    typeof zone === 'string' &&
    (labels === undefined || (Array.isArray(labels) && labels.every((label) => typeof label === 'string'))) &&
    (['in', 'draining', 'out'] satisfies ServerState[] as unknown[]).includes(state) &&
    (maintenanceNs === undefined || (typeof maintenanceNs === 'string' && /^\d{1,19}$/.test(maintenanceNs)))
  );
}

export function knownServerOf(server: KnownServer): KnownServer {
  const { id, url, zone, labels, state, maintenanceNs } = server;
  return {
    ...{ id, url, zone, state },
    ...(labels === undefined ? {} : { labels }),
    ...(maintenanceNs === undefined ? {} : { maintenanceNs }),
  };
}
