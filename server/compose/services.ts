import type { ServerId } from '../../base/ids.ts';
import { CatalogMember } from '../catalog/catalog-member.ts';
import { recentAttributes } from '../catalog/new-inodes.ts';
import { type Creations, creationsOf } from '../file/creations.ts';
import { LocalFileService } from '../file/file-service.ts';
import { QuorumReads } from '../file/quorum-reads.ts';
import { Succession } from '../file/succession.ts';
import { UnlockedEnds } from '../file/unlocked-ends.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import type { Membership } from '../membership/membership.ts';
import type { FullDisks } from '../process/full-disks.ts';
import { Placement } from '../process/placement.ts';
import type { Scrubber } from '../repair/scrubber.ts';
import { Gateway } from '../routing/gateway.ts';
import { SingleCatalog } from '../routing/single-catalog.ts';
import { LocalStatusService, type StatusOfMembership } from '../status/status-service.ts';
import type { ClusterTransport, Transport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import type { StorageParts } from './storage.ts';

export interface ServiceParts {
  readonly quorumReads: QuorumReads;
  readonly files: LocalFileService;
  readonly placement: Placement;
  readonly catalogMember: CatalogMember;
  readonly gateway: Gateway;
  readonly creations: Creations;
  readonly succession: Succession;
  readonly lockEndings: UnlockedEnds;
  readonly status: LocalStatusService;
  readonly membershipStatus: StatusOfMembership;
}

export interface PartsAfterServices {
  transport(): ClusterTransport;
  membership(): Membership;
  fullDisks(): FullDisks;
  scrubber(): Scrubber;
  shortages(): readonly string[];
  wrongCounters(): readonly string[];
}

export function makeServices(
  base: Base,
  storage: StorageParts,
  cores: CoreParts,
  later: PartsAfterServices,
): ServiceParts {
  const { self, config, bootstrap, known, world, clock, log, metrics, timing, folder, traffic } = base;
  const { store, catalogDisk, catalogStore, failure } = storage;
  const { host, lease, named, conflicts } = cores;
  const { transport, membership } = later;
  const { operationTimeoutMs } = config;
  const isConnected = isConnectedOf(self, transport);
  const call: Transport['call'] = (to, method, payload, timeoutMs, deferrable) =>
    transport().call(to, method, payload, timeoutMs, deferrable);
  const membershipStatus: StatusOfMembership = {
    state: () => known.stateOf(self),
    registered: () => membership().registered,
    moving: () => membership().moving(),
    lag: () => membership().lag(),
    behind: () => membership().behind(),
    uncompared: () => membership().uncompared(),
    votersWanted: () => membership().votersWanted(),
  };
  const status = new LocalStatusService({
    ...{ self, world, clock, host, lease, store, isConnected, failure, operationTimeoutMs },
    cluster: config.cluster,
    urls: known.urls,
    known,
    timing: { leaseMs: config.leaseMs, clockSkewMaxMs: config.clockSkewMaxMs },
    named: named.driver,
    membership: membershipStatus,
    lacksCatalogReplica: () => catalogMember.service.lacksReplica,
    shortages: () => later.shortages(),
    wrongCounters: () => later.wrongCounters(),
    viewConflicts: () => conflicts.current,
    scrub: () => later.scrubber().status(),
    disk: folder.disk,
  });
  const quorumReads = new QuorumReads({ ...{ self, clock, log, store, host, isConnected }, call });
  const files = new LocalFileService({
    ...{ quorumReads, self, world, clock, log, store, host, lease, traffic, operationTimeoutMs, isConnected },
    isServer: (server) =>
      known.find(
        server,
        async () => (await gateway.queryCatalog({ kind: 'servers', counts: false })).servers,
      ),
    catalog: {
      attributes: async (file) =>
        (await gateway.queryCatalog({ kind: 'attributes', inode: file })).attributes,
      recentAttributes: (file) => recentAttributes(catalogMember.store, file, clock.wallNs()),
      command: (command) => gateway.command(command),
      durably: (command) => gateway.durably(command),
      flush: () => gateway.flushCatalog(),
      epoch: () => gateway.catalogEpoch,
    },
    lockLeaseMs: timing.lockLeaseMs,
    notifyUnlockedEnd: (ending, servers) => lockEndings.notify(ending, servers),
    isDiskFull: (server) => later.fullDisks().isFull(server),
    isAt: (server, file, position) => membership().isAt(server, file, position),
    successor: (view) => membership().successor(view),
  });
  const placement = new Placement({ configured: [...bootstrap.urls.keys()], isConnected });
  const catalogMember = new CatalogMember({
    ...catalogDisk,
    store: catalogStore,
    settle: (file, timeoutMs) => gateway.settle(file, { timeoutMs }),
    cacheLeaseMsMax: timing.cacheLeaseMsMax,
    ...{ operationTimeoutMs, clock, wakes: base.wakes, log, metrics, host, lease, placement, isConnected },
    commandsVersion: (server) => transport().commandsVersion(server),
    drawSession: base.draw,
    reportReplica: (change) =>
      base.events.add(
        change === 'damaged' ? EVENT_TEXTS.catalogDamaged(self) : EVENT_TEXTS.catalogReplaced(self),
      ),
  });
  const gateway = new Gateway({
    services: { catalogs: new SingleCatalog(catalogMember.service), files, status },
    ...{ world, metrics, machine: base.machine, tls: base.security.peers },
  });
  const creations = creationsOf({
    ...{
      self,
      incarnation: base.incarnation,
      world,
      clock,
      log,
      host,
      store,
      traffic,
      metrics,
      placement,
      gateway,
    },
    ...{ isConnected, transport },
  });
  const succession = new Succession({
    ...{ self, log, isConnected, call },
    successorChosen: (file, successor) => gateway.router.assumePrimary(file, successor),
    succeed: (file, from) => files.replicas.succeed(file, from),
    peers: () => transport().peers,
    flush: () => store.flushIndex(),
    reach: (peer: ServerId, timeoutMs) =>
      gateway.peers.exchange(peer, { method: 'GET', path: '/livez' }, timeoutMs),
  });
  const lockEndings = new UnlockedEnds({
    ...{ world, log, isConnected, call },
    received: (ending) => files.epochEndedUnlocked(ending),
  });
  return {
    quorumReads,
    files,
    placement,
    catalogMember,
    gateway,
    creations,
    succession,
    lockEndings,
    status,
    membershipStatus,
  };
}
