import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  catalogCell,
  catalogOfCell,
  type Incarnation,
  isCatalogCell,
  type ServerId,
} from '../../base/ids.ts';
import { viewVoters } from '../../replica/view.ts';
import type { CatalogDisk } from '../../server/catalog/catalog-disk.ts';
import type { CatalogHolder } from '../../server/catalog/catalog-holder.ts';
import { CatalogKeeper } from '../../server/catalog/catalog-keeper.ts';
import { CatalogMember } from '../../server/catalog/catalog-member.ts';
import { CatalogMetrics } from '../../server/catalog/catalog-metrics.ts';
import type { CatalogRow } from '../../server/catalog/catalog-rows.ts';
import {
  diskOfVolume,
  openVolumeCatalogsAtStart,
  VolumeCatalogs,
} from '../../server/catalog/volume-catalogs.ts';
import { LeaseDriver } from '../../server/drivers/lease-driver.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { ReplicaHost } from '../../server/file/replica-host.ts';
import { KnownCatalogs, type KnownList } from '../../server/membership/known-catalogs.ts';
import { Clock } from '../../server/process/clock.ts';
import { Placement } from '../../server/process/placement.ts';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { damageIn } from '../../server/storage/database-check.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';
import { MetricsRegistry } from '../../server/telemetry/metrics.ts';
import { CHANNEL_LEASE } from '../../server/transport/transport.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';
import type { CatalogReport, ListedServer } from '../../wire/volume-catalogs.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';

const LEASE_MS = 500;
/** Sessions of keepers: no client has one. */
const KEEPERS = 1_000_000;
const CLOCK_SKEW_MAX_MS = 20;
const log = pino({ level: 'silent' });
export const ONE = 1 as CatalogNumber;

export function rowOf(members: readonly ServerId[], change: Partial<CatalogRow> = {}): CatalogRow {
  const settings = { replicas: 1, objectBytes: 65_536 };
  const first = { number: ONE, name: 'projects', state: 'creating', members, view: 1 } as const;
  return { ...first, made: 2, since: 2, settings, ...change };
}

/** All servers are in. */
export function listOf(version: number, ...catalogs: CatalogRow[]): KnownList {
  const servers = ['a', 'b', 'c', 'd'].map((id) => serverOf(id as ServerId, 'in', 1));
  return { version, catalogs, servers };
}

export function serverOf(id: ServerId, state: ListedServer['state'], since: number): ListedServer {
  return { id, url: `http://${id}:7400`, zone: '', state, since, storageId: `disk-${id}` };
}

/** Servers with replicas of volumes' catalogs: their real databases, over the in-memory network. */
export class CatalogCluster {
  readonly fatal: unknown[] = [];
  /** Reports that the root catalog has received. */
  readonly reports: CatalogReport[] = [];
  /** Volumes whose moves it has ended. */
  readonly aborted: string[] = [];
  /** Pages of a volume that moves. */
  exported = async (_after: string): Promise<QueryResults['volume-export']> => {
    throw new ServiceError('not-found', 'No volume moves');
  };
  /** Syncs of databases wait for it. */
  syncs: Promise<void> = Promise.resolve();
  readonly #network = new MemoryNetwork(patientWorld);
  readonly #parent = mkdtempSync(path.join(tmpdir(), 'leasehold-catalogs-'));
  readonly #running = new Set<CatalogServer>();
  #incarnations = 0;

  /** Starts a server, again if its folder exists. @param listed the list's version at its registration, if known */
  async start(id: ServerId, listed: number | null = 0, rebuild = false): Promise<CatalogServer> {
    const shared: Shared = {
      ...{ network: this.#network, rebuild },
      fatal: (error) => void this.fatal.push(error),
      root: this,
      fileOps: {
        ...diskFileOps,
        datasync: async (fd) => {
          await this.syncs;
          await diskFileOps.datasync(fd);
        },
      },
    };
    const incarnation = ++this.#incarnations as Incarnation;
    const server = await CatalogServer.start(id, path.join(this.#parent, id), incarnation, shared);
    if (listed !== null) server.known.adoptAfterRegistration(listOf(listed), listed);
    this.#running.add(server);
    return server;
  }

  async stop(server: CatalogServer): Promise<void> {
    this.#running.delete(server);
    await server.stop();
  }

  async close(): Promise<void> {
    for (const server of this.#running) await server.stop();
    rmSync(this.#parent, { recursive: true });
  }
}

interface Shared {
  readonly network: MemoryNetwork;
  readonly fileOps: FileOps;
  readonly rebuild: boolean;
  readonly root: Pick<CatalogCluster, 'reports' | 'aborted' | 'exported'>;
  fatal(error: unknown): void;
}

export class CatalogServer {
  readonly id: ServerId;
  readonly folder: DataFolder;
  readonly known: KnownCatalogs;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly catalogs: VolumeCatalogs;
  readonly registry: MetricsRegistry;
  /** Catalogs that are attended. */
  readonly attended = new Map<CatalogNumber, CatalogKeeper>();
  /** Queries of keepers. */
  keeperQueries = 0;
  readonly #transport: MemoryTransport;
  readonly #wakes: WakeQueue;

  static async start(
    id: ServerId,
    folderPath: string,
    incarnation: Incarnation,
    shared: Shared,
  ): Promise<CatalogServer> {
    const folder = DataFolder.open(folderPath, { world: patientWorld, cluster: 'test', server: id });
    const { storageId } = folder;
    const known = new KnownCatalogs({
      ...{ file: folder.file('catalogs.json'), storageId, world: patientWorld, log },
    });
    const disk = {
      ...{ self: id, world: patientWorld, folder, fileOps: shared.fileOps, logBytesMax: 1 << 28 },
      diskFailed: (reason: string) => shared.fatal(new Error(reason)),
      checkDatabase: async (file: string) => damageIn(file),
    };
    const diskOf = (number: CatalogNumber): CatalogDisk => diskOfVolume(disk, known, number);
    const parts = { folder, rows: known, log, rebuild: shared.rebuild };
    const found = await openVolumeCatalogsAtStart(parts, diskOf);
    return new CatalogServer(id, incarnation, shared, { folder, known, diskOf, found });
  }

  private constructor(
    id: ServerId,
    incarnation: Incarnation,
    { network, fatal, root }: Shared,
    storage: {
      readonly folder: DataFolder;
      readonly known: KnownCatalogs;
      readonly diskOf: (number: CatalogNumber) => CatalogDisk;
      readonly found: Awaited<ReturnType<typeof openVolumeCatalogsAtStart>>;
    },
  ) {
    const { folder, known, diskOf, found } = storage;
    this.id = id;
    this.folder = folder;
    this.known = known;
    const clock = new Clock(patientWorld);
    this.#wakes = new WakeQueue(patientWorld, clock);
    const around = { self: id, incarnation, world: patientWorld, clock, wakes: this.#wakes, log };
    this.host = new ReplicaHost({
      ...around,
      ...{ store: new MemoryStore(), heartbeatMs: 20, quietHeartbeatMs: 40, silentMs: 200 },
      ...{ readLeaseMs: 100, startGuardMs: 0, catchUpBytesPerSecond: Infinity },
      departed: { view: () => null },
      trustOfNew: () => 'intact',
      recordReplica: () => undefined,
      viewChanged: (cell, view) => {
        this.attended.get(catalogOfCell(cell))?.wake();
        if (isCatalogCell(cell) && viewVoters(view).includes(id)) this.lease.open(cell, view);
        else this.lease.viewChanged(cell, view);
      },
      becamePrimary: (cell) => this.attended.get(catalogOfCell(cell))?.wake(),
      stoppedByItself: (cell) => this.lease.release(cell),
      transport: () => this.#transport,
      isClockSound: () => true,
      fatal,
    });
    this.lease = new LeaseDriver({
      ...around,
      ...{ peers: [], leaseMs: LEASE_MS, algorithm: 'flease', clockSkewMaxMs: CLOCK_SKEW_MAX_MS },
      drawIncarnation: () => incarnation,
      transport: () => this.#transport,
      knownView: (cell) => this.host.knownView(cell),
      ownLeaseChanged: (cell, untilMs, view) => this.host.leaseChanged(cell, untilMs, view),
      fatal,
    });
    this.#transport = network.join({
      server: id,
      log,
      handlers: {
        message: (from, channel, payload, tail) => {
          if (channel === CHANNEL_LEASE) this.lease.receive(from, payload);
          else this.host.receive(from, channel, payload, tail);
        },
        connected: (peer) => this.host.connected(peer),
        disconnected: () => undefined,
        call: (_from, method, payload) => this.host.serve(method, payload),
      },
    });
    const isConnected = (server: ServerId) => server === id || this.#transport.isConnected(server);
    this.registry = new MetricsRegistry(patientWorld);
    const metrics = new CatalogMetrics(this.registry);
    this.catalogs = new VolumeCatalogs(
      {
        ...{ self: id, world: patientWorld, log, folder, rows: known, fatal },
        member: (number, store) =>
          new CatalogMember({
            ...diskOf(number),
            ...{ clock, wakes: this.#wakes, log, metrics, host: this.host, lease: this.lease, store },
            ...{ cacheLeaseMsMax: 1_000, operationTimeoutMs: 5_000, isConnected },
            placement: new Placement({ configured: [], isConnected }),
            reportReplica: () => undefined,
            isArriving: () => known.byNumber(number)?.moving !== undefined,
            listChanged: () => undefined,
            assertLost: async () => undefined,
            retained: async () => undefined,
            drawSession: () => Math.ceil(Math.random() * 1e9),
            commandsVersion: (server) => this.#transport.commandsVersion(server),
            settle: async () => undefined,
          }),
        attend: (number, { service }) => {
          let commands = 0;
          const keeper = new CatalogKeeper({
            ...{ self: id, number, world: patientWorld, log },
            service: {
              status: () => service.status(),
              flush: () => service.flush(),
              query: (query, exact) => {
                this.keeperQueries++;
                return service.query(query, exact);
              },
            },
            row: () => known.byNumber(number),
            servers: () => known.list.servers,
            view: () => service.view(),
            command: async (command) =>
              (await service.execute({
                session: KEEPERS + incarnation,
                number: ++commands,
                command,
              })) as never,
            exported: (after) => root.exported(after),
            abortMove: async (name) => void root.aborted.push(name),
            report: async (one) => void root.reports.push(one),
          });
          this.attended.set(number, keeper);
          keeper.wake();
          return {
            close: () => {
              this.attended.delete(number);
              keeper.close();
            },
          };
        },
      },
      found,
    );
    known.onChange(() => {
      for (const keeper of this.attended.values()) keeper.listChanged();
    });
    this.catalogs.start();
  }

  service(number: CatalogNumber = ONE): CatalogHolder {
    const service = this.catalogs.at(number);
    if (service === null) throw new Error(`Server ${this.id} does not know catalog ${number}`);
    return service;
  }

  async adopt(list: KnownList): Promise<void> {
    this.known.adopt(list);
    await this.catalogs.settled();
  }

  /** The file of a catalog's database, or its folder. */
  path(number: CatalogNumber = ONE, ...rest: string[]): string {
    return path.join(this.folder.path, 'catalogs', String(catalogCell(number)), ...rest);
  }

  async stop(): Promise<void> {
    await this.catalogs.stop();
    this.lease.stopCompeting();
    await this.catalogs.resign();
    this.lease.closeDriver();
    this.host.close();
    this.#wakes.close();
    await this.#transport.close();
    await this.catalogs.closeStores();
    this.folder.close();
  }
}
