import { existsSync } from 'node:fs';
import type { Logger } from 'pino';
import { CATALOG_CELL, type FileId, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { MetricsRegistry } from '../metrics.ts';
import type { Placement } from '../placement.ts';
import { ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import { CatalogStore } from '../storage/catalog-store.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import type { FileOps } from '../storage/file-ops.ts';
import { CatalogHolder, type CatalogReplica } from './catalog-holder.ts';
import { LocalCatalogService } from './catalog-service.ts';
import { CatalogSubject } from './catalog-subject.ts';
import { Recaller } from './recaller.ts';

/** Inodes that one client, and all together, may believe: some hundred bytes each in the primary's memory. */
const CACHE_SESSION_GRANTS_MAX = 50_000;
const CACHE_GRANTS_MAX = 500_000;

export interface CatalogSeatParts {
  readonly self: ServerId;
  /** Who holds the catalog where the folder has none. */
  readonly members: readonly ServerId[];
  readonly cacheLeaseMsMax: number;
  readonly operationTimeoutMs: number;
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricsRegistry;
  readonly folder: DataFolder;
  readonly fileOps: FileOps;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly placement: Placement;
  drawSession(): number;
  /** Who holds the catalog, by the newest view that this server has heard of. */
  heardOf(): { readonly number: number; readonly members: readonly ServerId[] };
  isConnected(server: ServerId): boolean;
  /** @see CatalogServiceParts.commandsVersion */
  commandsVersion(server: ServerId): number | null;
  /** Has a file's primary tell the catalog all that it knows. */
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
  diskFailed(reason: string): void;
}

/** This server's place among those who hold the catalog: empty, or with a replica and all that serves from it. */
export class CatalogSeat {
  /** Serves the catalog here, or refuses with the names of those who do. */
  readonly service: CatalogHolder;
  readonly #parts: CatalogSeatParts;
  #store: CatalogStore | null = null;
  #recaller: Recaller | null = null;

  constructor(parts: CatalogSeatParts) {
    this.#parts = parts;
    this.service = new CatalogHolder({
      self: parts.self,
      heardOf: () => parts.heardOf(),
      out: () => parts.lease.close(CATALOG_CELL),
      open: () => this.#open(),
    });
  }

  /** Null while this server holds no replica. */
  get store(): CatalogStore | null {
    return this.#store;
  }

  /** Null while this server holds no replica. */
  get recaller(): Recaller | null {
    return this.#recaller;
  }

  /** The volumes as the primary has them, where that is this server; else none. */
  volumesAtPrimary(): readonly VolumeInfo[] {
    if (this.#store === null || this.service.status().primary !== this.#parts.self) return [];
    return this.#store.query({ kind: 'volumes' }).volumes;
  }

  /**
   * Holds a replica where this server has one on its disk, or is a member: of the newest view that it knows, or of the first one. A
   * member that has lost its disk begins with an empty replica, which counts for nothing until it is brought up to date.
   */
  async sitDown(): Promise<void> {
    const { members, self, folder, heardOf } = this.#parts;
    const isMember = members.includes(self) || heardOf().members.includes(self);
    if (isMember || existsSync(folder.file('catalog.db'))) await this.service.hold();
  }

  /** Of a replica that is empty still. */
  #firstView(): View {
    const { members, self, heardOf } = this.#parts;
    const heard = heardOf();
    return heard.members.includes(self) ? heard : { number: 1, members };
  }

  async #open(): Promise<CatalogReplica> {
    const { self, folder, fileOps, host, lease, placement, world, clock, log, metrics } = this.#parts;
    const view = this.#firstView();
    const store = await CatalogStore.open({
      world,
      folder: folder.path,
      view,
      startCounter: folder.startCounter,
      powerLossStart: folder.powerLossStart,
      mark: folder.mark('catalog.db'),
      failed: (reason) => this.#parts.diskFailed(reason),
      fileOps,
    });
    this.#store = store;
    const subject = new CatalogSubject(store);
    const driver = host.adopt((around) => new ReplicaDriver(CATALOG_CELL, subject, around));
    const recaller = new Recaller({
      world,
      driver,
      options: {
        leaseMsMax: this.#parts.cacheLeaseMsMax,
        sessionGrantsMax: CACHE_SESSION_GRANTS_MAX,
        grantsMax: CACHE_GRANTS_MAX,
        draw: () => this.#parts.drawSession(),
      },
      log,
      metrics,
    });
    this.#recaller = recaller;
    const service = new LocalCatalogService({
      self,
      world,
      clock,
      lease,
      driver,
      subject,
      recaller,
      metrics,
      operationTimeoutMs: this.#parts.operationTimeoutMs,
      placement: (replicas, registered) => placement.choose(replicas, registered),
      capacity: (registered) => placement.candidates(registered).length,
      isConnected: (server) => this.#parts.isConnected(server),
      commandsVersion: (server) => this.#parts.commandsVersion(server),
      settle: (file, timeoutMs) => this.#parts.settle(file, timeoutMs),
    });
    return { service, view: () => subject.record().view, isLost: () => driver.status().trust === 'lost' };
  }
}
