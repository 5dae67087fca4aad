import { wrongCounterText } from '../../catalog/recount.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import type { ClusterPlan } from '../membership/cluster-plan.ts';
import type { Surroundings } from '../process/surroundings.ts';
import type { Security } from '../security/security.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import { type BackgroundParts, makeBackground } from './background.ts';
import { type Base, baseOf } from './base.ts';
import { type CoreParts, makeCores } from './cores.ts';
import { type HttpServerParts, makeHttpServer } from './http-server.ts';
import { makeServices, type ServiceParts } from './services.ts';
import { openStorage, type StorageParts } from './storage.ts';

export type Parts = Base & StorageParts & CoreParts & ServiceParts & BackgroundParts & HttpServerParts;

/**
 * Creates all parts of a server, each from those before it; a part reaches later ones through functions. The server
 * listens when this resolves.
 * @throws FolderError if the data folder cannot be used, or the error of listening
 */
export async function compose(
  plan: ClusterPlan,
  folder: DataFolder,
  security: Security,
  surroundings: Surroundings,
): Promise<Parts> {
  const base = baseOf(plan, folder, security, surroundings);
  // A start that finds its folder damaged or its disk full starts again in this process: everything that may find it
  // runs before the first part with a timer.
  const storage = await openStorage(base, (file, entry) => background.repairer.fetch(file, entry));
  // No await until the transport exists: the timers of these parts send.
  const cores: CoreParts = makeCores(base, storage, {
    files: () => services.files,
    gateway: () => services.gateway,
    transport: () => background.transport,
    catalogChanged: (catalog) => services.catalogChanged(catalog),
  });
  const services: ServiceParts = makeServices(base, storage, cores, {
    transport: () => background.transport,
    membership: () => background.membership,
    upkeeps: () => background.upkeeps,
    fullDisks: () => background.fullDisks,
    scrubber: () => background.scrubber,
    wrongCounters: () => background.upkeeps.wrongCounters().map(wrongCounterText),
    shortages: () => httpServer.shortages.current,
  });
  const background: BackgroundParts = makeBackground(base, storage, cores, services);
  storage.whenFailed((reason) => endLeases(base, cores, reason));
  const earlierParts = { ...base, ...storage, ...cores, ...services, ...background };
  const httpServer: HttpServerParts = await makeHttpServer(earlierParts);
  const parts = { ...earlierParts, ...httpServer };
  await start(parts);
  return parts;
}

/** The disk has failed: this server renews and acquires no lease any more, so another primary follows after a lease. */
function endLeases({ self, events, folder, log }: Base, { lease, host }: CoreParts, reason: string): void {
  events.add(EVENT_TEXTS.diskFailed(self, reason));
  folder.markFailed();
  log.fatal(
    { reason },
    'the disk failed: this server lets its leases expire and serves no request; check the disk, and restart',
  );
  lease.stopCompeting();
  for (const driver of host.all()) lease.close(driver.file);
}

async function start(parts: Parts): Promise<void> {
  const { self, config, security, machine, events, lease, catalogMember, app, transport } = parts;
  await catalogMember.start();
  events.add(EVENT_TEXTS.started(self, lease.recoveringMs()));
  security.watchExpiry(({ whose }, remainingMs) =>
    events.add(EVENT_TEXTS.certificateEnds(self, whose, remainingMs)),
  );
  await machine.listen(app, {
    ...{ host: config.listen.host, port: config.listen.port },
    // Fastify does not know that the server it was given uses TLS.
    listenTextResolver: (address) =>
      `Server listening at ${security.tls === null ? address : address.replace(/^http:/, 'https:')}`,
  });
  if (parts.s3 !== null && config.s3 !== null)
    await machine.listen(parts.s3.app, {
      ...{ host: config.s3.listen.host, port: config.s3.listen.port },
      listenTextResolver: (address) =>
        `S3 listening at ${security.tls === null ? address : address.replace(/^http:/, 'https:')}`,
    });
  transport.start();
  parts.fullDisks.start();
  parts.keepBallast();
  parts.shortages.start();
  parts.scrubber.begin();
  catalogMember.compete();
  parts.volumeCatalogs.start();
  parts.membership.start();
  parts.upkeeps.start();
}
