import { readFileSync } from 'node:fs';
import { reserveBytes } from '../../base/disk-reserve.ts';
import {
  type CatalogNumber,
  catalogOfCell,
  type FileId,
  isCatalogCell,
  ROOT_CATALOG,
  type ServerId,
} from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { PeerStatus } from '../../replica/actions.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import type { Moving, ReplicaLag, ScrubStatus, ServerStatus, ViewConflict } from '../../wire/http-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import type { NamedLeaseDriver } from '../named/named-lease-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { KnownCluster, StatusService } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import { ReplicaCount } from './replica-count.ts';

export interface StatusOfMembership {
  state(): ServerState;
  registered(): boolean;
  moving(): Moving | null;
  lag(): ReplicaLag;
  /** Numbers of idle replicas that were found to lag, by server. */
  behind(): ReadonlyMap<ServerId, number>;
  /** Connected servers whose idle replicas may lag without this server knowing it. */
  uncompared(): readonly ServerId[];
  /** How many voters named leases are to have; null if this server does not decide that. */
  votersWanted(): number | null;
  /** Volumes that lack servers for their files, if this server is the primary of their catalog. */
  placementShortages(): readonly string[];
}

export interface StatusServiceParts {
  readonly self: ServerId;
  readonly cluster: string;
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly known: KnownCluster;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly operationTimeoutMs: number;
  readonly world: Pick<World, 'nowMs' | 'nextTick'>;
  readonly clock: Clock;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly named: Pick<NamedLeaseDriver, 'claimCount' | 'recoveringMs' | 'voterCount'>;
  readonly store: FileStore;
  /** Absent if the set of servers never changes. */
  readonly membership?: StatusOfMembership;
  /** Why the disk is not used any more; null while it is. */
  failure(): string | null;
  lacksCatalogReplica?(): boolean;
  /** Of the volume that moves to the catalog, whose primary is here; null if none does. */
  copiedInodes?(catalog: CatalogNumber): number | null;
  shortages?(): readonly string[];
  /** Files that were found to have two member sets for one view. */
  viewConflicts?(): readonly ViewConflict[];
  /** As clauses: what the last recount of the catalog found. */
  wrongCounters?(): readonly string[];
  scrub(): Promise<ScrubStatus> | null;
  isConnected(server: ServerId): boolean;
  /** Null if unknown, absent if there is none. */
  readonly disk?: string | null;
}

/** A replica that has lagged for a shorter time is not reported: some always do (decision 26). */
const BEHIND_MS_MIN = 1_000;

/** Damaged objects in one status; `GET /v1/scrub` lists all. */
const LISTED_MAX = 100;

export const VERSION = versionOf(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

export class LocalStatusService implements StatusService {
  readonly id: ServerId;
  readonly cluster: string;
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly operationTimeoutMs: number;
  readonly known: KnownCluster;
  readonly #parts: StatusServiceParts;
  readonly #startedMs: number;
  readonly #replicaCount: ReplicaCount;

  constructor(parts: StatusServiceParts) {
    this.#parts = parts;
    this.id = parts.self;
    this.cluster = parts.cluster;
    this.urls = parts.urls;
    this.known = parts.known;
    this.timing = parts.timing;
    this.operationTimeoutMs = parts.operationTimeoutMs;
    this.#startedMs = parts.clock.nowMs();
    this.#replicaCount = new ReplicaCount(parts.world, parts.store);
  }

  isConnected(server: ServerId): boolean {
    return server === this.id || this.#parts.isConnected(server);
  }

  state(): 'serving' | 'recovering' | 'clock-fault' | 'storage-failed' {
    const { lease } = this.#parts;
    if (this.#parts.failure() !== null) return 'storage-failed';
    if (lease.clockFault) return 'clock-fault';
    return lease.recoveringMs() > 0 ? 'recovering' : 'serving';
  }

  /** Files with their primary here, of which a replica is unreachable, or has lagged for long. */
  underReplicated(): FileId[] {
    return this.#primaries()
      .filter((driver) => driver.peers((server) => this.isConnected(server)).some(isUnreachableOrBehind))
      .map((driver) => driver.file);
  }

  /** Replicas that are known to be behind, by server: of files with their primary here, and of idle files. */
  behind(): Readonly<Record<string, number>> {
    const behind = new Map<string, number>(this.#parts.membership?.behind());
    for (const driver of this.#primaries()) {
      for (const peer of driver.peers((server) => this.isConnected(server)))
        if (peer.state === 'catching-up' && isUnreachableOrBehind(peer))
          behind.set(peer.server, (behind.get(peer.server) ?? 0) + 1);
    }
    return Object.fromEntries([...behind].filter(([, count]) => count > 0));
  }

  /** Connected members of catalogs that do not catch up; known to their primaries. */
  #catalogBehind(): ServerId[] {
    const behind = this.#catalogs().flatMap((driver) =>
      driver
        .peers((server) => this.isConnected(server))
        .filter((peer) => peer.state === 'catching-up' && isUnreachableOrBehind(peer)),
    );
    return [...new Set(behind.map(({ server }) => server))];
  }

  /** Those that have their primary here. */
  #catalogs(): ReplicaDriver[] {
    return this.#parts.host.all().filter((driver) => isCatalogCell(driver.file) && driver.isPrimary);
  }

  #primaryOfCatalogs(): CatalogNumber[] {
    return this.#catalogs()
      .map((driver) => catalogOfCell(driver.file))
      .filter((number) => number !== ROOT_CATALOG);
  }

  lacksCatalogReplica(): boolean {
    return this.#parts.lacksCatalogReplica?.() ?? false;
  }

  #files(): ReplicaDriver[] {
    return this.#parts.host.all().filter((driver) => !isCatalogCell(driver.file));
  }

  #primaries(): ReplicaDriver[] {
    return this.#files().filter((driver) => driver.isPrimary);
  }

  async self(): Promise<ServerStatus> {
    const { lease, named, store, clock, membership } = this.#parts;
    const moving = membership?.moving() ?? null;
    const votersWanted = membership?.votersWanted() ?? null;
    const failure = this.#parts.failure();
    const [space, scrub, replicas] = await Promise.all([
      failure === null ? store.space() : { freeBytes: 0, totalBytes: 0 },
      this.#parts.scrub(),
      failure === null ? this.#replicaCount.current() : 0,
    ]);
    const primaries = this.#primaries().length;
    const catalogBehind = this.#catalogBehind();
    const primaryOfCatalogs = this.#primaryOfCatalogs();
    const copied = primaryOfCatalogs.flatMap((catalog) => {
      const inodes = this.#parts.copiedInodes?.(catalog) ?? null;
      return inodes === null ? [] : [{ catalog, inodes }];
    });
    const behind = this.behind();
    const uncompared = membership?.uncompared() ?? [];
    const connected = [...this.urls.keys()].filter((id) => id !== this.id && this.isConnected(id));
    const viewConflicts = (this.#parts.viewConflicts?.() ?? []).slice(0, LISTED_MAX);
    const shortages = this.#parts.shortages?.() ?? [];
    const placementShortages = (membership?.placementShortages() ?? []).slice(0, LISTED_MAX);
    const wrongCounters = (this.#parts.wrongCounters?.() ?? []).slice(0, LISTED_MAX);
    return {
      id: this.id,
      url: this.urls.get(this.id) ?? '',
      reachable: true,
      state: this.state(),
      ...(failure === null ? {} : { failure }),
      ...(scrub === null || scrub.unrepairable.length === 0
        ? {}
        : { scrub: { unrepairable: scrub.unrepairable.slice(0, LISTED_MAX) } }),
      recoveringMs: Math.ceil(lease.recoveringMs()),
      primaries,
      backups: this.#files().length - primaries,
      replicas,
      underReplicated: this.underReplicated(),
      connected,
      ...(Object.keys(behind).length === 0 ? {} : { behind }),
      ...(uncompared.length === 0 ? {} : { uncompared }),
      ...(catalogBehind.length === 0 ? {} : { catalogBehind }),
      ...(primaryOfCatalogs.length === 0 ? {} : { primaryOfCatalogs }),
      ...(copied.length === 0 ? {} : { copied }),
      ...(this.lacksCatalogReplica() ? { catalogReplica: 'missing' as const } : {}),
      freeBytes: space.freeBytes,
      totalBytes: space.totalBytes,
      ...(typeof this.#parts.disk === 'string' ? { disk: this.#parts.disk } : {}),
      ...(failure === null && space.freeBytes < reserveBytes(space.totalBytes) ? { diskFull: true } : {}),
      ...(shortages.length === 0 ? {} : { shortages }),
      ...(viewConflicts.length === 0 ? {} : { viewConflicts }),
      ...(wrongCounters.length === 0 ? {} : { wrongCounters }),
      ...(placementShortages.length === 0 ? {} : { placementShortages }),
      pid: process.pid,
      version: VERSION,
      uptimeMs: Math.round(clock.nowMs() - this.#startedMs),
      clockOffsets: lease.clockOffsets(),
      ...(membership === undefined
        ? {}
        : { membership: membership.state(), registered: membership.registered(), lag: membership.lag() }),
      ...(moving === null ? {} : { moving }),
      namedLeases: {
        known: named.claimCount,
        ...(named.voterCount === null ? {} : { voters: named.voterCount }),
        ...(votersWanted === null ? {} : { votersWanted }),
        recoveringMs: Math.ceil(named.recoveringMs()),
      },
    };
  }
}

/** Whether a peer is unreachable, or behind for `BEHIND_MS_MIN`; no learner, which is not a replica of the file yet. */
function isUnreachableOrBehind({ role, state, behindMs }: PeerStatus): boolean {
  if (role === 'learner') return false;
  return state === 'unreachable' || (state === 'catching-up' && behindMs >= BEHIND_MS_MIN);
}

function versionOf(manifest: string): string {
  return (JSON.parse(manifest) as { readonly version: string }).version;
}
