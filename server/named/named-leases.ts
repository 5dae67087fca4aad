import type { Logger } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LeaseTiming } from '../../lease/parameters.ts';
import type { StreamedAnswer } from '../../platform/http-channel.ts';
import type { ClockMemory, EarlierTiming } from '../drivers/lease-link.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { Clock } from '../process/clock.ts';
import type { Labels, MetricsRegistry } from '../telemetry/metrics.ts';
import type { Transport } from '../transport/transport.ts';
import { LeaseDirectory } from './lease-directory.ts';
import { RelaySource } from './lease-relay.ts';
import { LeaseWatches, MemberSource } from './lease-watches.ts';
import { NamedLeaseDriver, type VotersStore } from './named-lease-driver.ts';
import { NamedLeaseService } from './named-lease-service.ts';

/** A server sends each watcher an event or a heartbeat at least this often. */
export const HEARTBEAT_MS = 2_000;

/** `leaseMs`: the longest lease that a client may ask for. */
export interface NamedLeasesParts extends LeaseTiming {
  readonly self: ServerId;
  readonly founders: readonly ServerId[];
  /** Of all servers; changes in place. */
  readonly urls: ReadonlyMap<ServerId, string>;
  /** All servers but this one; changes in place. */
  readonly peers: readonly ServerId[];
  readonly voters: VotersStore;
  readonly operationTimeoutMs: number;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly earlier?: EarlierTiming;
  readonly clockMemory?: ClockMemory;
  drawIncarnation(): Incarnation;
  stream(server: ServerId, path: string, signal: AbortSignal): Promise<StreamedAnswer>;
  transport(): Transport;
  isConnected(server: ServerId): boolean;
  fatal(error: unknown): void;
}

/** Assembles a server's parts for named leases. */
export class NamedLeases {
  readonly driver: NamedLeaseDriver;
  readonly service: NamedLeaseService;
  readonly watches: LeaseWatches;
  readonly directory: LeaseDirectory;
  /** A random integer from 1 to 2^53 − 1, for a client that has drawn none. */
  readonly drawSession: () => number;

  constructor(parts: NamedLeasesParts) {
    const { self, world, log, leaseMs, clockSkewMaxMs, transport, isConnected } = parts;
    // For durations only: the driver has its own lease clock.
    const nowMs = () => world.nowMs();
    const driver = new NamedLeaseDriver(parts);
    const service = new NamedLeaseService({
      driver,
      leaseMaxMs: leaseMs,
      clockSkewMaxMs,
      operationTimeoutMs: parts.operationTimeoutMs,
      nowMs,
      isConnected,
    });
    const member = new MemberSource({
      world,
      driver,
      leaseMaxMs: leaseMs,
      clockSkewMaxMs,
      log,
      nowMs,
      query: (name) => service.query(name),
      memberState: (name) => service.memberState(name),
    });
    const relay = new RelaySource({
      self,
      stream: (server, path, signal) => parts.stream(server, path, signal),
      world,
      log,
      heartbeatMs: HEARTBEAT_MS,
      membersOf: (name) => driver.membersOf(name),
      isConnected,
    });
    this.driver = driver;
    this.service = service;
    this.watches = new LeaseWatches({ driver, member, relay, nowMs });
    this.directory = new LeaseDirectory({
      self,
      namedLeases: driver,
      call: (to, method, payload, timeoutMs) => transport().call(to, method, payload, timeoutMs),
    });
    this.drawSession = parts.drawIncarnation;
  }

  registerMetrics(metrics: MetricsRegistry): void {
    const { driver, watches } = this;
    metrics.observe(
      'gauge',
      'leasehold_named_leases',
      'Named leases that this member knows to be held',
      () => {
        let count = 0;
        for (const _claim of driver.claims()) count++;
        return count;
      },
    );
    metrics.observe(
      'gauge',
      'leasehold_named_lease_cells',
      'Cells of named leases in memory',
      () => driver.cellCount,
    );
    metrics.observe(
      'gauge',
      'leasehold_named_lease_watches',
      'Open watches of named leases',
      () => watches.count,
    );
    metrics.observe(
      'gauge',
      'leasehold_named_recovering_seconds',
      'Remaining recovery wait of named leases after the start, in seconds',
      () => Math.max(0, driver.recoveringMs() / 1000),
    );
    metrics.observe(
      'counter',
      'leasehold_named_lease_events_total',
      'Protocol events of named leases, by mark',
      () => [...driver.marks()].map(([mark, count]): [Labels, number] => [{ mark }, count]),
      ['mark'],
    );
  }

  close(): void {
    this.watches.close();
    this.driver.close();
  }
}
