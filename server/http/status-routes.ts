import type { FastifyInstance } from 'fastify';
import { ERRORS, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import { CATALOG_MEMBERS } from '../../catalog/commands/volume-catalogs.ts';
import type { ClusterStatus, ServerStatus, Verdict } from '../../wire/http-api.ts';
import { catalogReplicasGoal } from '../process/catalog-replicas.ts';
import type { Gateway } from '../routing/gateway.ts';
import { movingOfAll } from '../status/moving-of-all.ts';
import { tooFewCatalogReplicas, tooFewVoters } from '../status/redundancy.ts';
import { volumeCatalogReasons, volumeCatalogs } from '../status/volume-catalog-status.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { OPEN, READ } from './roles.ts';
import { serverStatuses } from './server-statuses.ts';

const NOT_REGISTERED_RETRY_MS = 1000;
const DAMAGED_NAMES_MAX = 3;
const CONFLICTS_LISTED_MAX = 3;
const COUNTERS_LISTED_MAX = 3;
const PLACEMENTS_LISTED_MAX = 5;

const NOT_SERVING = {
  recovering: 'recovering',
  'clock-fault': 'clock-fault',
  'storage-failed': 'storage',
  unreachable: 'no-majority',
} as const;

/** State of the cluster and of this server, for people, orchestrators and Prometheus. */
export function statusRoutes(app: FastifyInstance, gateway: Gateway, metrics: MetricsRegistry): void {
  const { catalogs, status } = gateway.services;
  const catalog = catalogs.root;

  app.get('/v1/status/self', READ, () => status.self());

  app.get('/v1/status', READ, async (): Promise<ClusterStatus> => {
    return clusterStatusOf(await serverStatuses(gateway));
  });

  app.get('/livez', OPEN, (_request, reply) => reply.type('text/plain').send('alive\n'));

  app.get('/readyz', OPEN, async (request, reply) => {
    const checks = await readiness();
    const failed = checks.find((check) => check.failure !== null)?.failure ?? null;
    const { verbose } = request.query as Readonly<Record<string, string | undefined>>;
    if (verbose !== undefined) {
      reply.code(failed === null ? 200 : ERRORS[failed.code].status);
      return reply.type('text/plain').send(readinessText(checks));
    }
    if (failed !== null) throw failed;
    return reply.type('text/plain').send('ready\n');
  });

  /** Checks what a server needs to serve, each part after those on which it depends. */
  async function readiness(): Promise<readonly ReadinessCheck[]> {
    const self = await status.self();
    const failedIn = (state: keyof typeof NOT_SERVING): ServiceError | null =>
      self.state !== state
        ? null
        : new ServiceError(NOT_SERVING[state], reasonOf(self) ?? 'This server is not ready', {
            retryAfterMs: self.recoveringMs,
          });
    return [
      { name: 'storage', failure: failedIn('storage-failed') },
      { name: 'clock', failure: failedIn('clock-fault') },
      { name: 'leases', failure: failedIn('recovering') },
      {
        name: 'catalog',
        failure: isCatalogReachable()
          ? null
          : new ServiceError('no-majority', 'This server cannot reach a primary of the catalog'),
      },
      {
        name: 'catalog-replica',
        failure:
          self.catalogReplica === undefined
            ? null
            : new ServiceError('recovering', "This server's replica of the catalog is still being created", {
                retryAfterMs: NOT_REGISTERED_RETRY_MS,
              }),
      },
      {
        name: 'registration',
        failure:
          self.registered !== false
            ? null
            : new ServiceError('recovering', 'This server is not yet registered with the catalog', {
                retryAfterMs: NOT_REGISTERED_RETRY_MS,
              }),
      },
    ];
  }

  /** Whether the catalog can answer. A server without a replica of it may know no primary: a majority suffices then. */
  function isCatalogReachable(): boolean {
    const isHere = (server: ServerId): boolean => server === status.id || status.isConnected(server);
    const primary = gateway.root.primary;
    if (primary !== null && isHere(primary)) return true;
    const { members } = catalog.status();
    return !members.includes(status.id) && members.filter(isHere).length >= majority(members.length);
  }

  app.get('/metrics', READ, async (_request, reply) => {
    const text = await metrics.text();
    return reply.type('text/plain; version=0.0.4; charset=utf-8').send(text);
  });

  function clusterStatusOf(servers: readonly ServerStatus[]): ClusterStatus {
    const { epoch, seq, members } = catalog.status();
    const primary = gateway.root.primary;
    const underReplicated = [...new Set(servers.flatMap((server) => server.underReplicated))].sort(
      (a, b) => a - b,
    );
    const reasons = servers.map(reasonOf).filter((reason) => reason !== null);
    const voting = new Set<string>(
      servers
        .filter(({ state, catalogReplica }) => state === 'serving' && catalogReplica === undefined)
        .map(({ id }) => id),
    );
    const catalogServing = members.filter((member) => voting.has(member)).length;
    const needed = members.length === 0 ? 1 : majority(members.length);
    reasons.push(...servers.flatMap(damageOf));
    for (const server of new Set(servers.flatMap(({ catalogBehind = [] }) => catalogBehind)))
      reasons.push(`Server ${server} does not apply catalog commands: see its log, or upgrade it`);
    for (const { id } of servers.filter(({ catalogReplica }) => catalogReplica !== undefined))
      reasons.push(`The catalog replica of server ${id} is still being created`);
    for (const { id } of servers.filter(({ diskFull }) => diskFull === true)) {
      reasons.push(
        `The disk of server ${id} is full, and it stores no more contents: delete files or add space`,
      );
    }
    for (const { id, viewConflicts = [] } of servers)
      for (const { file, what } of viewConflicts.slice(0, CONFLICTS_LISTED_MAX))
        reasons.push(
          `File ${file} has conflicting member sets (found by server ${id}: ${what}): run "leasehold check"`,
        );
    for (const { id, wrongCounters = [] } of servers)
      for (const what of wrongCounters.slice(0, COUNTERS_LISTED_MAX))
        reasons.push(`A counter of the catalog is wrong (found by server ${id}: ${what}): report this`);
    for (const { placementShortages = [] } of servers)
      reasons.push(...placementShortages.slice(0, PLACEMENTS_LISTED_MAX));
    for (const { id, shortages = [] } of servers)
      reasons.push(...shortages.map((shortage) => `Server ${id} ${shortage}`));
    const inCount = servers.filter(({ membership = 'in' }) => membership === 'in').length;
    const setting = status.known.catalogReplicas;
    const redundancy = { members: members.length, inCount, setting };
    reasons.push(...tooFewCatalogReplicas(redundancy), ...tooFewVoters(inCount, servers));
    const ofVolumes = volumeCatalogs(catalogs.listed(), servers);
    reasons.push(...volumeCatalogReasons(ofVolumes, servers, Math.min(CATALOG_MEMBERS, inCount)));
    const down = catalogServing < needed;
    if (down) {
      reasons.push(
        `Only ${catalogServing} of the catalog's ${members.length} servers are available, and ${needed} ` +
          'are needed: start the missing ones',
      );
    } else if (primary === null && members.includes(status.id)) {
      reasons.push('The catalog currently has no primary');
    }
    if (underReplicated.length > 0) {
      const files = underReplicated.length === 1 ? '1 file is' : `${underReplicated.length} files are`;
      reasons.push(`${files} under-replicated`);
    }
    const lag = { files: 0, versions: 0, bytes: 0 };
    for (const server of servers) {
      lag.files += server.lag?.files ?? 0;
      lag.versions += server.lag?.versions ?? 0;
      lag.bytes += server.lag?.bytes ?? 0;
    }
    if (lag.files > 0) reasons.push('Replicas of idle files are behind, and catch up in the background');
    // Each catalog's primary reports what moves by its orders.
    const moving = movingOfAll(servers.flatMap((server) => server.moving ?? []));
    const verdict: Verdict = down ? 'down' : reasons.length > 0 ? 'degraded' : 'healthy';
    return {
      verdict,
      reasons,
      cluster: status.cluster,
      catalog: { primary, epoch, seq, members, replicasWanted: catalogReplicasGoal(setting, inCount) },
      catalogs: ofVolumes,
      timing: status.timing,
      servers,
      underReplicated,
      ...(moving === null ? {} : { moving }),
      lag,
    };
  }
}

interface ReadinessCheck {
  readonly name: string;
  readonly failure: ServiceError | null;
}

/** One line per check and the verdict, in the form of Kubernetes. */
function readinessText(checks: readonly ReadinessCheck[]): string {
  const lines = checks.map(({ name, failure }) =>
    failure === null ? `[+]${name} ok` : `[-]${name} failed: ${failure.message}`,
  );
  const ready = checks.every(({ failure }) => failure === null);
  return [...lines, ready ? 'ready' : 'not ready', ''].join('\n');
}

function reasonOf(server: ServerStatus): string | null {
  switch (server.state) {
    case 'serving':
      return null;
    case 'recovering':
      return (
        `Server ${server.id} is in its recovery wait for another ${(server.recoveringMs / 1000).toFixed(1)} ` +
        's, until all leases from before its start have ended'
      );
    case 'clock-fault':
      return (
        `Server ${server.id} takes part in no lease: its clock jumped, or differs from most others by more ` +
        'than --clock-skew; check NTP'
      );
    case 'storage-failed':
      return `Server ${server.id} has failed: ${server.failure ?? 'its disk failed'}`;
    case 'unreachable':
      return server.maintenanceUntil === undefined
        ? `Server ${server.id} does not answer`
        : `Server ${server.id} does not answer; it is in maintenance, and its replicas stay, until ${server.maintenanceUntil}`;
  }
}

function damageOf({ id, scrub }: ServerStatus): string[] {
  const objects = scrub?.unrepairable ?? [];
  if (objects.length === 0) return [];
  const names = [...new Set(objects.map(({ file, path }) => path ?? `file ${file}`))];
  const named = names.slice(0, DAMAGED_NAMES_MAX).join(', ');
  const rest = names.length > DAMAGED_NAMES_MAX ? ` and ${names.length - DAMAGED_NAMES_MAX} more` : '';
  const count = objects.length === 1 ? '1 object is' : `${objects.length} objects are`;
  return [`${count} damaged on server ${id} and could not be repaired: ${named}${rest}`];
}
