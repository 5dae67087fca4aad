import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { assert } from '../base/assert.ts';
import { CATALOG_CELL, type Incarnation, type ServerId } from '../base/ids.ts';
import { leaseSilenceMs } from '../lease/parameters.ts';
import type { View } from '../replica/actions.ts';
import { DRIFT_MAX } from '../replica/guard.ts';
import { viewVoters } from '../replica/view.ts';
import type { Command, Query } from '../wire/catalog-api.ts';
import { within } from './bounded.ts';
import { AbsentCatalog } from './catalog/absent-catalog.ts';
import { LocalCatalogService } from './catalog/catalog-service.ts';
import { CatalogSubject } from './catalog/catalog-subject.ts';
import { Clock } from './clock.ts';
import { paramsHash, type ServerConfig } from './config.ts';
import { LocalFileService } from './file/file-service.ts';
import { Garbage } from './file/garbage.ts';
import { IdleFiles } from './file/idle-files.ts';
import { Gateway } from './gateway.ts';
import { buildApp } from './http/app.ts';
import { LeaseDriver } from './lease-driver.ts';
import { MetricsRegistry } from './metrics.ts';
import { LEASES_CALL } from './named/lease-directory.ts';
import { NamedLeases } from './named/named-leases.ts';
import { Placement } from './placement.ts';
import { ReplicaDriver } from './replica-driver.ts';
import { ReplicaHost } from './replica-host.ts';
import { registerServerMetrics } from './server-metrics.ts';
import type { CatalogService } from './services.ts';
import { LocalStatusService } from './status-service.ts';
import { CatalogStore } from './storage/catalog-store.ts';
import { DataFolder, type Silences } from './storage/data-folder.ts';
import { DiskStore } from './storage/disk-store.ts';
import { PeerTransport } from './transport/peer-transport.ts';
import { CHANNEL_LEASE, CHANNEL_NAMED_LEASE } from './transport/transport.ts';
import { WakeQueue } from './wake-queue.ts';

/** Heartbeats of a primary in one lease. */
const HEARTBEATS_PER_LEASE = 10;
const HEARTBEAT_MS_MAX = 500;
/** The same for a file on which nothing is under way. */
const QUIET_HEARTBEATS_PER_LEASE = 1;
/** A replica that missed this many heartbeats is reported unreachable. */
const HEARTBEATS_MISSED = 4;
/** A backup's right to answer reads, which is as long as a write waits for one that died. */
const READ_LEASES_PER_LEASE = 4;
const READ_LEASE_MS_MAX = 1_000;
/** An orderly end waits this long for files, and for the catalog, to be given back; their leases end anyway. */
const RELEASE_MS_MAX = 2_000;

/**
 * One server: storage, cores, drivers, services and faces, put together. `start` resolves when it
 * listens; whether it can serve yet, `/readyz` tells.
 */
export class Server {
  readonly #parts: Parts;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * @param fatal is told of a broken invariant; it ends the process, because restarting is safe
   * @throws FolderError where the data folder is not to be used, or the error of listening
   */
  static async start(config: ServerConfig, log: Logger, fatal: (error: unknown) => void): Promise<Server> {
    const { cluster, id: server } = config;
    const folder = DataFolder.open(config.data, { cluster, server, silences: silencesOf(config) });
    try {
      return new Server(await compose(config, folder, log, fatal));
    } catch (error) {
      folder.close();
      throw error;
    }
  }

  /** Gives all leases back and ends; what cannot be finished is left to the next start. */
  async stop(): Promise<void> {
    const { app, gateway, garbage, idle, lease, named, host, wakes, transport, store, catalogStore, folder } =
      this.#parts;
    garbage.close();
    lease.retire();
    await idle.releaseAll(RELEASE_MS_MAX);
    const catalog = host.loaded(CATALOG_CELL);
    if (catalog !== null && catalog.role === 'active') {
      await within(catalog.stop(), RELEASE_MS_MAX);
      lease.close(CATALOG_CELL);
      lease.release(CATALOG_CELL);
    }
    lease.closeDriver();
    named.close();
    // The HTTP server waits for the peers' connections, which are the transport's to end.
    const ending = app.close();
    await gateway.close();
    await transport.close();
    await ending;
    host.close();
    wakes.close();
    await store.close();
    await catalogStore?.close();
    folder.close();
  }
}

interface Parts {
  readonly app: FastifyInstance;
  readonly gateway: Gateway;
  readonly garbage: Garbage;
  readonly idle: IdleFiles;
  readonly lease: LeaseDriver;
  readonly named: NamedLeases;
  readonly host: ReplicaHost;
  readonly wakes: WakeQueue;
  readonly transport: PeerTransport;
  readonly store: DiskStore;
  readonly catalogStore: CatalogStore | null;
  readonly folder: DataFolder;
}

function silencesOf({ leaseMs, namedLeaseMaxMs, clockSkewMaxMs }: ServerConfig): Silences {
  return {
    filesMs: leaseSilenceMs({ leaseMs, clockSkewMaxMs }),
    namesMs: leaseSilenceMs({ leaseMs: namedLeaseMaxMs, clockSkewMaxMs }),
  };
}

async function compose(
  config: ServerConfig,
  folder: DataFolder,
  log: Logger,
  fatal: (error: unknown) => void,
): Promise<Parts> {
  const self = config.id;
  const servers = [...config.peers.keys()];
  const others = servers.filter((server) => server !== self);
  const clock = new Clock();
  const wakes = new WakeQueue(clock);
  const metrics = new MetricsRegistry();
  const incarnation = drawIncarnation();
  const heartbeatMs = Math.min(HEARTBEAT_MS_MAX, config.leaseMs / HEARTBEATS_PER_LEASE);
  const quietHeartbeatMs = config.leaseMs / QUIET_HEARTBEATS_PER_LEASE;
  const store = await DiskStore.open(folder);
  const catalogView: View = { number: 1, members: config.catalogMembers };
  const catalogStore = config.catalogMembers.includes(self)
    ? await CatalogStore.open({
        folder: folder.path,
        view: catalogView,
        startCounter: folder.startCounter,
        powerLossStart: folder.powerLossStart,
      })
    : null;

  let transport: PeerTransport | null = null;
  const connected = (): PeerTransport => {
    assert(transport !== null, 'Nothing is sent before the transport is there');
    return transport;
  };
  const isConnected = (server: ServerId): boolean => server === self || connected().isConnected(server);

  const host = new ReplicaHost({
    self,
    incarnation,
    clock,
    wakes,
    log,
    store,
    heartbeatMs,
    quietHeartbeatMs,
    silentMs: quietHeartbeatMs + heartbeatMs * HEARTBEATS_MISSED,
    readLeaseMs: Math.min(READ_LEASE_MS_MAX, config.leaseMs / READ_LEASES_PER_LEASE),
    // No shorter than the silence that an earlier life with other timing would have kept.
    startGuardMs: Math.max(config.leaseMs, folder.silences.filesMs) * (1 + DRIFT_MAX),
    trustOfNew: () => 'intact',
    viewChanged: (file, view) => {
      lease.follow(file, view);
      if (file !== CATALOG_CELL) files.viewChanged(file, view);
    },
    ledOut: (file) => {
      lease.release(file);
      lease.close(file);
    },
    transport: connected,
    isClockSound: () => lease.isClockSound(),
    fatal,
  });
  // Once neither files nor names have leases of an earlier start, its timing is forgotten.
  const recovered = (): void => {
    if (lease.recoveringMs() === 0 && named.driver.recoveringMs() === 0) {
      folder.forgetSilences(silencesOf(config));
    }
  };
  const lease: LeaseDriver = new LeaseDriver({
    self,
    peers: others,
    algorithm: config.leaseAlgorithm,
    former: { silenceMs: folder.silences.filesMs, over: recovered },
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    clock,
    wakes,
    log,
    drawIncarnation,
    transport: connected,
    knownView: (cell) => host.knownView(cell),
    changed: (cell, untilMs, view) => host.leaseChanged(cell, untilMs, view),
    fatal,
  });
  const named = new NamedLeases({
    self,
    former: { silenceMs: folder.silences.namesMs, over: recovered },
    urls: config.urls,
    leaseMs: config.namedLeaseMaxMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    operationTimeoutMs: config.operationTimeoutMs,
    clock,
    wakes,
    log,
    drawIncarnation,
    transport: connected,
    isConnected,
    fatal,
  });
  const status = new LocalStatusService({
    self,
    cluster: config.cluster,
    urls: config.urls,
    timing: { leaseMs: config.leaseMs, clockSkewMaxMs: config.clockSkewMaxMs },
    operationTimeoutMs: config.operationTimeoutMs,
    clock,
    host,
    lease,
    named: named.driver,
    store,
    isConnected,
  });
  const files = new LocalFileService({
    self,
    clock,
    log,
    store,
    host,
    lease,
    catalog: {
      attributes: async (file) =>
        (await gateway.queryCatalog({ kind: 'attributes', inode: file })).attributes,
      command: (command) => gateway.command(command),
      flush: () => gateway.flushCatalog(),
    },
    operationTimeoutMs: config.operationTimeoutMs,
    isConnected,
  });
  const placement = new Placement({ configured: servers, isConnected });
  const catalog: CatalogService =
    catalogStore === null ? new AbsentCatalog(config.catalogMembers) : makeCatalog(catalogStore);
  function makeCatalog(opened: CatalogStore): LocalCatalogService {
    const subject = new CatalogSubject(opened);
    const driver = host.adopt((around) => new ReplicaDriver(CATALOG_CELL, subject, around));
    return new LocalCatalogService({
      self,
      clock,
      lease,
      driver,
      subject,
      operationTimeoutMs: config.operationTimeoutMs,
      placement: (replicas, known) => placement.choose(replicas, known),
      capacity: (known) => placement.candidates(known).length,
      isConnected,
    });
  }
  const gateway = new Gateway({ services: { catalog, files, status }, random53: drawIncarnation, metrics });
  const app = await buildApp({ gateway, log, metrics, named });

  transport = new PeerTransport({
    server: self,
    incarnation,
    cluster: config.cluster,
    paramsHash: paramsHash(config),
    peers: config.peers,
    log,
    handlers: {
      message: (from, channel, payload) => {
        if (channel === CHANNEL_LEASE) lease.receive(from, payload);
        else if (channel === CHANNEL_NAMED_LEASE) named.driver.receive(from, payload);
        else host.receive(from, channel, payload);
      },
      connected: (peer) => host.connected(peer),
      disconnected: (peer) => gateway.peerDisconnected(peer),
      call: async (_from, method, payload) =>
        method === LEASES_CALL ? named.directory.serve(payload) : host.serve(method, payload),
    },
  });
  const accept = transport;
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    accept.handleUpgrade(request, socket, head);
  });
  registerServerMetrics(metrics, { host, lease, transport });
  named.registerMetrics(metrics);

  const garbage = new Garbage({
    log,
    store,
    host,
    lease,
    graceMs: config.gcGraceMs,
    nowNs: () => clock.wallNs(),
    isCatalogPrimary: () => catalog.status().primary === self,
    command: (command: Command) => gateway.command(command),
    query: (query: Query) => gateway.queryCatalog(query),
  });
  const idle = new IdleFiles({ clock, log, host, lease, files, idleMs: config.leaseIdleMs });
  await app.listen({ host: config.listen.host, port: config.listen.port });
  transport.start();
  if (catalogStore !== null) {
    // The catalog's own record knows better than the configuration who holds it now.
    const { view } = catalogStore.record();
    if (viewVoters(view).includes(self)) lease.open(CATALOG_CELL, view);
  }
  return { app, gateway, garbage, idle, lease, named, host, wakes, transport, store, catalogStore, folder };
}

/** @returns a random integer from 1 to 2^53 − 1 */
function drawIncarnation(): Incarnation {
  for (;;) {
    const bytes = randomBytes(8);
    const drawn = bytes.readUInt32LE(0) + (bytes.readUInt32LE(4) & 0x1f_ffff) * 0x1_0000_0000;
    if (drawn >= 1) return drawn as Incarnation;
  }
}
