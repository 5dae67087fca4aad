import type { IncomingMessage, RequestListener } from 'node:http';
import { constants as zlib } from 'node:zlib';
import compress from '@fastify/compress';
import { type FastifyBaseLogger, type FastifyInstance, fastify, LogController } from 'fastify';
import { InodeVolumes } from '../../base/inode-volumes.ts';
import type { CreateWithContents } from '../file/create-with-contents.ts';
import type { ReplicaCheck } from '../file/replica-check.ts';
import type { WholeFiles } from '../file/whole-files.ts';
import type { LateErrorReports } from '../live/late-errors.ts';
import type { LiveHub } from '../live/live-hub.ts';
import type { NamedLeases } from '../named/named-leases.ts';
import { closeAfterUnsent } from '../requests/expectation.ts';
import { USER_PATHS } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { installAudit } from '../security/audit.ts';
import { installAuthorization } from '../security/authorization.ts';
import { Capabilities } from '../security/capabilities.ts';
import { Connections, refuseOverLimit } from '../security/connections.ts';
import { createListener, LISTENER_LIMITS } from '../security/listener.ts';
import { limitOpenRequests, limitUploadsPerClient } from '../security/open-limits.ts';
import { RateLimits } from '../security/rate-limits.ts';
import { hasBody, limitSlowBodies } from '../security/slow-bodies.ts';
import type { TlsMaterial } from '../security/tls-material.ts';
import type { TokenStore } from '../security/token-file.ts';
import { VolumeScope } from '../security/volume-scope.ts';
import type { LocalProof } from '../storage/local-proof.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { capabilityRoutes } from './capability-routes.ts';
import { catalogRoutes } from './catalog-routes.ts';
import { checkRoutes } from './check-routes.ts';
import { creationRoutes } from './creation-routes.ts';
import { dataRoutes } from './data-routes.ts';
import { eventRoutes } from './event-routes.ts';
import { fileRoutes } from './file-routes.ts';
import { guardHosts, type HostNames } from './hosts.ts';
import { infoRoutes } from './info-routes.ts';
import { refuseInvalidUtf8 } from './invalid-utf8.ts';
import { junctionRoutes } from './junction-routes.ts';
import { lateErrorRoutes } from './late-error-routes.ts';
import { leaseRoutes } from './lease-routes.ts';
import { localRoutes } from './local-routes.ts';
import { lockRoutes } from './lock-routes.ts';
import { type MembershipView, membershipRoutes } from './membership-routes.ts';
import { collectRoutes, openApiRoutes } from './openapi-routes.ts';
import { guardOrigins } from './origins.ts';
import { handleError, installErrorHandlers, refuseConnection } from './problems.ts';
import { revocationRoutes } from './revocation-routes.ts';
import { requireRoles } from './roles.ts';
import { type Scrubbing, scrubRoutes } from './scrub-routes.ts';
import { settleRoutes } from './settle-routes.ts';
import { snapshotRoutes } from './snapshot-routes.ts';
import { statusRoutes } from './status-routes.ts';
import { stopCheckRoutes } from './stop-check-routes.ts';
import { installTracing } from './tracing.ts';
import { trashRoutes } from './trash-routes.ts';
import { webRoutes } from './web-routes.ts';

export interface AppOptions {
  readonly gateway: Gateway;
  readonly log: FastifyBaseLogger;
  readonly metrics: MetricsRegistry;
  readonly creations?: CreateWithContents;
  /** Absent: every file of REST is staged. */
  readonly wholeFiles?: WholeFiles;
  readonly named?: NamedLeases;
  readonly membership?: MembershipView;
  readonly scrubber?: Scrubbing;
  readonly check?: ReplicaCheck;
  readonly localProof?: LocalProof | null;
  readonly live?: { readonly hub: LiveHub; readonly control: string | null };
  readonly lateErrors?: Pick<LateErrorReports, 'report'>;
  readonly tls?: TlsMaterial | null;
  /** Absent: clients are not authenticated. */
  readonly tokens?: TokenStore | null;
  /** Absent: any host name is accepted, as it is with tokens. */
  readonly hosts?: HostNames;
  readonly clientRequestsPerS?: number;
  readonly clientRequestsOpen?: number;
  readonly connections?: Connections;
}

/** Inodes whose volume is kept for the check of tokens for some volumes. */
const SCOPED_INODES_MAX = 50_000;
const JSON_BYTES_MAX = 1024 * 1024;
/** Not for file contents, whose length and ranges clients rely on. Request bodies are never decompressed. */
const COMPRESSION = {
  customTypes: /^(?:application\/(?:problem\+)?json|text\/html|text\/plain)\b/,
  threshold: 1024,
  encodings: ['br', 'gzip', 'identity'] as ('br' | 'gzip' | 'identity')[],
  globalDecompression: false,
  // Ten times as fast as the best quality, and nearly as small.
  brotliOptions: { params: { [zlib.BROTLI_PARAM_QUALITY]: 4 } },
};

/** Builds the HTTP server without listening. Servers connect to each other by `upgrade` events of `app.server`. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const {
    gateway,
    log,
    metrics,
    named,
    membership,
    scrubber,
    check,
    live,
    creations,
    wholeFiles = null,
    localProof = null,
  } = options;
  const { world } = gateway;
  const connections =
    options.connections ?? new Connections({ perAddress: Infinity, all: LISTENER_LIMITS.connections });
  const app: FastifyInstance = fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: JSON_BYTES_MAX,
    serverFactory: (handler) =>
      createListener(inOriginForm(handler), options.tls ?? null, log, LISTENER_LIMITS, connections),
    // Readers of long files must not delay the end of the process.
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 1024 },
    rewriteUrl: routingUrl,
    frameworkErrors: (error, request, reply) => handleError(world, error, request, reply),
    clientErrorHandler: (error, socket) => refuseConnection(world, error, socket),
    // A part may take any time to start.
    pluginTimeout: 0,
  });
  installTracing(app, world);
  installErrorHandlers(app, world);
  closeAfterUnsent(app);
  refuseInvalidUtf8(app);
  await app.register(compress, COMPRESSION);
  requireRoles(app);
  const { tokens = null, hosts = null, clientRequestsPerS = Infinity } = options;
  guardHosts(app, tokens === null ? hosts : null);
  guardOrigins(app, gateway.services.status.urls);
  const routes = collectRoutes(app);
  countRequests(app, metrics);
  const capabilities = new Capabilities(
    () => tokens?.keys ?? [],
    () => world.wallMs(),
  );
  const volumes = new InodeVolumes(
    {
      nowMs: () => world.nowMs(),
      catalogOf: (inode) => gateway.ofInode(inode).number,
      ask: async (inode) => (await gateway.queryCatalog({ kind: 'volume-of', inode })).volume,
    },
    SCOPED_INODES_MAX,
  );
  const scope = new VolumeScope(volumes);
  refuseOverLimit(app, connections, world);
  const limits = new RateLimits(clientRequestsPerS, () => world.nowMs());
  installAuthorization(app, { world, tokens, capabilities, scope, limits, connections });
  // Upgrades bypass the hooks. With tokens only servers send them, and their certificates have proved them.
  if (tokens === null)
    app.server.on('upgrade', ({ socket }: IncomingMessage) => connections.markProven(socket));
  limitOpenRequests(app, options.clientRequestsOpen ?? Infinity);
  limitUploadsPerClient(app);
  installAudit(app, world);
  limitSlowBodies(app, world);
  // A scope costs time at each start: only routes with hooks or parsers of their own have one.
  await app.register(async (scope) => catalogRoutes(scope, gateway));
  capabilityRoutes(app, capabilities, scope);
  revocationRoutes(app, tokens);
  await app.register(async (scope) => dataRoutes(scope, gateway, metrics));
  if (localProof !== null) localRoutes(app, gateway, localProof, metrics);
  settleRoutes(app, gateway);
  const { lateErrors } = options;
  if (lateErrors !== undefined) lateErrorRoutes(app, lateErrors);
  if (creations !== undefined) await app.register(async (scope) => creationRoutes(scope, creations));
  lockRoutes(app, gateway);
  await app.register(async (scope) => fileRoutes(scope, gateway, metrics, wholeFiles));
  snapshotRoutes(app, gateway);
  trashRoutes(app, gateway);
  infoRoutes(app, gateway);
  junctionRoutes(app, gateway);
  statusRoutes(app, gateway, metrics);
  if (scrubber !== undefined) scrubRoutes(app, gateway, scrubber);
  if (check !== undefined) checkRoutes(app, gateway, check);
  membershipRoutes(app, gateway, membership ?? null);
  if (membership !== undefined) stopCheckRoutes(app, gateway);
  if (live !== undefined) {
    eventRoutes(app, live.hub, world);
    webRoutes(app, gateway.services.status.urls, live.control);
  }
  if (named !== undefined) leaseRoutes(app, named, world);
  openApiRoutes(app, routes);
  return app;
}

/** Reduces an absolute target (RFC 9112, 3.2.2) to its path, so that all later code reads it in one way. */
function inOriginForm(handler: RequestListener): RequestListener {
  return (request, response) => {
    request.url =
      request.url?.replace(/^https?:\/\/([^/?#]*)(?=\/)/i, (_, authority: string) => {
        // Its authority overrides the Host header (RFC 9112, 3.2.2).
        request.headers.host = authority;
        return '';
      }) ?? '/';
    handler(request, response);
  };
}

/**
 * Hides user paths from the router, which would decode them, cut them at `;` and refuse long ones; handlers read
 * `originalUrl`. Also removes Content-Type there, because Fastify would refuse a malformed one too early, and that of a
 * missing body, because libraries send it with every request.
 */
function routingUrl(request: IncomingMessage): string {
  const url = request.url ?? '/';
  if (!hasBody(request.headers)) delete request.headers['content-type'];
  const route = USER_PATHS.find((one) => url.startsWith(`${one}/`));
  if (route === undefined) return url;
  delete request.headers['content-type'];
  return route;
}

function countRequests(app: FastifyInstance, metrics: MetricsRegistry): void {
  const requests = metrics.counter('leasehold_http_requests_total', 'HTTP requests, by route and status', [
    'method',
    'route',
    'status',
  ]);
  const durations = metrics.durations(
    'leasehold_http_request_duration_seconds',
    'Duration of HTTP requests by route, long polls and streams included',
    ['method', 'route'],
  );
  app.addHook('onResponse', async (request, reply) => {
    const { method } = request;
    const route = request.routeOptions.url ?? 'none';
    requests.add(1, { method, route, status: String(reply.statusCode) });
    durations.observe(reply.elapsedTime / 1000, { method, route });
  });
}
