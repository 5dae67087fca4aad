import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import { CATALOG_CELL, type FileId, type Incarnation, type ServerId } from '../base/ids.ts';
import { COMMANDS_VERSION } from '../catalog/versions.ts';
import { viewVoters } from '../replica/view.ts';
import type { Command } from '../wire/catalog-api.ts';
import type { Address } from './address.ts';
import { type CatalogDisk, CatalogSeat, openCatalogAtStart } from './catalog/catalog-seat.ts';
import { justMade } from './catalog/just-made.ts';
import { Clock } from './clock.ts';
import { paramsHash } from './config.ts';
import { AgreedFiles } from './file/agreed-files.ts';
import { creationsOf } from './file/creations.ts';
import { DepartedFiles } from './file/departed-files.ts';
import { LocalFileService } from './file/file-service.ts';
import { Garbage } from './file/garbage.ts';
import { IdleFiles } from './file/idle-files.ts';
import { LockEndings } from './file/lock-endings.ts';
import { ReplicaCheck } from './file/replica-check.ts';
import { ReservationSweep, type ReservationSweepParts } from './file/reservation-sweep.ts';
import { Succession } from './file/succession.ts';
import { ViewConflicts } from './file/view-conflicts.ts';
import { FullDisks } from './full-disks.ts';
import { Gateway } from './gateway.ts';
import { buildApp } from './http/app.ts';
import { ContentsConnections } from './http/contents-connections.ts';
import { Drain } from './http/drain.ts';
import { HostNames, refusedHost } from './http/hosts.ts';
import { drawIncarnation } from './incarnation.ts';
import { LateErrorReports } from './late-errors.ts';
import { LeaseDriver } from './lease-driver.ts';
import { controlOf } from './live/dev-control.ts';
import { Happenings } from './live/happenings.ts';
import { LiveHub } from './live/live-hub.ts';
import { LiveSelf } from './live/live-self.ts';
import { Observer } from './live/observer.ts';
import { SENTENCES } from './live/sentences.ts';
import { Traffic } from './live/traffic.ts';
import { systemMachine } from './machine.ts';
import type { ClusterPlan } from './membership/cluster-plan.ts';
import { addressOf, Membership } from './membership/membership.ts';
import { MetricsRegistry } from './metrics.ts';
import { NamedLeases } from './named/named-leases.ts';
import { peerHandlers } from './peer-handlers.ts';
import { Placement } from './placement.ts';
import { Repairer } from './repair/repairer.ts';
import { Scrubber } from './repair/scrubber.ts';
import { ReplicaHost } from './replica-host.ts';
import { Connections } from './security/connections.ts';
import { LISTENER_LIMITS } from './security/listener.ts';
import type { Security } from './security/security.ts';
import { registerConnectionMetrics, registerSecurityMetrics } from './security/security-metrics.ts';
import { registerServerMetrics } from './server-metrics.ts';
import { Shortages } from './shortages.ts';
import { registerStatusMetrics } from './status-metrics.ts';
import { LocalStatusService, type StatusOfMembership, VERSION } from './status-service.ts';
import { ballastKeep } from './storage/ballast.ts';
import type { DataFolder } from './storage/data-folder.ts';
import { DiskStore } from './storage/disk-store.ts';
import { diskFileOps, syncsTimed } from './storage/file-ops.ts';
import { FolderError } from './storage/folder-error.ts';
import { LocalProof } from './storage/local-proof.ts';
import type { NewTrust } from './storage/store.ts';
import type { Surroundings } from './surroundings.ts';
import { silencesOf, timingOf } from './timing.ts';
import { refuseUpgrade } from './transport/peer-transport.ts';
import type { ClusterTransport } from './transport/transport.ts';
import { WakeQueue } from './wake-queue.ts';

/** A server registers as soon as the catalog answers. */
const NOT_REGISTERED_RETRY_MS = 500;

/** Between two rounds in which files are settled that stay live: as long as garbage is kept, within these bounds. */
const LIVE_SWEEP_MS = { least: 10_000, most: 600_000 };

/** What a running server consists of, as far as its end and its metrics need it. */
export interface Parts {
  readonly security: Security;
  readonly app: FastifyInstance;
  readonly drain: Drain;
  readonly gateway: Gateway;
  readonly garbage: Garbage;
  readonly sweeps: readonly ReservationSweep[];
  readonly idle: IdleFiles;
  readonly lease: LeaseDriver;
  readonly metrics: MetricsRegistry;
  readonly named: NamedLeases;
  readonly host: ReplicaHost;
  readonly wakes: WakeQueue;
  readonly transport: ClusterTransport;
  readonly store: DiskStore;
  readonly membership: Membership;
  readonly seat: CatalogSeat;
  readonly fullDisks: FullDisks;
  readonly observer: Observer;
  readonly hub: LiveHub;
  readonly folder: DataFolder;
  readonly scrubber: Scrubber;
  readonly shortages: Shortages;
}

/**
 * Makes all parts of a server and ties them together, in the order in which they need each other; it listens when this resolves.
 *
 * @throws FolderError where the data folder is not to be used, or the error of listening
 */
export async function compose(
  { config, bootstrap, known }: ClusterPlan,
  folder: DataFolder,
  security: Security,
  { world, log, fatal, machine = systemMachine }: Surroundings,
): Promise<Parts> {
  const self = config.id;
  const clock = new Clock(world);
  const wakes = new WakeQueue(world, clock);
  const metrics = new MetricsRegistry(world);
  const draw = (): Incarnation => drawIncarnation(world);
  const incarnation = draw();
  const timing = timingOf(config, folder.silences);
  let storeFailed = (_reason: string): void => undefined;
  const syncs = metrics.durations(
    'leasehold_sync_duration_seconds',
    'Until the disk had what was written, by database',
    ['of'],
  );
  // A start that finds its folder damaged or its disk full begins anew in this process: so all that may find that comes
  // before the first part that has a timer.
  const departed = await DepartedFiles.open(folder.file('departed'));
  const store = await DiskStore.open(folder, {
    failed: (reason) => storeFailed(reason),
    fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'files' })),
    directWrites: {
      mode: config.directWrites,
      refused: (reason) =>
        log.info(
          { reason },
          'large files are written through the page cache: the file system refuses to be written past it',
        ),
    },
  });
  metrics.observe(
    'counter',
    'leasehold_direct_bytes_total',
    'Bytes of contents that were written past the page cache',
    () => store.directBytes,
  );
  const catalogDisk: CatalogDisk = {
    ...{ self, members: bootstrap.catalogMembers, world, folder },
    heardOf: () => known.catalogView,
    fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'catalog' })),
    diskFailed: (reason) => storeFailed(reason),
  };
  const catalogStore = await openCatalogAtStart(catalogDisk);
  const localProof = localProofOf(folder, log);
  let membership: Membership | null = null;

  let transport: ClusterTransport | null = null;
  const connected = (): ClusterTransport => {
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
  const nowMs = (): number => world.nowMs();
  const wallMs = (): number => Number(clock.wallNs() / 1_000_000n);
  const happenings = new Happenings({ self, life, nowMs, wallMs });
  const traffic = new Traffic(nowMs);
  const observer = new Observer({
    self,
    world,
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    happenings,
    nowMs: () => clock.nowMs(),
    servers: () => [...known.urls.keys()],
    isConnected,
  });

  const conflicts = new ViewConflicts({
    log,
    isHere: (file) => file === CATALOG_CELL || store.record(file) !== null,
    found: (file, what) => happenings.tell(SENTENCES.viewConflict(self, file, what)),
  });
  const host = new ReplicaHost({
    self,
    incarnation,
    world,
    clock,
    wakes,
    log,
    store,
    departed,
    ...timing,
    commitBegins: (file) => commits.begin({ of: file === CATALOG_CELL ? 'catalog' : 'files' }),
    catchUpBytesPerSecond: config.catchUpBytesPerS,
    trustOfNew: (file) => trustOfNew(folder, file),
    holds: (file) => folder.holds(file),
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
    marked: (replica, mark, detail) => {
      observer.marked(replica, mark, detail);
      if (mark === 'view-conflict') conflicts.note(replica.file, detail);
    },
    viewStated: (file, here, there, server) => conflicts.compare(file, here, there, server),
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
    world,
    clock,
    wakes,
    log,
    drawIncarnation: draw,
    transport: connected,
    knownView: (cell) => host.knownView(cell),
    // An older release may find commands in the catalog that it cannot execute: as its primary it would hold up everything.
    mayAcquire: (cell, peer) =>
      cell !== CATALOG_CELL || (connected().commandsVersion(peer) ?? COMMANDS_VERSION) >= COMMANDS_VERSION,
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
    clockMemory: { formerMs: folder.formerNamedClockMs, cover: (clockMs) => folder.coverNamedClock(clockMs) },
    founders: [...bootstrap.urls.keys()],
    urls: known.urls,
    peers: known.others,
    voters: folder,
    leaseMs: config.namedLeaseMaxMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    operationTimeoutMs: config.operationTimeoutMs,
    world,
    clock,
    wakes,
    log,
    drawIncarnation: draw,
    transport: connected,
    isConnected,
    stream: (server, path, signal) => gateway.peers.stream(server, path, signal),
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
    lacksCatalogReplica: () => seat.service.lacksReplica,
    shortages: () => shortages.current,
    viewConflicts: () => conflicts.current,
    scrub: () => scrubber.status(),
    isConnected,
    disk: folder.disk,
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
    world,
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
    world,
    log,
    reserve: store.reserve,
    peers: () => connected().peers,
    isConnected,
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
    changed: (isLow) => {
      happenings.tell(isLow ? SENTENCES.diskFull(self) : SENTENCES.diskHasRoom(self));
      if (isLow) return;
      idle.hasRoom();
      keepBallast();
    },
  });
  const keepBallast = (): void => {
    if (store.reserve.isLow) return;
    ballastKeep(folder.path).catch((error: unknown) => {
      log.warn({ err: error }, 'no disk space is reserved for a start on a full disk');
    });
  };
  const scrubber = new Scrubber({
    world,
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
  const agreed = new AgreedFiles({
    ...{ self, clock, log, store, host, isConnected },
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
  });
  const files = new LocalFileService({
    agreed,
    self,
    isServer: (server) => known.urls.has(server),
    world,
    clock,
    log,
    store,
    host,
    lease,
    catalog: {
      attributes: async (file) =>
        (await gateway.queryCatalog({ kind: 'attributes', inode: file })).attributes,
      justMade: (file) => justMade(seat.store, file, clock.wallNs()),
      command: (command) => gateway.command(command),
      durably: (command) => gateway.durably(command),
      flush: () => gateway.flushCatalog(),
      epoch: () => gateway.catalogEpoch,
    },
    lockLeaseMs: timing.lockLeaseMs,
    endedUnlocked: (ending, servers) => lockEndings.tell(ending, servers),
    isDiskFull: (server) => fullDisks.isFull(server),
    holds: async (server, file, position) => (await membership?.holds(server, file, position)) ?? false,
    traffic,
    yieldTo: (view) => membership?.yieldTo(view) ?? null,
    operationTimeoutMs: config.operationTimeoutMs,
    isConnected,
  });
  const placement = new Placement({ configured: [...bootstrap.urls.keys()], isConnected });
  const seat = new CatalogSeat({
    ...catalogDisk,
    store: catalogStore,
    settle: (file, timeoutMs) => gateway.settle(file, { timeoutMs }),
    cacheLeaseMsMax: timing.cacheLeaseMsMax,
    operationTimeoutMs: config.operationTimeoutMs,
    ...{ clock, log, metrics, host, lease, placement, isConnected },
    commandsVersion: (server) => connected().commandsVersion(server),
    drawSession: draw,
  });
  const catalog = seat.service;
  const gateway = new Gateway({
    services: { catalog, files, status },
    world,
    metrics,
    tls: security.peers,
    machine,
  });
  const creations = creationsOf({
    ...{ self, incarnation, world, clock, log, host, store, traffic, metrics, placement, gateway },
    isConnected,
    transport: connected,
  });
  const succession = new Succession({
    self,
    log,
    isConnected,
    call: (to, method, payload, timeoutMs) => connected().call(to, method, payload, timeoutMs),
    named: (file, successor) => gateway.router.expect(file, successor),
    succeed: (file, from) => files.replicas.succeed(file, from),
    peers: () => connected().peers,
    flush: () => store.flushIndex(),
    reach: (peer, timeoutMs) => gateway.peers.exchange(peer, { method: 'GET', path: '/livez' }, timeoutMs),
  });
  const lockEndings = new LockEndings({
    ...{ world, log, isConnected },
    call: (to, method, payload, timeoutMs, deferrable) =>
      connected().call(to, method, payload, timeoutMs, deferrable),
    heard: (ending) => files.leftUnlocked(ending),
  });
  // Nothing is awaited between the first of these parts and here: their timers would send before there is a transport.
  transport = machine.peerTransport({
    world,
    server: self,
    incarnation,
    cluster: config.cluster,
    paramsHash: paramsHash(config),
    peers: addressesOf(known.urls),
    log,
    ...(security.peers === null ? {} : { tls: security.peers }),
    handlers: peerHandlers({
      ...{ lease, named, host, agreed, gateway, succession, lockEndings, repairer, scrubber },
      ...{ fullDisks, observer },
      contents: creations.contents,
      membership: () => membership,
    }),
  });
  const control = controlOf(machine.environment);
  const liveSelf = new LiveSelf({
    ...{ self, host, lease, store, traffic, happenings, nowMs },
    membership: { state: () => known.stateOf(self) },
    isDiskFull: () => store.reserve.isLow,
    failure: () => failure,
    standing: (file) => files.standing(file),
  });
  const hub = new LiveHub({
    ...{ gateway, self: liveSelf, log, version: VERSION, life, control, world, wallMs },
  });
  known.onChange(() => observer.membershipIs(known.stateOf(self)));
  const hosts = new HostNames(config.hostNames, known.urls);
  const connections = new Connections({
    perAddress: config.addressConnections,
    // Files, databases and connections to peers take descriptors, too.
    all: Math.min(
      LISTENER_LIMITS.connections,
      Math.ceil(((await machine.descriptors())?.max ?? Infinity) / 2),
    ),
  });
  const shortages = new Shortages({
    ...{ world, log, nowMs },
    connections: () => ({
      count: connections.count,
      max: connections.bounds.all,
      refused: connections.crowdedOut,
    }),
    descriptors: () => machine.descriptors(),
    changed: (current) =>
      happenings.tell(current.length > 0 ? SENTENCES.shortage(self, current) : SENTENCES.shortageEnds(self)),
  });
  const app = await buildApp({
    lateErrors: new LateErrorReports({ self, log, happenings, metrics }),
    live: { hub, control: control?.url ?? null },
    membership: { describe: () => known.describe() },
    births: creations.births,
    wholes: creations.wholes,
    check: new ReplicaCheck({
      ...{ self, store, conflicts },
      query: (query) => gateway.queryCatalog(query),
      inVain: () => [
        ...new Map(sweeps.flatMap(({ inVain }) => inVain.map((one) => [one.file, one]))).values(),
      ],
    }),
    localProof,
    gateway,
    log,
    metrics,
    named,
    scrubber,
    tls: security.tls,
    tokens: security.tokens,
    clientRequestsPerS: config.clientRequestsPerS,
    clientRequestsOpen: config.clientRequestsOpen,
    connections,
    hosts,
  });

  const accept = transport;
  const drain = new Drain(world, app.server);
  const contents = new ContentsConnections(app.server);
  // Before the server waits for the end of all connections.
  app.addHook('preClose', async () => contents.close());
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // No page can have a browser send the headers of a server.
    const isPage = security.tokens === null && request.headers['leasehold-wire'] === undefined;
    const reason = isPage ? refusedHost(request, hosts) : null;
    if (reason !== null) refuseUpgrade(socket, 403, reason);
    else if (!contents.accept(request, socket, head)) accept.handleUpgrade(request, socket, head);
  });
  registerServerMetrics(metrics, { host, lease, transport, scrubber, repairer, conflicts });
  registerStatusMetrics(metrics, {
    status,
    lease,
    store,
    membership: standing,
    catalogPrimary: () => gateway.router.catalogPrimary(),
    volumes: () => seat.volumesAtPrimary(),
  });
  named.registerMetrics(metrics);
  registerConnectionMetrics(metrics, connections);
  if (security.tls !== null) registerSecurityMetrics(metrics, security.tls);

  const idle = new IdleFiles({
    ...{ world, clock, log, host, lease, succession },
    settling: files.settling,
    idleMs: config.leaseIdleMs,
  });
  const joined = new Membership({
    ...{
      config,
      folder,
      world,
      log,
      known,
      store,
      host,
      gateway,
      catalog,
      placement,
      idle,
      transport,
      conflicts,
    },
    named: named.driver,
    founders: [...bootstrap.urls.keys()],
    replaced: () => fatal(replacedError(folder.path)),
  });
  membership = joined;
  const garbage = new Garbage({
    self,
    world,
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
    conflicts,
  });
  const sweepOf = (which: Pick<ReservationSweepParts, 'live' | 'periodMs'>): ReservationSweep =>
    new ReservationSweep({
      ...{ world, log, ...which },
      isCatalogPrimary: () => catalog.status().primary === self,
      query: (query) => gateway.queryCatalog(query),
      settle: (file, timeoutMs) => gateway.settle(file, { timeoutMs }),
    });
  const livePeriodMs = Math.min(LIVE_SWEEP_MS.most, Math.max(LIVE_SWEEP_MS.least, config.gcGraceMs));
  const sweeps = [sweepOf({}), sweepOf({ live: true, periodMs: livePeriodMs })];
  await seat.sitDown();
  happenings.tell(SENTENCES.started(self, lease.recoveringMs()));
  security.watchEnds(({ whose }, leftMs) => happenings.tell(SENTENCES.certificateEnds(self, whose, leftMs)));
  await machine.listen(app, {
    ...{ host: config.listen.host, port: config.listen.port },
    // The framework does not know that the server it was given speaks TLS.
    listenTextResolver: (address) =>
      `Server listening at ${security.tls === null ? address : address.replace(/^http:/, 'https:')}`,
  });
  transport.start();
  fullDisks.start();
  keepBallast();
  shortages.start();
  scrubber.begin();
  // The catalog's own record knows better than the configuration who holds it now.
  const view = catalog.view();
  if (view !== null && catalog.votes) lease.open(CATALOG_CELL, view);
  joined.start();
  return {
    ...{
      security,
      app,
      drain,
      gateway,
      garbage,
      sweeps,
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
    ...{ fullDisks, observer, hub, seat, shortages, membership: joined },
  };
}

/** @returns null where the disk does not take it: then nobody else reads it */
function localProofOf(folder: DataFolder, log: Logger): LocalProof | null {
  try {
    return LocalProof.make(folder.world, folder.path);
  } catch (error) {
    log.warn({ err: error }, 'mounts on this machine have all contents sent to them');
    return null;
  }
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
  const trust = folder.trustOfNew(file);
  if (trust === null) {
    throw new ServiceError('recovering', 'The catalog does not know this server and its disk yet', {
      retryAfterMs: NOT_REGISTERED_RETRY_MS,
    });
  }
  return trust;
}
