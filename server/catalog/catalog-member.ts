import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Logger } from 'pino';
import { CATALOG_CELL, type CellId, type FileId, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import { SUCCESSION_MS_MAX } from '../file/succession.ts';
import { succeedsWithin } from '../process/bounded.ts';
import type { Clock } from '../process/clock.ts';
import type { Placement } from '../process/placement.ts';
import { CatalogStore } from '../storage/catalog-store.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import { isCorruption } from '../storage/failures.ts';
import type { FileOps } from '../storage/file-ops.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { CatalogHolder, type CatalogReplica } from './catalog-holder.ts';
import { CatalogReplacement } from './catalog-replacement.ts';
import { LocalCatalogService } from './catalog-service.ts';
import { CatalogSubject } from './catalog-subject.ts';
import { Recaller } from './recaller.ts';

/** Inodes granted to one client, and to all together: some hundred bytes each in the primary's memory. */
const CACHE_SESSION_GRANTS_MAX = 50_000;
const CACHE_GRANTS_MAX = 500_000;
/** Longest wait for the end of the epoch; the lease ends anyway. */
const STOP_MS_MAX = 2_000;
/** Longest wait for clients to drop their caches; the next primary waits for the rest. */
const FORGET_MS_MAX = 500;

const DATABASE = 'catalog.db';
/** Catalogs of volumes have a folder each, named by their cells; the root catalog is at the top of the data folder. */
const CATALOGS = 'catalogs';

export interface CatalogDisk {
  readonly cell: CellId;
  readonly self: ServerId;
  /** The members of the catalog if the folder has none. */
  readonly members: readonly ServerId[];
  readonly world: World;
  readonly folder: DataFolder;
  readonly fileOps: FileOps;
  knownView(): { readonly number: number; readonly members: readonly ServerId[] };
  diskFailed(reason: string): void;
  /** Bound of the log of recent operations. */
  readonly logBytesMax: number;
  /** Reads a whole copy of the catalog. @returns the first damage, or null */
  checkDatabase(file: string): Promise<string | null>;
}

export interface CatalogMemberParts extends CatalogDisk {
  readonly store: CatalogStore | null;
  readonly cacheLeaseMsMax: number;
  readonly operationTimeoutMs: number;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly metrics: MetricsRegistry;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly placement: Placement;
  /** Called when the replica here is out of service because of a damaged page, and when it is in service again. */
  reportReplica(news: 'damaged' | 'replaced'): void;
  drawSession(): number;
  isConnected(server: ServerId): boolean;
  commandsVersion(server: ServerId): number | null;
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
}

/**
 * Opens the replica on the disk here, or creates an empty one in the newest known view if this server is a member: it
 * does not count until it is caught up if the member has lost its disk. @returns null if there is none
 */
export async function openCatalogAtStart(disk: CatalogDisk): Promise<CatalogStore | null> {
  const { members, self, folder, knownView } = disk;
  const isMember = members.includes(self) || knownView().members.includes(self);
  return isMember || existsSync(folder.file(databaseOf(disk))) ? openCatalog(disk) : null;
}

/** The folders that lead from the data folder to the catalog's. */
function foldersOf({ cell }: CatalogDisk): readonly string[] {
  return cell === CATALOG_CELL ? [] : [CATALOGS, String(cell)];
}

/** The path of the database in the data folder. */
function databaseOf(disk: CatalogDisk): string {
  return path.join(...foldersOf(disk), DATABASE);
}

function openCatalog(disk: CatalogDisk): Promise<CatalogStore> {
  const { world, folder, fileOps, members, self } = disk;
  const known = disk.knownView();
  return CatalogStore.open({
    world,
    folder: folder.createFolder(...foldersOf(disk)),
    // For a replica that is still empty.
    view: known.members.includes(self) ? known : { number: 1, members },
    startCounter: folder.startCounter,
    powerLossStart: folder.powerLossStart,
    mark: folder.mark(databaseOf(disk)),
    thorough: folder.readsWhole,
    failed: (reason) => disk.diskFailed(reason),
    fileOps,
    logBounds: { bytesMax: disk.logBytesMax },
    checkDatabase: (file) => disk.checkDatabase(file),
  });
}

/** The catalog on this server: its replica, if there is one, and the services that use it. */
export class CatalogMember {
  readonly service: CatalogHolder;
  readonly #parts: CatalogMemberParts;
  #store: CatalogStore | null;
  #recaller: Recaller | null = null;

  constructor(parts: CatalogMemberParts) {
    this.#parts = parts;
    this.#store = parts.store;
    this.service = new CatalogHolder({
      self: parts.self,
      knownView: () => parts.knownView(),
      notMember: () => parts.lease.close(parts.cell),
      open: () => this.#open(),
    });
  }

  get store(): CatalogStore | null {
    return this.#store;
  }

  get recaller(): Recaller | null {
    return this.#recaller;
  }

  /** The volumes if this server is the catalog's primary; else none. */
  volumesAtPrimary(): readonly VolumeInfo[] {
    if (this.#store === null || this.service.status().primary !== this.#parts.self) return [];
    return this.#store.query({ kind: 'volumes' }).volumes;
  }

  async start(): Promise<void> {
    if (this.#store !== null) await this.service.openReplica();
  }

  /** Requests the lease if the replica here is a member: its own record may be newer than the configuration. */
  compete(): void {
    const view = this.service.view();
    if (view !== null && this.service.votes) this.#parts.lease.open(this.#parts.cell, view);
  }

  /** This server shuts down: as primary, it ends its epoch and waits a while for the next primary. */
  async resign(): Promise<void> {
    const { cell, host, lease, world } = this.#parts;
    const driver = host.loaded(cell);
    if (driver === null || driver.role !== 'active') return;
    await succeedsWithin(world, this.#recaller?.close() ?? Promise.resolve(), FORGET_MS_MAX);
    await succeedsWithin(world, driver.stop(), STOP_MS_MAX);
    lease.close(cell);
    lease.release(cell);
    await succeedsWithin(world, lease.heldElsewhere(cell), SUCCESSION_MS_MAX);
  }

  async #open(): Promise<CatalogReplica> {
    const { self, host, lease, placement, world, clock, wakes, log, metrics } = this.#parts;
    const store = this.#store ?? (await openCatalog(this.#parts));
    this.#store = store;
    const bytes = metrics.counter(
      'leasehold_catalog_copied_bytes_total',
      "Bytes fetched of other servers' copies of the catalog",
    );
    const pages = metrics.counter(
      'leasehold_catalog_compared_pages_total',
      "Pages of other servers' copies of the catalog that were compared with those here",
    );
    const subject = new CatalogSubject(store, (counts) => {
      bytes.add(counts.bytesFetched);
      pages.add(counts.pagesCompared);
      log.info({ ...counts }, 'fetched a copy of the catalog: the pages that differed');
    });
    const driver = host.adopt((around) => new ReplicaDriver(this.#parts.cell, subject, around));
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
    const replacement = new CatalogReplacement({
      ...{ clock, wakes, log, lease, driver },
      reportReplica: (news) => this.#parts.reportReplica(news),
    });
    // Not at once: the call that met the damage has not ended.
    store.damage.watch((reason) =>
      world.soon(() =>
        reason === null ? replacement.endReplacement() : replacement.startReplacement(reason),
      ),
    );
    return {
      service,
      view: () => subject.record().view,
      isLost: () => driver.status().trust === 'lost',
      isReplaced: (error) => replacement.hasOtherReplica && isCorruption(error),
    };
  }
}
