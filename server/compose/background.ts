import type { FileId, ServerId } from '../../base/ids.ts';
import { wrongCounterText } from '../../catalog/recount.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { CounterCheck } from '../catalog/counter-check.ts';
import type { Address } from '../config/address.ts';
import { paramsHash } from '../config/config.ts';
import { Garbage } from '../file/garbage.ts';
import { IdleFiles } from '../file/idle-files.ts';
import { ReservationSweep, type ReservationSweepParts } from '../file/reservation-sweep.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import { addressOf, Membership } from '../membership/membership.ts';
import { FullDisks } from '../process/full-disks.ts';
import { Repairer } from '../repair/repairer.ts';
import { Scrubber } from '../repair/scrubber.ts';
import { ballastKeep } from '../storage/ballast.ts';
import { FolderError } from '../storage/folder-error.ts';
import type { ClusterTransport, Transport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import { peerHandlers } from './peer-handlers.ts';
import type { ServiceParts } from './services.ts';
import type { StorageParts } from './storage.ts';

/** Bounds of the period in which live files are settled; within them it is `config.gcGraceMs`. */
const LIVE_SWEEP_MS = { least: 10_000, most: 600_000 };

/** What a server does without a request of a client: traffic with its peers, and upkeep of its disk and files. */
export interface BackgroundParts {
  readonly transport: ClusterTransport;
  readonly repairer: Repairer;
  readonly scrubber: Scrubber;
  readonly fullDisks: FullDisks;
  readonly idle: IdleFiles;
  readonly membership: Membership;
  readonly garbage: Garbage;
  readonly sweeps: readonly ReservationSweep[];
  readonly counterCheck: CounterCheck;
  keepBallast(): void;
}

export function makeBackground(
  base: Base,
  storage: StorageParts,
  cores: CoreParts,
  services: ServiceParts,
): BackgroundParts {
  const { self, config, bootstrap, known, folder, world, clock, log, events } = base;
  const { store, departed } = storage;
  const { host, lease, named, observer, conflicts } = cores;
  const { files, catalogMember, gateway, placement, succession } = services;
  const catalog = catalogMember.service;
  const isConnected = isConnectedOf(self, () => transport);
  const call: Transport['call'] = (to, method, payload, timeoutMs) =>
    transport.call(to, method, payload, timeoutMs);
  const repairer = new Repairer({ ...{ self, world, log, store, isConnected, call } });
  const keepBallast = (): void => {
    if (store.reserve.isLow) return;
    ballastKeep(folder.path).catch((error: unknown) => {
      log.warn({ err: error }, 'cannot reserve disk space for a start on a full disk');
    });
  };
  const fullDisks = new FullDisks({
    ...{ world, log, isConnected, call },
    reserve: store.reserve,
    peers: () => transport.peers,
    changed: (isLow) => {
      events.add(isLow ? EVENT_TEXTS.diskFull(self) : EVENT_TEXTS.diskHasSpace(self));
      if (isLow) return;
      idle.resetRestartWaits();
      keepBallast();
    },
  });
  const scrubber = new Scrubber({
    ...{ world, clock, log, store, repairer },
    recordFile: folder.file('scrub.json'),
    bytesPerS: config.scrubBytesPerS,
    everyMs: config.scrubEveryMs,
    paths: async (inodes) => {
      const { paths } = await gateway.queryCatalog({ kind: 'paths', inodes: [...inodes].slice(0, 1_000) });
      return new Map(paths.map(({ inode, volume, path }) => [inode as FileId, `${volume}:${path}`]));
    },
  });
  const transport = base.machine.peerTransport({
    world,
    server: self,
    incarnation: base.incarnation,
    cluster: config.cluster,
    paramsHash: paramsHash(config),
    peers: addressesOf(known.urls),
    log,
    ...(base.security.peers === null ? {} : { tls: base.security.peers }),
    handlers: peerHandlers({
      ...services,
      ...{ lease, named, host, observer, repairer, scrubber, fullDisks },
      contents: services.creations.contents,
      membership: () => membership,
    }),
  });
  const idle = new IdleFiles({
    ...{ world, clock, log, host, lease, succession },
    settling: files.settling,
    idleMs: config.leaseIdleMs,
  });
  const membership = new Membership({
    ...{
      config,
      folder,
      world,
      log,
      known,
      store,
      departed,
      host,
      gateway,
      catalog,
      placement,
      idle,
      transport,
    },
    conflicts,
    named: named.driver,
    memberChanges: files.memberChanges,
    founders: [...bootstrap.urls.keys()],
    replaced: () => base.fatal(replacedError(folder.path)),
  });
  const garbage = new Garbage({
    ...{ self, world, log, store, departed, host, lease, conflicts },
    graceMs: config.gcGraceMs,
    isSpaceShort: () => fullDisks.isAnyFull,
    nowNs: () => clock.wallNs(),
    nowMs: base.nowMs,
    isCatalogPrimary: () => catalog.status().primary === self,
    catalogEpoch: () => gateway.catalogEpoch,
    command: (command: Command) => gateway.command(command),
    query: (query) => gateway.queryCatalog(query),
    hasPosition: (server, file, position) => membership.hasPosition(server, file, position),
    replicaAt: (server, file) => membership.placeAt(server, file),
    open: (file) => gateway.leaseStatus(file),
  });
  store.recordChanges.on((file, isPlaced) => {
    if (isPlaced) garbage.placed(file);
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
  const counterCheck = new CounterCheck({
    ...{ world, log },
    isCatalogPrimary: () => catalog.status().primary === self,
    store: () => catalogMember.store,
    found: (wrong) => events.add(EVENT_TEXTS.countersWrong(self, wrong.map(wrongCounterText))),
  });
  base.metrics.observe(
    'gauge',
    'leasehold_catalog_wrong_counters',
    "Counters of the catalog that its primary's last recount found wrong",
    () => counterCheck.wrong.length,
  );
  return {
    transport,
    repairer,
    scrubber,
    fullDisks,
    idle,
    membership,
    garbage,
    sweeps,
    counterCheck,
    keepBallast,
  };
}

function replacedError(folder: string): FolderError {
  return new FolderError(
    'damaged',
    `Cannot continue with ${folder}: this server has since run with another data folder, whose ` +
      'acknowledged writes are missing here. Use that folder again, or start with --rebuild',
  );
}

function addressesOf(urls: ReadonlyMap<ServerId, string>): Map<ServerId, Address> {
  return new Map([...urls].map(([server, url]) => [server, addressOf(url)]));
}
