import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import { CATALOG_CELL, type FileId, type Incarnation, type ServerId } from '../base/ids.ts';
import { leaseSilenceMs } from '../lease/parameters.ts';
import type { View } from '../replica/actions.ts';
import { DRIFT_MAX } from '../replica/guard.ts';
import { viewVoters } from '../replica/view.ts';
import type { Command } from '../wire/catalog-api.ts';
import type { Address } from './address.ts';
import { within } from './bounded.ts';
import { CatalogHolder, type CatalogReplica } from './catalog/catalog-holder.ts';
import { LocalCatalogService } from './catalog/catalog-service.ts';
import { CatalogSubject } from './catalog/catalog-subject.ts';
import { justMade } from './catalog/just-made.ts';
import { Recaller } from './catalog/recaller.ts';
import { Clock } from './clock.ts';
import { paramsHash, type ServerConfig } from './config.ts';
import { DepartedFiles } from './file/departed-files.ts';
import { LocalFileService } from './file/file-service.ts';
import { Garbage } from './file/garbage.ts';
import { IdleFiles } from './file/idle-files.ts';
import { PREPARE_CALL, SUCCEED_CALL, SUCCESSION_MS_MAX, Succession } from './file/succession.ts';
import { DISK_CALL, FullDisks } from './full-disks.ts';
import { Gateway } from './gateway.ts';
import { buildApp } from './http/app.ts';
import { LeaseDriver } from './lease-driver.ts';
import { controlOf } from './live/dev-control.ts';
import { Happenings } from './live/happenings.ts';
import { LiveHub } from './live/live-hub.ts';
import { LiveSelf } from './live/live-self.ts';
import { Observer } from './live/observer.ts';
import { SENTENCES } from './live/sentences.ts';
import { Traffic } from './live/traffic.ts';
import { type ClusterPlan, planCluster } from './membership/cluster-plan.ts';
import { addressOf, Membership } from './membership/membership.ts';
import { MetricsRegistry } from './metrics.ts';
import { LEASES_CALL } from './named/lease-directory.ts';
import { NamedLeases } from './named/named-leases.ts';
import { Placement } from './placement.ts';
import { REPAIR_CALL } from './repair/repair-call.ts';
import { Repairer } from './repair/repairer.ts';
import { Scrubber } from './repair/scrubber.ts';
import { ReplicaDriver } from './replica-driver.ts';
import { ReplicaHost } from './replica-host.ts';
import { Security } from './security/security.ts';
import { registerServerMetrics } from './server-metrics.ts';
import { registerStatusMetrics } from './status-metrics.ts';
import { LocalStatusService, type StatusOfMembership, VERSION } from './status-service.ts';
import { CatalogStore } from './storage/catalog-store.ts';
import { DataFolder, type Silences } from './storage/data-folder.ts';
import { DiskStore } from './storage/disk-store.ts';
import { diskFileOps, syncsTimed } from './storage/file-ops.ts';
import { FolderError } from './storage/folder-error.ts';
import { setAside } from './storage/set-aside.ts';
import type { NewTrust } from './storage/store.ts';
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
/**
 * Whoever holds a lock lives on through a fail-over, which takes about a lease, and through a second one where the next primary
 * fails at once: at least five sixths of a lock lease are left at any moment.
 */
const LOCK_LEASE_LEASES = 3;
/** A server registers as soon as the catalog answers. */
const NOT_REGISTERED_RETRY_MS = 500;
/** An orderly end waits this long for files, and for the catalog, to be given back; their leases end anyway. */
const RELEASE_MS_MAX = 2_000;
/** What is under way when this server ends has so long to be answered by others. */
const DRAIN_MS_MAX = 300;
/** The longest that a client believes what it was told without a word from the catalog's primary. */
const CACHE_LEASE_MS_MAX = 5_000;
/** Inodes that one client, and all together, may believe: some hundred bytes each in the primary's memory. */
const CACHE_SESSION_GRANTS_MAX = 50_000;
const CACHE_GRANTS_MAX = 500_000;
/** Clients that are asked to forget before an orderly end; those that do not answer are waited out by whoever comes next. */
const FORGET_MS_MAX = 500;

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
    try {
      return await Server.#begin(config, log, fatal);
    } catch (error) {
      if (!config.rebuild || !(error instanceof FolderError) || error.code !== 'damaged') throw error;
      const aside = setAside(config.data);
      log.warn(
        { aside, reason: error.message },
        'the damaged data folder is put aside, and an empty one begun',
      );
      return await Server.#begin(config, log, fatal);
    }
  }

  static async #begin(config: ServerConfig, log: Logger, fatal: (error: unknown) => void): Promise<Server> {
    const { cluster, id: server } = config;
    const security = new Security(server, config, log);
    const folder = DataFolder.open(config.data, { cluster, server, silences: silencesOf(config) });
    try {
      const plan = await planCluster(config, { folder, log, tls: security.peers, random53: drawIncarnation });
      return new Server(await compose(plan, folder, security, log, fatal));
    } catch (error) {
      folder.close();
      throw error;
    }
  }

  /** For a process that is this server's alone: its metrics tell of the process, too. */
  measureProcess(): void {
    this.#parts.metrics.addProcess();
  }

  /** Reads certificates and tokens again; no connection and no lease ends by it. @returns whether all were good */
  reload(): boolean {
    return this.#parts.security.reload();
  }

  /** Gives all leases back and ends; what cannot be finished is left to the next start. */
  async stop(): Promise<void> {
    const {
      app,
      gateway,
      garbage,
      idle,
      lease,
      named,
      host,
      wakes,
      transport,
      store,
      catalogStore,
      folder,
      scrubber,
      membership,
      recaller,
      fullDisks,
      observer,
      hub,
    } = this.#parts;
    hub.close();
    observer.close();
    membership.close();
    fullDisks.close();
    garbage.close();
    scrubber.close();
    lease.retire();
    gateway.router.retire();
    // Files first: whoever comes to lead one may ask the catalog something, which must not be between two primaries then.
    await idle.releaseAll(RELEASE_MS_MAX);
    const catalog = host.loaded(CATALOG_CELL);
    if (catalog !== null && catalog.role === 'active') {
      await within(recaller()?.close() ?? Promise.resolve(), FORGET_MS_MAX);
      await within(catalog.stop(), RELEASE_MS_MAX);
      lease.close(CATALOG_CELL);
      lease.release(CATALOG_CELL);
      await within(lease.heldElsewhere(CATALOG_CELL), SUCCESSION_MS_MAX);
    }
    lease.closeDriver();
    named.close();
    // What clients have under way is answered by the servers that took over.
    await within(gateway.router.drained(), DRAIN_MS_MAX);
    // The HTTP server waits for the peers' connections, which are the transport's to end.
    const ending = app.close();
    await gateway.close();
    await transport.close();
    await ending;
    host.close();
    wakes.close();
    await store.close();
    await catalogStore()?.close();
    folder.close();
  }
}

interface Parts {
  readonly security: Security;
  readonly app: FastifyInstance;
  readonly gateway: Gateway;
  readonly garbage: Garbage;
  readonly idle: IdleFiles;
  readonly lease: LeaseDriver;
  readonly metrics: MetricsRegistry;
  readonly named: NamedLeases;
  readonly host: ReplicaHost;
  readonly wakes: WakeQueue;
  readonly transport: PeerTransport;
  readonly store: DiskStore;
  readonly membership: Membership;
  /** Null while this server holds no replica of the catalog. */
  catalogStore(): CatalogStore | null;
  recaller(): Recaller | null;
  readonly fullDisks: FullDisks;
  readonly observer: Observer;
  readonly hub: LiveHub;
  readonly folder: DataFolder;
  readonly scrubber: Scrubber;
}

function silencesOf({ leaseMs, namedLeaseMaxMs, clockSkewMaxMs }: ServerConfig): Silences {
  return {
    filesMs: leaseSilenceMs({ leaseMs, clockSkewMaxMs }),
    namesMs: leaseSilenceMs({ leaseMs: namedLeaseMaxMs, clockSkewMaxMs }),
  };
}

async function compose(
  { config, bootstrap, known }: ClusterPlan,
  folder: DataFolder,
  security: Security,
  log: Logger,
  fatal: (error: unknown) => void,
): Promise<Parts> {
  const self = config.id;
  const clock = new Clock();
  const wakes = new WakeQueue(clock);
  const metrics = new MetricsRegistry();
  const incarnation = drawIncarnation();
  const heartbeatMs = Math.min(HEARTBEAT_MS_MAX, config.leaseMs / HEARTBEATS_PER_LEASE);
  const quietHeartbeatMs = config.leaseMs / QUIET_HEARTBEATS_PER_LEASE;
  let storeFailed = (_reason: string): void => undefined;
  const syncs = metrics.durations(
    'leasehold_sync_duration_seconds',
    'Until the disk had what was written, by database',
    ['of'],
  );
  const store = await DiskStore.open(folder, {
    failed: (reason) => storeFailed(reason),
    fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'files' })),
  });
  const catalogView: View = { number: 1, members: bootstrap.catalogMembers };
  let catalogStore: CatalogStore | null = null;
  let recaller: Recaller | null = null;
  let membership: Membership | null = null;

  let transport: PeerTransport | null = null;
  const connected = (): PeerTransport => {
    assert(transport !== null, 'Nothing is sent before the transport is there');
    return transport;
  };
  const isConnected = (server: ServerId): boolean => server === self || connected().isConnected(server);

  const commits = metrics.durations(
    'leasehold_commit_duration_seconds',
    'From an operation of this primary until a majority had it',
    ['of'],
  );
  const life = incarnation.toString(36);
  const nowMs = (): number => performance.now();
  const wallMs = (): number => Number(clock.wallNs() / 1_000_000n);
  const happenings = new Happenings({ self, life, nowMs, wallMs });
  const traffic = new Traffic(nowMs);
  const observer = new Observer({
    self,
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    happenings,
    nowMs: () => clock.nowMs(),
    servers: () => [...known.urls.keys()],
    isConnected,
  });

  const departed = await DepartedFiles.open(folder.file('departed'));
  const host = new ReplicaHost({
    self,
    incarnation,
    clock,
    wakes,
    log,
    store,
    departed,
    heartbeatMs,
    quietHeartbeatMs,
    silentMs: quietHeartbeatMs + heartbeatMs * HEARTBEATS_MISSED,
    readLeaseMs: Math.min(READ_LEASE_MS_MAX, config.leaseMs / READ_LEASES_PER_LEASE),
    // No shorter than the silence that an earlier life with other timing would have kept.
    startGuardMs: Math.max(config.leaseMs, folder.silences.filesMs) * (1 + DRIFT_MAX),
    commitBegins: (file) => commits.begin({ of: file === CATALOG_CELL ? 'catalog' : 'files' }),
    catchUpBytesPerSecond: config.catchUpBytesPerS,
    trustOfNew: (file) => trustOfNew(folder, file),
    viewChanged: (file, view) => {
      // A server that comes to hold the catalog wants it to have a holder; files are opened when they are used.
      if (file === CATALOG_CELL && viewVoters(view).includes(self)) lease.open(file, view);
      else lease.follow(file, view);
      if (file !== CATALOG_CELL) files.led(file);
    },
    led: (file) => {
      if (file !== CATALOG_CELL) files.led(file);
    },
    ledOut: (file) => {
      lease.release(file);
      const status = host.loaded(file)?.status();
      // The catalog could not be brought here, and may be led from here yet. Files are opened again when they are used.
      const votes = status !== undefined && status.outside === null && viewVoters(status.view).includes(self);
      if (file !== CATALOG_CELL || !votes) lease.close(file);
    },
    marked: (replica, mark, detail) => observer.marked(replica, mark, detail),
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
    peers: known.others,
    algorithm: config.leaseAlgorithm,
    former: {
      silenceMs: folder.silences.filesMs,
      over: () => {
        happenings.tell(SENTENCES.takesPart(self));
        recovered();
      },
    },
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    clock,
    wakes,
    log,
    drawIncarnation,
    transport: connected,
    knownView: (cell) => host.knownView(cell),
    changed: (cell, untilMs, view) => {
      observer.leaseChanged(cell, untilMs);
      host.leaseChanged(cell, untilMs, view);
    },
    heard: (cell, holder, untilMs) => observer.leaseHeard(cell, holder, untilMs),
    faulted: () => happenings.tell(SENTENCES.clockFault(self)),
    fatal,
  });
  const named = new NamedLeases({
    self,
    former: { silenceMs: folder.silences.namesMs, over: recovered },
    // Two servers with different sets could each find a majority of their own: the set is the one of the beginning.
    urls: bootstrap.urls,
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
  const standing: StatusOfMembership = {
    state: () => known.stateOf(self),
    registered: () => membership?.registered ?? false,
    moving: () => membership?.moving() ?? null,
    lag: () => membership?.lag() ?? { files: 0, versions: 0, bytes: 0 },
  };
  const status = new LocalStatusService({
    self,
    cluster: config.cluster,
    urls: known.urls,
    timing: { leaseMs: config.leaseMs, clockSkewMaxMs: config.clockSkewMaxMs },
    operationTimeoutMs: config.operationTimeoutMs,
    clock,
    host,
    lease,
    named: named.driver,
    store,
    membership: standing,
    failure: () => failure,
    scrub: () => scrubber.status(),
    isConnected,
  });
  let failure: string | null = null;
  storeFailed = (reason) => {
    if (failure !== null) return;
    failure = reason;
    happenings.tell(SENTENCES.diskFailed(self, reason));
    folder.markFailed();
    log.fatal({ reason }, 'the disk failed: this server lets its leases end and serves nothing more');
    // Nobody has to wait for longer than a lease: none is renewed, and none wanted.
    lease.retire();
    for (const driver of host.all()) lease.close(driver.file);
  };
  const repairer = new Repairer({
    self,
    log,
    store,
    isConnected,
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
  });
  store.mender = async (file, entry) => {
    const bytes = await repairer.fetch(file, entry);
    if (bytes !== null) happenings.tell(SENTENCES.repaired(self, file, entry.index));
    return bytes;
  };
  const fullDisks = new FullDisks({
    log,
    reserve: store.reserve,
    peers: () => connected().peers,
    isConnected,
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
    changed: (isLow) => happenings.tell(isLow ? SENTENCES.diskFull(self) : SENTENCES.diskHasRoom(self)),
  });
  const scrubber = new Scrubber({
    clock,
    log,
    store,
    repairer,
    recordFile: folder.file('scrub.json'),
    bytesPerS: config.scrubBytesPerS,
    everyMs: config.scrubEveryMs,
    paths: async (inodes) => {
      const { paths } = await gateway.queryCatalog({ kind: 'paths', inodes: [...inodes].slice(0, 1_000) });
      return new Map(paths.map(({ inode, volume, path }) => [inode as FileId, `${volume}:${path}`]));
    },
  });
  const files = new LocalFileService({
    self,
    isServer: (server) => known.urls.has(server),
    clock,
    log,
    store,
    host,
    lease,
    catalog: {
      attributes: async (file) =>
        (await gateway.queryCatalog({ kind: 'attributes', inode: file })).attributes,
      justMade: (file) => justMade(catalogStore, file, clock.wallNs()),
      command: (command) => gateway.command(command),
      flush: () => gateway.flushCatalog(),
    },
    lockLeaseMs: LOCK_LEASE_LEASES * config.leaseMs,
    isDiskFull: (server) => fullDisks.isFull(server),
    traffic,
    yieldTo: (view) => membership?.yieldTo(view) ?? null,
    operationTimeoutMs: config.operationTimeoutMs,
    isConnected,
  });
  const placement = new Placement({ configured: [...bootstrap.urls.keys()], isConnected });
  const catalog = new CatalogHolder({
    self,
    heardOf: () => known.catalogView,
    out: () => lease.close(CATALOG_CELL),
    open: openCatalog,
  });
  async function openCatalog(): Promise<CatalogReplica> {
    const opened = await CatalogStore.open({
      folder: folder.path,
      view: catalogView,
      startCounter: folder.startCounter,
      powerLossStart: folder.powerLossStart,
      mark: folder.mark('catalog.db'),
      failed: (reason) => storeFailed(reason),
      fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'catalog' })),
    });
    catalogStore = opened;
    const subject = new CatalogSubject(opened);
    const driver = host.adopt((around) => new ReplicaDriver(CATALOG_CELL, subject, around));
    const recalls = new Recaller({
      driver,
      options: {
        leaseMsMax: Math.min(CACHE_LEASE_MS_MAX, config.leaseMs),
        sessionGrantsMax: CACHE_SESSION_GRANTS_MAX,
        grantsMax: CACHE_GRANTS_MAX,
        draw: drawIncarnation,
      },
      nowMs: () => performance.now(),
      log,
      metrics,
    });
    recaller = recalls;
    const service = new LocalCatalogService({
      self,
      clock,
      lease,
      driver,
      subject,
      recaller: recalls,
      operationTimeoutMs: config.operationTimeoutMs,
      placement: (replicas, registered) => placement.choose(replicas, registered),
      capacity: (registered) => placement.candidates(registered).length,
      isConnected,
    });
    return { service, view: () => subject.record().view };
  }
  const gateway = new Gateway({
    services: { catalog, files, status },
    random53: drawIncarnation,
    metrics,
    tls: security.peers,
  });
  const succession = new Succession({
    self,
    log,
    isConnected,
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
    named: (file, successor) => gateway.router.expect(file, successor),
    succeed: (file, from) => files.succeed(file, from),
    peers: () => connected().peers,
    flush: () => store.flushIndex(),
    reach: (peer, timeoutMs) => gateway.peers.exchange(peer, { method: 'GET', path: '/livez' }, timeoutMs),
  });
  const control = controlOf(process.env);
  const liveSelf = new LiveSelf({
    ...{ self, host, lease, store, traffic, happenings, nowMs },
    membership: { state: () => known.stateOf(self) },
    isDiskFull: () => store.reserve.isLow,
    failure: () => failure,
    standing: (file) => files.standing(file),
  });
  const hub = new LiveHub({
    ...{ gateway, self: liveSelf, log, version: VERSION, life, control, nowMs, wallMs },
  });
  known.onChange(() => observer.membershipIs(known.stateOf(self)));
  const app = await buildApp({
    live: { hub, control: control?.url ?? null },
    membership: { describe: () => known.describe() },
    gateway,
    log,
    metrics,
    named,
    scrubber,
    tls: security.tls,
    tokens: security.tokens,
    clientRequestsPerS: config.clientRequestsPerS,
  });

  transport = new PeerTransport({
    server: self,
    incarnation,
    cluster: config.cluster,
    paramsHash: paramsHash(config),
    peers: addressesOf(known.urls),
    log,
    ...(security.peers === null ? {} : { tls: security.peers }),
    handlers: {
      message: (from, channel, payload, tail) => {
        if (channel === CHANNEL_LEASE) lease.receive(from, payload);
        else if (channel === CHANNEL_NAMED_LEASE) named.driver.receive(from, payload);
        else host.receive(from, channel, payload, tail);
      },
      connected: (peer) => {
        observer.connected(peer);
        host.connected(peer);
        membership?.connected(peer);
        scrubber.retry();
      },
      disconnected: (peer) => {
        observer.disconnected(peer);
        gateway.peerDisconnected(peer);
        lease.disconnected(peer);
        succession.peerLost();
      },
      call: async (from, method, payload) => {
        if (method === LEASES_CALL) return named.directory.serve(payload);
        if (method === REPAIR_CALL) return repairer.serve(payload);
        if (method === DISK_CALL) return fullDisks.serve(from, payload);
        if (method === PREPARE_CALL) return succession.servePrepare();
        if (method === SUCCEED_CALL) return succession.serve(from, payload);
        return membership?.serve(method, payload) ?? host.serve(method, payload);
      },
    },
  });
  const accept = transport;
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    accept.handleUpgrade(request, socket, head);
  });
  registerServerMetrics(metrics, { host, lease, transport, scrubber, repairer });
  registerStatusMetrics(metrics, {
    status,
    lease,
    store,
    membership: standing,
    catalogPrimary: () => gateway.router.catalogPrimary(),
    volumes: () =>
      catalog.status().primary === self ? (catalogStore?.query({ kind: 'volumes' }).volumes ?? []) : [],
  });
  named.registerMetrics(metrics);

  const idle = new IdleFiles({ clock, log, host, lease, files, succession, idleMs: config.leaseIdleMs });
  const joined = new Membership({
    ...{ config, folder, log, known, store, host, gateway, catalog, placement, idle, transport, nowMs },
    replaced: () => fatal(replacedError(folder.path)),
  });
  membership = joined;
  const garbage = new Garbage({
    self,
    log,
    store,
    departed,
    host,
    lease,
    graceMs: config.gcGraceMs,
    isRoomShort: () => fullDisks.isAnyFull,
    nowNs: () => clock.wallNs(),
    nowMs,
    isCatalogPrimary: () => catalog.status().primary === self,
    command: (command: Command) => gateway.command(command),
    query: (query) => gateway.queryCatalog(query),
    holds: (server, file, position) => joined.holds(server, file, position),
  });
  // A folder that has a catalog keeps it, whatever the configuration says.
  if (bootstrap.catalogMembers.includes(self) || existsSync(folder.file('catalog.db'))) await catalog.hold();
  happenings.tell(SENTENCES.started(self, lease.recoveringMs()));
  await app.listen({ host: config.listen.host, port: config.listen.port });
  transport.start();
  scrubber.begin();
  // The catalog's own record knows better than the configuration who holds it now.
  const view = catalog.view();
  if (view !== null && catalog.votes) lease.open(CATALOG_CELL, view);
  joined.start();
  return {
    security,
    ...{
      app,
      gateway,
      garbage,
      idle,
      lease,
      metrics,
      named,
      host,
      wakes,
      transport,
      store,
      folder,
      scrubber,
    },
    ...{ fullDisks, observer, hub },
    membership: joined,
    catalogStore: () => catalogStore,
    recaller: () => recaller,
  };
}

function replacedError(folder: string): FolderError {
  return new FolderError(
    'damaged',
    `Cannot go on with ${folder}: this server has run with another data folder since, and what it acknowledged there ` +
      'is not here. Bring that one back, or start with --rebuild, which fills an empty one from the other servers',
  );
}

function addressesOf(urls: ReadonlyMap<ServerId, string>): Map<ServerId, Address> {
  return new Map([...urls].map(([server, url]) => [server, addressOf(url)]));
}

/**
 * How far a replica that is made here may be believed to be the first of its file on this server.
 *
 * @throws ServiceError `recovering` before the catalog has told what the folder can be believed
 */
function trustOfNew(folder: DataFolder, file: FileId): NewTrust {
  if (folder.bornAt === null) {
    throw new ServiceError('recovering', 'The catalog does not know this server and its disk yet', {
      retryAfterMs: NOT_REGISTERED_RETRY_MS,
    });
  }
  return file >= folder.bornAt ? 'intact' : 'lost';
}

/** @returns a random integer from 1 to 2^53 − 1 */
function drawIncarnation(): Incarnation {
  for (;;) {
    const bytes = randomBytes(8);
    const drawn = bytes.readUInt32LE(0) + (bytes.readUInt32LE(4) & 0x1f_ffff) * 0x1_0000_0000;
    if (drawn >= 1) return drawn as Incarnation;
  }
}
