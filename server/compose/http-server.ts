import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { ReplicaCheck } from '../file/replica-check.ts';
import { buildApp } from '../http/app.ts';
import { ContentsConnections } from '../http/contents-connections.ts';
import { Drain } from '../http/drain.ts';
import { HostNames, hostRefusal } from '../http/hosts.ts';
import { controlOf } from '../live/dev-control.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import { LateErrorReports } from '../live/late-errors.ts';
import { LiveHub } from '../live/live-hub.ts';
import { OwnLiveReport } from '../live/live-self.ts';
import { Shortages } from '../process/shortages.ts';
import { buildS3App } from '../s3/s3-app.ts';
import { Connections } from '../security/connections.ts';
import { LISTENER_LIMITS } from '../security/listener.ts';
import { RateLimits } from '../security/rate-limits.ts';
import { registerConnectionMetrics, registerSecurityMetrics } from '../security/security-metrics.ts';
import { registerServerMetrics } from '../status/server-metrics.ts';
import { registerStatusMetrics } from '../status/status-metrics.ts';
import { VERSION } from '../status/status-service.ts';
import { refuseUpgrade } from '../transport/peer-transport.ts';
import type { BackgroundParts } from './background.ts';
import type { Base } from './base.ts';
import type { CoreParts } from './cores.ts';
import type { ServiceParts } from './services.ts';
import type { StorageParts } from './storage.ts';

export interface HttpServerParts {
  readonly app: FastifyInstance;
  readonly drain: Drain;
  /** Null without S3. */
  readonly s3: { readonly app: FastifyInstance; readonly drain: Drain } | null;
  readonly hub: LiveHub;
  readonly shortages: Shortages;
}

type EarlierParts = Base & StorageParts & CoreParts & ServiceParts & BackgroundParts;

export async function makeHttpServer(parts: EarlierParts): Promise<HttpServerParts> {
  const { self, config, known, world, log, metrics, security, machine, events, nowMs } = parts;
  const { gateway, scrubber, named, conflicts, transport, upkeeps, store, creations } = parts;
  const control = controlOf(machine.environment);
  const hub = liveHubOf(parts, control);
  const hosts = new HostNames(config.hostNames, known.urls);
  const connections = new Connections({
    perAddress: config.addressConnections,
    // Files, databases and connections to peers need descriptors, too.
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
      refused: connections.refusedByTotal,
    }),
    descriptors: () => machine.descriptors(),
    changed: (current) =>
      events.add(current.length > 0 ? EVENT_TEXTS.shortage(self, current) : EVENT_TEXTS.shortageEnds(self)),
  });
  const app = await buildApp({
    lateErrors: new LateErrorReports({ self, log, events, metrics }),
    live: { hub, control: control?.url ?? null },
    membership: { describe: () => known.describe() },
    check: new ReplicaCheck({
      ...{ self, store, conflicts },
      catalogOf: (file) => gateway.ofInode(file).number,
      query: (query) => gateway.queryCatalog(query),
      unsettleable: () => upkeeps.unsettleable(),
    }),
    ...{
      creations: creations.files,
      wholeFiles: creations.wholeFiles,
      localProof: parts.localProof,
      gateway,
      log,
      metrics,
      named,
      scrubber,
    },
    ...{ tls: security.tls, tokens: security.tokens, connections, hosts },
    clientRequestsPerS: config.clientRequestsPerS,
    clientRequestsOpen: config.clientRequestsOpen,
  });
  const drain = new Drain(world, app.server);
  const contents = new ContentsConnections(app.server);
  // Before the server waits for all connections to end.
  app.addHook('preClose', async () => contents.close());
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // A web page cannot send the headers of a server.
    const isPage = security.tokens === null && request.headers['leasehold-wire'] === undefined;
    const reason = isPage ? hostRefusal(request, hosts) : null;
    if (reason !== null) refuseUpgrade(socket, 403, reason);
    else if (!contents.accept(request, socket, head)) transport.handleUpgrade(request, socket, head);
  });
  registerMetrics(parts, connections);
  return { app, drain, s3: s3Of(parts, connections, hosts), hub, shortages };
}

function s3Of(parts: EarlierParts, connections: Connections, hosts: HostNames): HttpServerParts['s3'] {
  const { config, world, log, metrics, security, gateway, creations } = parts;
  if (config.s3 === null) return null;
  const { directory, domains, uploadExpiryMs } = config.s3;
  const app = buildS3App({
    ...{ gateway, log, metrics, connections, hosts, domains, uploadExpiryMs },
    ...{ wholeFiles: creations.wholeFiles, tls: security.tls, tokens: security.tokens },
    limits: new RateLimits(config.clientRequestsPerS, () => world.nowMs()),
    requestsOpenMax: config.clientRequestsOpen,
    root: directory === null ? { kind: 'volumes' } : { kind: 'directory', ...directory },
  });
  return { app, drain: new Drain(world, app.server) };
}

function liveHubOf(parts: EarlierParts, control: ReturnType<typeof controlOf>): LiveHub {
  const { self, host, lease, store, traffic, events, nowMs, wallMs } = parts;
  const { gateway, log, incarnationText, world, failure, files } = parts;
  const liveSelf = new OwnLiveReport({
    ...{ self, host, lease, store, traffic, events, nowMs, failure },
    membership: parts.membershipStatus,
    isDiskFull: () => store.reserve.isLow,
    leaseStatus: (file) => files.leaseStatus(file),
  });
  return new LiveHub({
    ...{ gateway, self: liveSelf, log, version: VERSION, life: incarnationText, control, world, wallMs },
  });
}

function registerMetrics(parts: EarlierParts, connections: Connections): void {
  const {
    metrics,
    host,
    lease,
    transport,
    scrubber,
    repairer,
    conflicts,
    named,
    catalogMember,
    volumeCatalogs,
    security,
  } = parts;
  registerServerMetrics(metrics, { host, lease, transport, scrubber, repairer, conflicts });
  registerStatusMetrics(metrics, {
    ...{ status: parts.status, lease, store: parts.store, membership: parts.membershipStatus },
    catalogPrimary: () => parts.gateway.root.primary,
    volumes: () => [...catalogMember.volumesAtPrimary(), ...volumeCatalogs.volumesAtPrimary()],
  });
  named.registerMetrics(metrics);
  registerConnectionMetrics(metrics, connections);
  if (security.tls !== null) registerSecurityMetrics(metrics, security.tls);
}
