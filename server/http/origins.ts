import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** What a page of the cluster may read of an answer, and send in a request. */
const EXPOSED = 'etag, leasehold-primary, leasehold-epoch, leasehold-served, leasehold-age-ms, allow';
const ALLOWED_HEADERS = 'authorization, content-type, last-event-id, if-match, if-none-match';
const ALLOWED_METHODS = 'GET, HEAD, PUT, POST, DELETE';
/** How long a browser remembers that it may, in seconds. */
const PREFLIGHT_S = 600;

/**
 * Which pages a browser may let talk to this server: those that this server or another one of the cluster has sent. The
 * page of a server that died goes on with another one; pages from anywhere else read nothing, and change nothing, not
 * even by requests that browsers send without asking.
 */
export function guardOrigins(app: FastifyInstance, urls: ReadonlyMap<ServerId, string>): void {
  app.addHook('onRequest', async (request, reply) => {
    const { origin } = request.headers;
    // Programs that are no browsers send none, and are asked for their rights elsewhere.
    if (origin === undefined) return;
    reply.header('vary', 'Origin');
    const isOwn = isOwnOrigin(request, origin);
    if (isOwn || isOfCluster(origin, urls)) {
      if (!isOwn) allow(reply, origin);
      if (request.method === 'OPTIONS') return answerPreflight(reply);
      return;
    }
    if (SAFE_METHODS.has(request.method)) return;
    throw new ServiceError(
      'bad-request',
      `A page from ${JSON.stringify(origin)} may not change anything here: it is no server of this cluster`,
    );
  });
}

/**
 * A browser sends the same host in both headers where a page talks to the server that it came from. A form of a page that
 * tells nobody where it was has the origin `null`; then the browser itself says whether both are the same.
 */
function isOwnOrigin(request: FastifyRequest, origin: string): boolean {
  if (request.headers['sec-fetch-site'] === 'same-origin') return true;
  return URL.canParse(origin) && new URL(origin).host === request.headers.host;
}

function isOfCluster(origin: string, urls: ReadonlyMap<ServerId, string>): boolean {
  return [...urls.values()].some((url) => originOf(url) === originOf(origin));
}

/** On one machine a page may know its server by either name. */
function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin.replace('//localhost', '//127.0.0.1') : url;
}

function allow(reply: FastifyReply, origin: string): void {
  reply.header('access-control-allow-origin', origin);
  reply.header('access-control-expose-headers', EXPOSED);
}

function answerPreflight(reply: FastifyReply): FastifyReply {
  reply.header('access-control-allow-methods', ALLOWED_METHODS);
  reply.header('access-control-allow-headers', ALLOWED_HEADERS);
  reply.header('access-control-max-age', String(PREFLIGHT_S));
  return reply.code(204).send();
}
