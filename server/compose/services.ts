import { ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { recentAttributes } from '../catalog/new-inodes.ts';
import type { FailedReplica } from '../catalog/volume-catalogs.ts';
import { type Creations, creationsOf } from '../file/creations.ts';
import { LocalFileService } from '../file/file-service.ts';
import { QuorumReads } from '../file/quorum-reads.ts';
import { SharedCopies } from '../file/shared-copies.ts';
import { Succession } from '../file/succession.ts';
import { UnlockedEnds } from '../file/unlocked-ends.ts';
import type { Membership } from '../membership/membership.ts';
import type { Upkeeps } from '../membership/upkeeps.ts';
import type { FullDisks } from '../process/full-disks.ts';
import { Placement } from '../process/placement.ts';
import type { Scrubber } from '../repair/scrubber.ts';
import type { CatalogGateway } from '../routing/catalog-gateway.ts';
import { COPY_CALL, decodeCopyAnswer, encodeCopyCall } from '../routing/copy-call.ts';
import { Gateway } from '../routing/gateway.ts';
import { ListedCatalogs } from '../routing/listed-catalogs.ts';
import { LocalStatusService, type StatusOfMembership } from '../status/status-service.ts';
import type { ClusterTransport, Transport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CatalogParts, makeCatalogs } from './catalogs.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import type { StorageParts } from './storage.ts';

/** Longer than a server waits before it answers that it still copies. */
const COPY_ANSWER_MS_MAX = 10_000;

export interface ServiceParts extends CatalogParts {
  readonly quorumReads: QuorumReads;
  readonly files: LocalFileService;
  readonly placement: Placement;
  readonly gateway: Gateway;
  readonly copies: SharedCopies;
  readonly creations: Creations;
  readonly succession: Succession;
  readonly lockEndings: UnlockedEnds;
  readonly status: LocalStatusService;
  readonly membershipStatus: StatusOfMembership;
}

export interface PartsAfterServices {
  transport(): ClusterTransport;
  membership(): Membership;
  upkeeps(): Upkeeps;
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
  const { store, knownCatalogs, failure } = storage;
  const { host, lease, named, conflicts } = cores;
  const { transport, membership } = later;
  const { operationTimeoutMs } = config;
  const isConnected = isConnectedOf(self, transport);
  const call: Transport['call'] = (to, method, payload, timeoutMs, deferrable) =>
    transport().call(to, method, payload, timeoutMs, deferrable);
  const membershipStatus: StatusOfMembership = {
    state: () => known.stateOf(self),
    registered: () => later.upkeeps().registered,
    moving: () => later.upkeeps().moving(),
    lag: () => membership().lag(),
    behind: () => membership().behind(),
    uncompared: () => membership().uncompared(),
    votersWanted: () => membership().votersWanted(),
    placementShortages: () => later.upkeeps().shortages,
  };
  const status = new LocalStatusService({
    ...{ self, world, clock, host, lease, store, isConnected, failure, operationTimeoutMs },
    cluster: config.cluster,
    urls: known.urls,
    known,
    timing: { leaseMs: config.leaseMs, clockSkewMaxMs: config.clockSkewMaxMs },
    named: named.driver,
    membership: membershipStatus,
    lacksCatalogReplica: () => catalogMember.service.lacksReplica || volumeCatalogs.lacksReplica,
    copiedInodes: (catalog) => {
      if (knownCatalogs.byNumber(catalog)?.moving === undefined) return null;
      return volumeCatalogs.storeOf(catalog)?.query({ kind: 'catalog-state' }).inodes ?? 0;
    },
    shortages: () => [...later.shortages(), ...volumeCatalogs.failed().map(failureText)],
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
      recentAttributes: (file) => {
        const number = knownCatalogs.inodeCatalogs.catalogOf(file);
        const store = number === ROOT_CATALOG ? catalogMember.store : volumeCatalogs.storeOf(number);
        return recentAttributes(store, file, clock.wallNs());
      },
      command: (command) => gateway.command(command),
      durably: (command) => gateway.durably(command),
      flush: (file) => gateway.ofInode(file).flush(),
      catalogOf: (file) => gateway.ofInode(file).number,
      epoch: (file) => epochIn(gateway.ofInode(file)),
    },
    lockLeaseMs: timing.lockLeaseMs,
    notifyUnlockedEnd: (ending, servers) => lockEndings.notify(ending, servers),
    isDiskFull: (server) => later.fullDisks().isFull(server),
    isAt: (server, file, position) => membership().isAt(server, file, position),
    successor: (view) => membership().successor(view),
  });
  const placement = new Placement({ configured: [...bootstrap.urls.keys()], isConnected });
  const catalogs = makeCatalogs(base, storage, cores, {
    ...{ placement, transport, gateway: () => gateway },
  });
  const { catalogMember, volumeCatalogs } = catalogs;
  const routed = new ListedCatalogs({
    root: catalogMember.service,
    rows: knownCatalogs,
    at: (number) => volumeCatalogs.at(number),
    refresh: () => catalogs.catalogLists.refresh(),
  });
  const gateway = new Gateway({
    services: { catalogs: routed, files, status },
    copyAt: async (server, file) =>
      server === self
        ? copies.copy(file)
        : decodeCopyAnswer(await call(server, COPY_CALL, encodeCopyCall(file), COPY_ANSWER_MS_MAX)),
    founders: [...bootstrap.urls.keys()],
    ...{ world, metrics, machine: base.machine, tls: base.security.peers },
  });
  const copies = new SharedCopies({
    ...{ self, world, log, host },
    locate: (file) => gateway.queryCatalog({ kind: 'shared-contents', inode: file }),
    read: async (file, ...range) => {
      const [offset, length, asOf] = range;
      return (await gateway.files.read(file, offset, length, { asOf })).bytes;
    },
    extent: (file, offset, whence, asOf) => gateway.files.extent(file, offset, whence, { asOf }),
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
    ...catalogs,
    gateway,
    copies,
    creations,
    succession,
    lockEndings,
    status,
    membershipStatus,
  };
}

function failureText({ volume, reason }: FailedReplica): string {
  return `cannot use its replica of the catalog of volume "${volume}": ${reason}`;
}

/** Epochs of one catalog are below this. */
const EPOCHS_PER_CATALOG = 2 ** 36;

/** Files move from the root catalog to others, whose numbers are larger. */
function epochIn({ number, epoch }: Pick<CatalogGateway, 'number' | 'epoch'>): number {
  return number * EPOCHS_PER_CATALOG + epoch;
}
