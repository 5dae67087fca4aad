import { type CatalogNumber, catalogCell, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { wrongCounterText } from '../../catalog/recount.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { mayHaveHadCatalogs } from '../catalog/catalog-disk.ts';
import { RecountTurns } from '../catalog/counter-check.ts';
import { RemovedCatalogs } from '../file/removed-catalogs.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import {
  type CatalogAccess,
  type CatalogDuties,
  CatalogUpkeep,
  type UpkeepParts,
} from '../membership/catalog-upkeep.ts';
import { knownServerOf } from '../membership/known-servers.ts';
import type { Membership } from '../membership/membership.ts';
import { MoveLimits } from '../membership/move-limits.ts';
import type { RegistrationVersions } from '../membership/registrar.ts';
import { Upkeeps } from '../membership/upkeeps.ts';
import { volumeDuties } from '../membership/volume-duties.ts';
import { catalogReplicasWanted } from '../process/catalog-replicas.ts';
import type { FullDisks } from '../process/full-disks.ts';
import { FolderError } from '../storage/folder-error.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import type { ServiceParts } from './services.ts';
import type { StorageParts } from './storage.ts';

/** Between two looks of a server at its entry in the root catalog. */
const REGISTRATION_MS = 60_000;
/** Servers report their free space twice as often. */
const REBALANCE_MS = 120_000;
/** A change of free space by more than this part of the disk is reported to the root catalog. */
const SPACE_STEP = 0.01;
/** Longest wait for one move of a file, which continues after that. */
const CHANGE_MS = 60_000;

interface UpkeepUses {
  readonly fullDisks: FullDisks;
  readonly membership: Membership;
  readonly transport: ClusterTransport;
}

export function makeUpkeeps(
  base: Base,
  storage: StorageParts,
  cores: CoreParts,
  services: ServiceParts,
  uses: UpkeepUses,
): Upkeeps {
  const { self, log, folder, metrics } = base;
  const { knownCatalogs, store } = storage;
  const { catalogLists, catalogMoves } = services;
  const shared = sharedParts(base, storage, cores, services, uses);
  const isConnected = isConnectedOf(self, () => uses.transport);
  const upkeeps = new Upkeeps({
    known: knownCatalogs,
    removed: new RemovedCatalogs({
      ...shared,
      removed: () =>
        knownCatalogs.list.catalogs.flatMap(({ number, state }) => (state === 'removed' ? [number] : [])),
      inodeCatalogs: () => knownCatalogs.inodeCatalogs,
      forget: (catalog) => folder.forgetCatalog(catalog),
    }),
    root: (confirmed) => {
      const duties = rootDuties(base, services, uses, ({ catalogsVersion, storedAt }) => {
        // Until the disk has had a replica, only earlier disks of this server may have had some.
        catalogLists.registered(mayHaveHadCatalogs(folder, knownCatalogs) ? catalogsVersion : storedAt);
        confirmed();
      });
      return new CatalogUpkeep(shared, accessTo(ROOT_CATALOG, self, services), duties);
    },
    ofVolume: (catalog) => {
      const changeMembers = (members: readonly ServerId[]) => catalogMoves.change(catalog, members);
      const duties = volumeDuties({ catalog, log, isConnected, changeMembers });
      return new CatalogUpkeep(shared, accessTo(catalog, self, services), duties);
    },
  });
  store.recordChanges.on((file, isPlaced) => {
    if (isPlaced) upkeeps.placed(file);
  });
  metrics.observe(
    'gauge',
    'leasehold_catalog_wrong_counters',
    'Counters of catalogs that the last recount by their primary, this server, found wrong',
    () => upkeeps.wrongCounters().length,
  );
  metrics.observe(
    'gauge',
    'leasehold_catalogs_unregistered',
    "Volumes' catalogs that do not have this server and its disk yet",
    () => upkeeps.unregistered().length,
  );
  return upkeeps;
}

function accessTo(
  number: CatalogNumber,
  self: ServerId,
  { gateway, catalogMember, volumeCatalogs }: ServiceParts,
): CatalogAccess {
  const catalog = gateway.catalog(number);
  const status = () => gateway.services.catalogs.at(catalogCell(number))?.status() ?? null;
  const store = () => (number === ROOT_CATALOG ? catalogMember.store : volumeCatalogs.storeOf(number));
  return {
    number,
    command: (command) => catalog.command(command),
    query: (query) => catalog.query(query),
    epoch: () => catalog.epoch,
    position: () => {
      const { epoch, seq, committedSeq } = status() ?? { epoch: 0, seq: 0, committedSeq: 0 };
      return `${epoch}.${seq}.${committedSeq}`;
    },
    // Many servers have no replica of a volume's catalog, and ask this each second.
    isPrimary: () => store() !== null && status()?.primary === self,
    members: () => status()?.members ?? [],
    store,
  };
}

function rootDuties(
  { self, config, known, log, folder, fatal }: Base,
  { placement }: ServiceParts,
  { membership }: UpkeepUses,
  confirmed: (versions: RegistrationVersions) => void,
): CatalogDuties {
  return {
    registration: {
      zone: config.zone,
      labels: config.labels,
      periodMs: REGISTRATION_MS,
      spaceStep: SPACE_STEP,
      confirmed,
      removed: () =>
        log.error(
          'this server was removed from the cluster: stop it, or add it ' +
            `again with "leasehold server add ${self} ${known.urls.get(self) ?? ''}"`,
        ),
      listed: (servers, settings) => known.adoptCatalogList(servers.map(knownServerOf), null, null, settings),
      replaced: () => {
        fatal(replacedError(folder.path));
        return 'end';
      },
    },
    candidates: (servers) => placement.candidates(servers),
    membersWanted: (servers) => catalogReplicasWanted({ ...servers, first: config.catalogMembers.length }),
    changeMembers: (members) => membership.changeCatalogMembers(members),
    rebalancePeriodMs: REBALANCE_MS,
    partToBalance: () => 1,
    announce: (servers, settings) => membership.announce(servers, settings),
  };
}

function sharedParts(
  base: Base,
  { store, departed, knownCatalogs }: StorageParts,
  { host, lease, conflicts }: CoreParts,
  { gateway }: ServiceParts,
  { fullDisks, membership, transport }: UpkeepUses,
): UpkeepParts {
  const { self, config, known, folder, world, clock, log, events } = base;
  return {
    ...{ self, world, log, store, departed, host, lease, conflicts },
    url: known.urls.get(self) ?? '',
    storageId: folder.storageId,
    inodeCatalogs: () => knownCatalogs.inodeCatalogs,
    space: () => store.space(),
    firstFileKnown: (catalog, file) => {
      if (folder.firstFileId(catalog) === null) folder.setFirstFileId(catalog, file);
    },
    graceMs: config.gcGraceMs,
    isSpaceShort: () => fullDisks.isAnyFull,
    nowNs: () => clock.wallNs(),
    nowMs: base.nowMs,
    hasPosition: (server, file, position) => membership.hasPosition(server, file, position),
    replicaAt: (server, file) => membership.placeAt(server, file),
    open: (file) => gateway.files.leaseStatus(file),
    settle: (file, timeoutMs) => gateway.files.settle(file, { timeoutMs }),
    fillFile: (file) => gateway.fills.fill(file),
    replaceAfterMs: config.replaceAfterMs,
    moveLimits: new MoveLimits(world, config.moveRates),
    recountTurns: new RecountTurns(),
    isConnected: isConnectedOf(self, () => transport),
    knownPrimary: (file) => gateway.router.knownPrimary(file).primary,
    order: (server, orders) => membership.orderMoves(server, orders),
    changeMembers: ({ file, members, decidedBy }) =>
      gateway.files.changeMembers(file, members, { timeoutMs: CHANGE_MS, decidedBy }),
    commandsVersion: (server) => (server === self ? COMMANDS_VERSION : transport.commandsVersion(server)),
    countersWrong: (wrong) => events.add(EVENT_TEXTS.countersWrong(self, wrong.map(wrongCounterText))),
  };
}

function replacedError(folder: string): FolderError {
  return new FolderError(
    'damaged',
    `Cannot continue with ${folder}: this server has since run with another data folder, whose ` +
      'acknowledged writes are missing here. Use that folder again, or start with --rebuild',
  );
}
