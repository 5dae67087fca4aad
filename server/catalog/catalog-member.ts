import type { Logger } from 'pino';
import { CATALOG_CELL, catalogOfCell, type FileId, type ServerId } from '../../base/ids.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import { SUCCESSION_MS_MAX } from '../file/succession.ts';
import { succeedsWithin } from '../process/bounded.ts';
import type { Clock } from '../process/clock.ts';
import type { Placement } from '../process/placement.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import { isCorruption } from '../storage/failures.ts';
import { type CatalogDisk, openCatalog } from './catalog-disk.ts';
import { CatalogHolder, type CatalogReplica } from './catalog-holder.ts';
import type { CatalogMetrics } from './catalog-metrics.ts';
import { CatalogReplacement } from './catalog-replacement.ts';
import type { CatalogRow } from './catalog-rows.ts';
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

export interface CatalogMemberParts extends CatalogDisk {
  readonly store: CatalogStore | null;
  readonly cacheLeaseMsMax: number;
  readonly operationTimeoutMs: number;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly metrics: CatalogMetrics;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly placement: Placement;
  /** Called when the replica here is out of service because of a damaged page, and when it is in service again. */
  reportReplica(news: 'damaged' | 'replaced'): void;
  drawSession(): number;
  /** Whether the list says that the catalog's volume is still in the root catalog, and moves here. */
  isArriving(): boolean;
  /** Called at the primary after each durable command: it may have changed the list of catalogs. */
  listChanged(): void;
  /** Of a volume's catalog, in the root catalog. @see CatalogSurvey.assertLost */
  assertLost(catalog: CatalogRow): Promise<void>;
  /**
   * Called before a retention is acknowledged. The root catalog then knows of it: it must not remove the volume as lost
   * while its members are away.
   */
  retained(untilNs: string): Promise<void>;
  isConnected(server: ServerId): boolean;
  commandsVersion(server: ServerId): number | null;
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
}

/** The catalog on this server: its replica, if there is one, and the services that use it. */
export class CatalogMember {
  readonly service: CatalogHolder;
  readonly #parts: CatalogMemberParts;
  #store: CatalogStore | null;
  #recaller: Recaller | null = null;
  #uncount = (): void => undefined;

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

  /** The volumes if this server is the catalog's primary and the catalog serves; else none. */
  volumesAtPrimary(): readonly VolumeInfo[] {
    const { self, cell } = this.#parts;
    if (this.#store === null || this.service.status().primary !== self || this.#parts.isArriving()) return [];
    if (cell !== CATALOG_CELL) {
      const { begun, closed } = this.#store.query({ kind: 'catalog-state' });
      if (!begun || closed) return [];
    }
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

  /** The replica in service here; null if there is none. */
  get driver(): ReplicaDriver | null {
    return this.#parts.host.loaded(this.#parts.cell);
  }

  /**
   * As primary, ends the epoch and releases the lease, for which other members compete at once, and this one again
   * later; unless a client does not drop its caches, since the next primary would wait for the end of its session.
   * @returns the next primary; null if there is none after a while
   */
  async handOver(): Promise<ServerId | null> {
    const { cell, lease, world } = this.#parts;
    try {
      const dropped = this.#recaller?.close() ?? Promise.resolve();
      if (!(await succeedsWithin(world, dropped, FORGET_MS_MAX)) || !(await this.#endEpoch())) return null;
      lease.release(cell);
      await succeedsWithin(world, lease.heldElsewhere(cell), SUCCESSION_MS_MAX);
      return lease.view(cell).holder;
    } finally {
      this.#recaller?.reopen();
    }
  }

  /** This server shuts down: as primary, it ends its epoch and waits a while for the next primary. */
  async resign(): Promise<void> {
    const { cell, lease, world } = this.#parts;
    if (!(await this.#endEpoch())) return;
    lease.close(cell);
    lease.release(cell);
    await succeedsWithin(world, lease.heldElsewhere(cell), SUCCESSION_MS_MAX);
  }

  /** Takes the replica here out of service and closes its database; it can be opened again. */
  async close(): Promise<void> {
    const { cell, host, lease } = this.#parts;
    await this.#endEpoch();
    this.service.replicaClosed();
    const driver = host.loaded(cell);
    if (driver !== null) host.release(driver);
    lease.close(cell);
    // Not earlier: until here, this server may have acted as primary.
    lease.release(cell);
    this.#uncount();
    this.#recaller = null;
    const store = this.#store;
    this.#store = null;
    await store?.close();
  }

  /** As primary, has the clients drop their caches and ends the epoch, for a while each. @returns whether it was one */
  async #endEpoch(): Promise<boolean> {
    const { cell, host, world } = this.#parts;
    const driver = host.loaded(cell);
    if (driver === null || driver.role !== 'active') return false;
    await succeedsWithin(world, this.#recaller?.close() ?? Promise.resolve(), FORGET_MS_MAX);
    await succeedsWithin(world, driver.stop(), STOP_MS_MAX);
    return true;
  }

  async #open(): Promise<CatalogReplica> {
    const { self, host, lease, placement, world, clock, wakes, log, metrics } = this.#parts;
    const store = this.#store ?? (await openCatalog(this.#parts));
    this.#store = store;
    const subject = new CatalogSubject(store, (counts) => {
      metrics.copiedBytes.add(counts.bytesFetched);
      metrics.comparedPages.add(counts.pagesCompared);
      log.info({ ...counts }, 'fetched a copy of the catalog: the pages that differed');
    });
    const driver = host.adopt((around) => new ReplicaDriver(this.#parts.cell, subject, around));
    const recaller = new Recaller({
      world,
      driver,
      leavingInodes: () => subject.leavingInodes(),
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
    this.#uncount = metrics.addCaches(() => recaller.counts());
    const service = new LocalCatalogService({
      catalog: catalogOfCell(this.#parts.cell),
      self,
      world,
      clock,
      lease,
      driver,
      subject,
      recaller,
      metrics,
      operationTimeoutMs: this.#parts.operationTimeoutMs,
      placement: (...wanted) => placement.choose(...wanted),
      capacity: (...wanted) => placement.capacity(...wanted),
      isConnected: (server) => this.#parts.isConnected(server),
      commandsVersion: (server) => this.#parts.commandsVersion(server),
      settle: (file, timeoutMs) => this.#parts.settle(file, timeoutMs),
      isArriving: () => this.#parts.isArriving(),
      listChanged: () => this.#parts.listChanged(),
      assertLost: (catalog) => this.#parts.assertLost(catalog),
      retained: (untilNs) => this.#parts.retained(untilNs),
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
