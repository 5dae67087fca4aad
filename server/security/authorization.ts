import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { type Grant, type Role, roleIncludes } from '../../wire/access.ts';
import { HEADER_CAPABILITY } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import type { NewFilesAnswer } from '../../wire/new-files.ts';
import { decodeNewFilesBody } from '../requests/new-files-body.ts';
import { parseFilePath, parseTarget, USER_PATHS, volumeOf } from '../requests/path.ts';
import type { Capabilities } from './capabilities.ts';
import { commandRole, commandTargets, queryTargets } from './catalog-rules.ts';
import type { Connections } from './connections.ts';
import { endRefusedRequests } from './open-requests.ts';
import { type Principal, principalOf } from './principal.ts';
import type { RateLimits } from './rate-limits.ts';
import type { TokenStore } from './token-file.ts';
import type { VolumeScope } from './volume-scope.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Null before authentication, and on an open route for a client without valid credentials. */
    principal: Principal | null;
  }
}

export interface AuthorizationParts {
  readonly world: World;
  /** Null if the server has no tokens: it authenticates no client then. */
  readonly tokens: TokenStore | null;
  readonly capabilities: Capabilities;
  readonly scope: VolumeScope;
  readonly limits: RateLimits;
  readonly connections: Connections;
}

/** Query parameters of such a URL that name another path. */
const TARGETS = ['move-to', 'copy-to'] as const;
const VOLUME_ROUTES = ['/v1/uploads/:volume', '/v1/trash/:volume', '/v1/snapshots/:volume'];
const COMMANDS = '/v1/catalog/commands';
const QUERIES = '/v1/catalog/queries';
const STATUS = '/v1/status';
const SETTLE = '/v1/data/settle';
const NEW_FILES = '/v1/births';
const COPY = '/v1/data/:file/copy';
const CAPABILITIES = '/v1/catalog/capabilities';
/** Routes about no volume, which clients of every volume need. */
const ROUTES_OF_ALL: ReadonlySet<string> = new Set([
  '/v1/local',
  STATUS,
  '/v1/status/self',
  '/v1/servers',
  '/v1/certificates/revoked',
  '/v1/catalog/cache',
  '/v1/catalog/flush',
  '/v1/births/numbers',
  '/v1/uploads',
]);

/**
 * Installs all authorization of the HTTP server. The route defines the role, URL or body name volumes and inodes, and a
 * capability gives access to a file's contents. Any other route is refused if the grant names volumes.
 */
export function installAuthorization(app: FastifyInstance, parts: AuthorizationParts): void {
  const { world, tokens, limits, connections } = parts;
  app.decorateRequest('principal', null);
  app.addHook('onRequest', async (request) => {
    const principal = principalOf(request, tokens, world.wallMs());
    request.principal = principal;
    if (principal !== null) connections.markProven(request.raw.socket);
    const role = request.routeOptions.config.role ?? 'read';
    // Probes have no credentials, and the orchestrator restarts a server that does not answer them.
    if (role === 'open') return;
    limits.take(principal, request.raw.socket.remoteAddress ?? '');
    if (isTrusted(principal)) return;
    if (principal === null) throw unauthorized(request);
    checkRole(principal.grant, role);
    await checkUrl(request, principal.grant, role === 'read' ? 'read' : 'write', parts);
  });
  // Without tokens every client may do everything.
  if (tokens === null) return;
  endRefusedRequests(app, tokens);
  app.addHook('preHandler', async (request) => {
    const { principal } = request;
    if (request.routeOptions.config.role === 'open' || isTrusted(principal) || principal === null) return;
    await checkBody(request, principal.grant, parts);
  });
  app.addHook('preSerialization', async (request, _reply, payload) =>
    request.principal?.kind === 'client'
      ? restrictAnswer(request, payload, request.principal.grant, parts.capabilities)
      : payload,
  );
}

export function addTokenChallenge(reply: FastifyReply): void {
  reply.header('www-authenticate', 'Bearer realm="leasehold"');
}

function isTrusted(principal: Principal | null): principal is Exclude<Principal, { kind: 'client' }> {
  return principal !== null && principal.kind !== 'client';
}

function unauthorized({ headers }: FastifyRequest): ServiceError {
  const why =
    headers.authorization === undefined
      ? 'Authentication required: send Authorization: Bearer TOKEN'
      : 'The token is unknown, revoked or expired: use another one';
  return new ServiceError('unauthorized', why);
}

function checkRole({ name, role }: Grant, wanted: Role): void {
  if (roleIncludes(role, wanted)) return;
  throw new ServiceError(
    'forbidden',
    `"${name}" has the role ${role}; this request needs the role ${wanted}`,
  );
}

async function checkUrl(
  request: FastifyRequest,
  grant: Grant,
  mode: 'read' | 'write',
  { capabilities, scope }: AuthorizationParts,
): Promise<void> {
  const route = request.routeOptions.url ?? '';
  if (USER_PATHS.includes(route)) {
    if (grant.volumes === null) return;
    const prefix = `${route}/`;
    // A URL that is no path here must not be parsed as one by a later handler.
    if (!request.originalUrl.startsWith(prefix)) return scope.check(grant, { volumes: [], inodes: [] });
    for (const volume of volumesNamed(request.originalUrl, prefix)) scope.checkVolume(grant, volume);
    return;
  }
  if (route.startsWith('/v1/data/:file') && route !== '/v1/data/:file/members') {
    const { file } = request.params as { readonly file?: unknown };
    checkCapability(capabilities, request, grant, Number(file), mode);
    return;
  }
  if (VOLUME_ROUTES.some((begin) => route.startsWith(begin))) {
    scope.checkVolume(grant, String((request.params as { readonly volume?: unknown }).volume));
    return;
  }
  const isCheckedLater = [COMMANDS, QUERIES, SETTLE, NEW_FILES, CAPABILITIES].includes(route);
  if (!isCheckedLater && !ROUTES_OF_ALL.has(route)) await scope.check(grant, { volumes: [], inodes: [] });
}

function volumesNamed(url: string, prefix: string): string[] {
  const path = parseFilePath(url, prefix);
  const targets = TARGETS.flatMap((name) => {
    const text = path.search.get(name);
    return text === null ? [] : [parseTarget(text, path, name).volume];
  });
  return [volumeOf(path), ...targets];
}

async function checkBody(request: FastifyRequest, grant: Grant, parts: AuthorizationParts): Promise<void> {
  const { body } = request;
  switch (request.routeOptions.url) {
    case COMMANDS: {
      const role = commandRole(body) ?? 'write';
      if (role === 'server')
        throw new ServiceError('forbidden', 'Only servers of the cluster may send this command');
      checkRole(grant, role);
      await parts.scope.check(grant, commandTargets(body));
      return;
    }
    case QUERIES: {
      if (grant.volumes === null) return;
      const targets = queryTargets(body);
      if (targets !== null) await parts.scope.check(grant, targets);
      return;
    }
    case SETTLE: {
      const { files } = (body ?? {}) as { readonly files?: unknown };
      const inodes = Array.isArray(files) ? files.filter((file) => typeof file === 'number') : [];
      await parts.scope.check(grant, { volumes: [], inodes });
      return;
    }
    case NEW_FILES: {
      if (grant.volumes === null) return;
      // An existing file is checked by its own inode too: its volume may differ from that of the directory in the
      // request.
      const inodes = decodeNewFilesBody(body).newFiles.flatMap(({ parent, inode, hasEntry }) =>
        hasEntry === true ? [parent, inode] : [parent],
      );
      await parts.scope.check(grant, { volumes: [], inodes });
      return;
    }
    case COPY: {
      const from = parseJsonObject(Buffer.isBuffer(body) ? body.toString() : '')?.from;
      checkCapability(parts.capabilities, request, grant, Number(from), 'read');
    }
  }
}

/** @throws ServiceError `forbidden` unless a capability of the request covers the file */
function checkCapability(
  capabilities: Capabilities,
  request: FastifyRequest,
  grant: Grant,
  file: number,
  mode: 'read' | 'write',
): void {
  const header = request.headers[HEADER_CAPABILITY];
  const texts = typeof header === 'string' ? header.split(',') : [];
  const isGood = texts.some((text) => {
    const capability = capabilities.verify(text.trim());
    return (
      capability !== null &&
      capability.file === file &&
      capability.to === grant.name &&
      (mode === 'read' || capability.mode === 'write') &&
      (grant.volumes === null || grant.volumes.includes(capability.volume))
    );
  });
  if (isGood) return;
  throw new ServiceError(
    'forbidden',
    `A capability to ${mode} file ${file} is needed in "${HEADER_CAPABILITY}": POST ${CAPABILITIES} gives one`,
  );
}

/** Removes volumes that the grant does not cover from a catalog answer; adds a capability for each file in it. */
function restrictAnswer(
  request: FastifyRequest,
  payload: unknown,
  grant: Grant,
  capabilities: Capabilities,
): unknown {
  const route = request.routeOptions.url;
  if (route === NEW_FILES) {
    const { outcomes } = payload as NewFilesAnswer;
    return { outcomes: outcomes.map((outcome) => withCapability(outcome, grant, capabilities)) };
  }
  if (route === STATUS) return withShownVolumes(payload as object, grant);
  if ((route !== COMMANDS && route !== QUERIES) || typeof payload !== 'object' || payload === null)
    return payload;
  const { result } = payload as Readonly<Record<string, unknown>>;
  if (typeof result === 'object' && result !== null) {
    return { ...payload, result: restrictAnswer(request, result, grant, capabilities) };
  }
  return withCapability(withShownVolumes(payload, grant), grant, capabilities);
}

/** The fields of answers that list volumes, or names of volumes. */
const LISTS_OF_VOLUMES = ['volumes', 'unavailable', 'catalogs'];

function withShownVolumes(answer: object, { volumes: shown }: Grant): object {
  if (shown === null) return answer;
  const isShown = (one: string | { readonly name: string }): boolean =>
    shown.includes(typeof one === 'string' ? one : one.name);
  const lists = Object.entries(answer).filter(
    ([key, value]) => LISTS_OF_VOLUMES.includes(key) && Array.isArray(value),
  );
  const filtered = lists.map(([key, list]) => [key, list.filter(isShown)]);
  return filtered.length === 0 ? answer : { ...answer, ...Object.fromEntries(filtered) };
}

function withCapability<Answer extends object>(
  answer: Answer,
  grant: Grant,
  capabilities: Capabilities,
): Answer {
  const { attributes } = answer as { readonly attributes?: unknown };
  const { inode, volume, kind } = (attributes ?? {}) as Readonly<Record<string, unknown>>;
  if (kind !== 'file' || typeof inode !== 'number' || typeof volume !== 'string') return answer;
  // Requests for the same thing may share an answer: it is not changed in place.
  const capability = capabilities.issue({ file: inode, volume, mode: modeOf(grant), to: grant.name });
  return { ...answer, attributes: { ...(attributes as object), capability } };
}

export function modeOf({ role }: Grant): 'read' | 'write' {
  return roleIncludes(role, 'write') ? 'write' : 'read';
}
