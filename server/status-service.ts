import { CATALOG_CELL, type FileId, type ServerId } from '../base/ids.ts';
import type { ServerStatus } from '../wire/http-api.ts';
import type { Clock } from './clock.ts';
import type { LeaseDriver } from './lease-driver.ts';
import type { NamedLeaseDriver } from './named/named-lease-driver.ts';
import type { ReplicaHost } from './replica-host.ts';
import type { StatusService } from './services.ts';
import type { FileStore } from './storage/store.ts';

export interface StatusServiceParts {
  readonly self: ServerId;
  readonly cluster: string;
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly operationTimeoutMs: number;
  readonly clock: Clock;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly named: Pick<NamedLeaseDriver, 'claimCount' | 'recoveringMs'>;
  readonly store: FileStore;
  isConnected(server: ServerId): boolean;
}

/** What this server knows of itself, for `GET /v1/status/self`. */
export class LocalStatusService implements StatusService {
  readonly id: ServerId;
  readonly cluster: string;
  readonly urls: ReadonlyMap<ServerId, string>;
  readonly timing: { readonly leaseMs: number; readonly clockSkewMaxMs: number };
  readonly operationTimeoutMs: number;
  readonly #parts: StatusServiceParts;
  readonly #startedMs: number;

  constructor(parts: StatusServiceParts) {
    this.#parts = parts;
    this.id = parts.self;
    this.cluster = parts.cluster;
    this.urls = parts.urls;
    this.timing = parts.timing;
    this.operationTimeoutMs = parts.operationTimeoutMs;
    this.#startedMs = parts.clock.nowMs();
  }

  isConnected(server: ServerId): boolean {
    return server === this.id || this.#parts.isConnected(server);
  }

  async self(): Promise<ServerStatus> {
    const { host, lease, named, store, clock } = this.#parts;
    const space = await store.space();
    const recoveringMs = Math.ceil(lease.recoveringMs());
    const files = host.all().filter((driver) => driver.file !== CATALOG_CELL);
    const primaries = files.filter((driver) => driver.leads);
    const underReplicated = primaries
      .filter((driver) =>
        driver
          .peers((server) => this.isConnected(server))
          // While operations are under way somebody is always a moment behind.
          .some((peer) => peer.state === 'unreachable' || (peer.state !== 'current' && driver.idle)),
      )
      .map((driver) => driver.file);
    return {
      id: this.id,
      url: this.urls.get(this.id) ?? '',
      reachable: true,
      state: lease.clockFault ? 'clock-fault' : recoveringMs > 0 ? 'recovering' : 'serving',
      recoveringMs,
      primaries: primaries.length,
      backups: files.length - primaries.length,
      replicas: store.list(0 as FileId, Number.MAX_SAFE_INTEGER).length,
      underReplicated,
      freeBytes: space.freeBytes,
      totalBytes: space.totalBytes,
      pid: process.pid,
      uptimeMs: Math.round(clock.nowMs() - this.#startedMs),
      clockOffsetsMs: lease.clockOffsetsMs(),
      namedLeases: { known: named.claimCount, recoveringMs: Math.ceil(named.recoveringMs()) },
    };
  }
}
