import { type CatalogNumber, type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { CATALOGS_VERSION, COMMANDS_VERSION } from '../../catalog/versions.ts';
import { CatalogKeeper } from '../catalog/catalog-keeper.ts';
import { CatalogMember, type CatalogMemberParts } from '../catalog/catalog-member.ts';
import { CatalogMetrics } from '../catalog/catalog-metrics.ts';
import { CatalogMoves } from '../catalog/catalog-moves.ts';
import { CatalogSurvey } from '../catalog/catalog-survey.ts';
import { PrimaryReturn } from '../catalog/primary-return.ts';
import { retentionReporter } from '../catalog/retention-reporter.ts';
import { VolumeCatalogs } from '../catalog/volume-catalogs.ts';
import { VolumeMoves } from '../catalog/volume-moves.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import { CatalogListExchange } from '../membership/catalog-list-exchange.ts';
import type { KnownList } from '../membership/known-catalogs.ts';
import type { Placement } from '../process/placement.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import type { StorageParts } from './storage.ts';

/** Longest wait for one move of a catalog, which continues after that. */
const CHANGE_MS = 60_000;
/** Longest wait for the catalog to which a volume moves; other moves wait meanwhile. */
const OPENED_MS_MAX = 2_000;

export interface CatalogParts {
  readonly catalogMember: CatalogMember;
  readonly volumeCatalogs: VolumeCatalogs;
  readonly catalogLists: CatalogListExchange;
  readonly catalogMoves: CatalogMoves;
  readonly catalogSurvey: CatalogSurvey;
  readonly volumeMoves: VolumeMoves;
  readonly primaryReturn: PrimaryReturn;
  /** This server became the active primary of a catalog, or the view of its replica changed. */
  catalogChanged(number: CatalogNumber): void;
}

export interface CatalogUses {
  readonly placement: Placement;
  transport(): ClusterTransport;
  gateway(): Gateway;
}

/** The catalogs on this server, and what it exchanges with others about them. */
export function makeCatalogs(
  base: Base,
  storage: StorageParts,
  cores: CoreParts,
  { placement, transport, gateway }: CatalogUses,
): CatalogParts {
  const { self, config, world, clock, log, timing, folder, wakes, fatal } = base;
  const { knownCatalogs: known } = storage;
  const { host, lease } = cores;
  const shared: Omit<CatalogMemberParts, keyof typeof storage.catalogDisk | 'store'> = {
    ...{ clock, wakes, log, host, lease, placement },
    cacheLeaseMsMax: timing.cacheLeaseMsMax,
    operationTimeoutMs: config.operationTimeoutMs,
    metrics: new CatalogMetrics(base.metrics),
    isConnected: isConnectedOf(self, transport),
    settle: (file: FileId, timeoutMs: number) => gateway().files.settle(file, { timeoutMs }),
    commandsVersion: (server: ServerId) => transport().commandsVersion(server),
    drawSession: base.draw,
    reportReplica: (change) =>
      base.events.add(
        change === 'damaged' ? EVENT_TEXTS.catalogDamaged(self) : EVENT_TEXTS.catalogReplaced(self),
      ),
    isArriving: () => false,
    listChanged: () => {
      catalogLists.rootChanged();
      volumeMoves.wake();
    },
    assertLost: (catalog) => catalogSurvey.assertLost(catalog),
    retained: async () => undefined,
  };
  const catalogMember = new CatalogMember({
    ...shared,
    ...storage.catalogDisk,
    store: storage.catalogStore,
  });
  const keepers = new Map<CatalogNumber, CatalogKeeper>();
  const keeperOf = (number: CatalogNumber, member: CatalogMember): CatalogKeeper =>
    new CatalogKeeper({
      ...{ self, number, world, log, service: member.service },
      row: () => known.byNumber(number),
      servers: () => known.list.servers,
      view: () => member.service.view(),
      command: (command) => gateway().catalog(number).command(command),
      exported: (after) => gateway().root.query({ kind: 'volume-export', number, after }),
      abortMove: (name) => gateway().root.command({ kind: 'volume-move-abort', name }),
      report: (report) => gateway().root.command({ kind: 'catalog-report', number, report }),
    });
  const volumeCatalogs = new VolumeCatalogs(
    {
      ...{ self, world, log, folder, rows: known, fatal },
      attend: (number, member) => {
        const keeper = keeperOf(number, member);
        keepers.set(number, keeper);
        keeper.wake();
        return {
          close: () => {
            keepers.delete(number);
            keeper.close();
          },
        };
      },
      member: (number, store) =>
        new CatalogMember({
          ...shared,
          ...storage.diskOfVolume(number),
          store,
          isArriving: () => known.byNumber(number)?.moving !== undefined,
          listChanged: () => undefined,
          retained: retentionReporter((untilNs) =>
            gateway().root.command({
              ...{ kind: 'catalog-report', number },
              report: { kind: 'retained', untilNs },
            }),
          ),
        }),
    },
    storage.volumeStores,
  );
  known.onChange(() => {
    for (const keeper of keepers.values()) keeper.listChanged();
    volumeMoves.wake();
  });
  const primaryReturn = new PrimaryReturn({
    ...{ self, world, log, periodMs: config.leaseMs, wallMs: base.wallMs },
    catalogs: () => volumeCatalogs.returnable(),
    servers: () => known.list.servers,
    isConnected: isConnectedOf(self, transport),
    mayLead: (server) => (transport().commandsVersion(server) ?? COMMANDS_VERSION) >= COMMANDS_VERSION,
  });
  const root = catalogMember.service;
  const volumeMoves = new VolumeMoves({
    ...{ self, world, log, service: root },
    volumeOf: (catalog) => known.byNumber(catalog as CatalogNumber)?.name ?? null,
    report: (volume, phase) =>
      base.events.add(
        phase === 'frozen' ? EVENT_TEXTS.volumeFrozen(volume) : EVENT_TEXTS.volumeMoved(volume),
      ),
    opened: (catalog) =>
      gateway()
        .catalog(catalog as CatalogNumber)
        .query({ kind: 'catalog-state' }, { exact: true, timeoutMs: OPENED_MS_MAX }),
    recallMoving: async () => catalogMember.recaller?.recallLeaving(),
    command: (command) => gateway().root.command(command),
  });
  const catalogLists = new CatalogListExchange({
    ...{ self, world, log, known },
    peers: () => transport().peers,
    call: (...call) => transport().call(...call),
    hasLists: (server) => (transport().commandsVersion(server) ?? 0) >= CATALOGS_VERSION,
    isEarlier: (server) => (transport().commandsVersion(server) ?? CATALOGS_VERSION) < CATALOGS_VERSION,
    root: {
      isPrimary: () => root.status().primary === self,
      candidates: () => {
        const primary = gateway().catalog(ROOT_CATALOG).primary;
        return [...(primary === null ? [] : [primary]), ...root.status().members];
      },
      list: async (known) => {
        // Numbers and names of servers in it are valid: its commands have checked them.
        const list = (await root.query({ kind: 'catalogs', known }, true)) as KnownList;
        return list.version === known ? null : list;
      },
      flush: async () => {
        await root.flush();
      },
    },
  });
  const catalogSurvey = new CatalogSurvey({
    self,
    storeOf: (number) => volumeCatalogs.storeOf(number),
    call: (...call) => transport().call(...call),
  });
  const catalogMoves = new CatalogMoves({
    ...{ self, known, catalogs: volumeCatalogs },
    call: (...call) => transport().call(...call),
    changeMembers: (number, members) =>
      gateway().catalog(number).changeMembers(members, { timeoutMs: CHANGE_MS }),
    refresh: () => catalogLists.refresh(),
  });
  return {
    ...{
      catalogMember,
      volumeCatalogs,
      catalogLists,
      catalogMoves,
      catalogSurvey,
      volumeMoves,
      primaryReturn,
    },
    catalogChanged: (number) => {
      if (number === ROOT_CATALOG) {
        catalogLists.rootChanged();
        volumeMoves.wake();
      } else keepers.get(number)?.wake();
    },
  };
}
