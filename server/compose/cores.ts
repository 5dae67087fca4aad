import { ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  type CellId,
  catalogOfCell,
  type FileId,
  isCatalogCell,
  type ServerId,
} from '../../base/ids.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { viewVoters } from '../../replica/view.ts';
import { silencesOf } from '../config/timing.ts';
import { LeaseDriver } from '../drivers/lease-driver.ts';
import type { LocalFileService } from '../file/file-service.ts';
import { ReplicaHost } from '../file/replica-host.ts';
import { ViewConflicts } from '../file/view-conflicts.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import { Observer } from '../live/observer.ts';
import { NamedLeases } from '../named/named-leases.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import type { NewTrust } from '../storage/store.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import type { StorageParts } from './storage.ts';

const NOT_REGISTERED_RETRY_MS = 500;
const FIRST_VIEW = 1;

export interface CoreParts {
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly named: NamedLeases;
  readonly observer: Observer;
  readonly conflicts: ViewConflicts;
}

/** Parts that the cores use and that are created after them. */
export interface PartsAfterCores {
  files(): LocalFileService;
  gateway(): Gateway;
  transport(): ClusterTransport;
  /** This server became the active primary of a catalog, or the view of its replica changed. */
  catalogChanged(catalog: CatalogNumber): void;
}

/** The timers of the cores send messages: the caller creates the transport in the same tick. */
export function makeCores(base: Base, storage: StorageParts, later: PartsAfterCores): CoreParts {
  const { self, config, bootstrap, known, world, clock, wakes, log, timing, folder, events } = base;
  const { incarnation, draw, fatal } = base;
  const { store, departed, knownCatalogs } = storage;
  const { transport } = later;
  const isConnected = isConnectedOf(self, transport);
  const commits = base.metrics.durations(
    'leasehold_commit_duration_seconds',
    'From ordering an operation at this primary to its commit',
    ['of'],
  );
  const conflicts = new ViewConflicts({
    log,
    isHere: (file) => isCatalogCell(file) || store.record(file) !== null,
    found: (file, what) => events.add(EVENT_TEXTS.viewConflict(self, file, what)),
  });
  // A server without a replica of a catalog votes on its lease by the newest view that it knows.
  const viewOfCatalog = (cell: CellId) => {
    const view = knownCatalogs.viewOf(catalogOfCell(cell));
    return view !== null && view.number > FIRST_VIEW ? view : null;
  };
  // Reads the index, which may be damaged: so it comes before the first part with a timer.
  const host = new ReplicaHost({
    ...{ self, incarnation, world, clock, wakes, log, store },
    departed: { view: (file) => (isCatalogCell(file) ? viewOfCatalog(file) : departed.view(file)) },
    ...timing,
    commitBegins: (file) => commits.begin({ of: isCatalogCell(file) ? 'catalog' : 'files' }),
    catchUpBytesPerSecond: config.catchUpBytesPerS,
    trustOfNew: (file) => trustOfNew(folder, file),
    recordReplica: (file) => folder.recordReplica(file),
    viewChanged: (file, view) => {
      if (isCatalogCell(file)) later.catalogChanged(catalogOfCell(file));
      // A new member of the catalog wants it to have a primary; files are opened when they are used.
      if (isCatalogCell(file) && viewVoters(view).includes(self)) lease.open(file, view);
      else lease.viewChanged(file, view);
      if (!isCatalogCell(file)) later.files().becamePrimary(file);
    },
    becamePrimary: (file) => {
      if (isCatalogCell(file)) later.catalogChanged(catalogOfCell(file));
      else later.files().becamePrimary(file);
    },
    stoppedByItself: (file) => {
      lease.release(file);
      const status = host.loaded(file)?.status();
      // This server could not fetch the catalog's state, and may still become its primary. Files are opened when used.
      const votes = status !== undefined && status.outside === null && viewVoters(status.view).includes(self);
      if (!isCatalogCell(file) || !votes) lease.close(file);
    },
    marked: (replica, mark, detail) => {
      observer.marked(replica, mark, detail);
      if (mark === 'view-conflict') conflicts.report(replica.file, detail);
    },
    viewStated: (file, here, there, server) => conflicts.compare(file, here, there, server),
    transport,
    isClockSound: () => lease.isClockSound(),
    fatal,
  });
  const observer: Observer = new Observer({
    self,
    world,
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    events,
    nowMs: () => clock.nowMs(),
    servers: () => [...known.urls.keys()],
    isConnected,
  });
  known.onChange(() => observer.membershipChanged(known.stateOf(self)));
  // The longer recovery waits of earlier starts are forgotten once these have ended, for files and for names.
  const recovered = (): void => {
    if (lease.recoveringMs() === 0 && named.driver.recoveringMs() === 0) {
      folder.replaceSilences(silencesOf(config));
    }
  };
  const lease: LeaseDriver = new LeaseDriver({
    self,
    peers: known.others,
    algorithm: config.leaseAlgorithm,
    earlier: {
      recoveryMs: folder.silences.filesMs,
      ended: () => {
        events.add(EVENT_TEXTS.takesPart(self));
        recovered();
      },
    },
    leaseMs: config.leaseMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    ...{ world, clock, wakes, log },
    drawIncarnation: draw,
    transport,
    knownView: (cell) => host.knownView(cell),
    // An older release may find commands in the catalog that it cannot execute: as its primary it would block them all.
    mayAcquire: (cell, peer) =>
      !isCatalogCell(cell) || (transport().commandsVersion(peer) ?? COMMANDS_VERSION) >= COMMANDS_VERSION,
    ownLeaseChanged: (cell, untilMs, view) => {
      observer.leaseChanged(cell, untilMs);
      host.leaseChanged(cell, untilMs, view);
    },
    otherLeaseLearned: (cell, holder, untilMs) => observer.leaseLearned(cell, holder, untilMs),
    faulted: () => events.add(EVENT_TEXTS.clockFault(self)),
    fatal,
  });
  const named = new NamedLeases({
    self,
    earlier: { recoveryMs: folder.silences.namesMs, ended: recovered },
    clockMemory: {
      earlierMs: folder.earlierNamedClockMs,
      cover: (clockMs) => folder.coverNamedClock(clockMs),
    },
    founders: [...bootstrap.urls.keys()],
    urls: known.urls,
    peers: known.others,
    voters: folder,
    leaseMs: config.namedLeaseMaxMs,
    clockSkewMaxMs: config.clockSkewMaxMs,
    operationTimeoutMs: config.operationTimeoutMs,
    ...{ world, clock, wakes, log },
    drawIncarnation: draw,
    transport,
    isConnected,
    stream: (server, path, signal) => later.gateway().peers.stream(server, path, signal),
    fatal,
  });
  return { host, lease, named, observer, conflicts };
}

export function isConnectedOf(self: ServerId, transport: () => ClusterTransport) {
  return (server: ServerId): boolean => server === self || transport().isConnected(server);
}

/** @throws ServiceError `recovering` until the catalog has said how far it trusts the folder */
function trustOfNew(folder: DataFolder, file: FileId): NewTrust {
  const trust = folder.trustOfNew(file);
  if (trust === null) {
    throw new ServiceError('recovering', 'This server is not yet registered with the catalog', {
      retryAfterMs: NOT_REGISTERED_RETRY_MS,
    });
  }
  return trust;
}
