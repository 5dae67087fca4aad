import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** Answer headers that a page of the cluster may read, and request headers that it may send. */
const EXPOSED = 'etag, leasehold-primary, leasehold-epoch, leasehold-served, leasehold-age-ms, allow';
const ALLOWED_HEADERS = 'authorization, content-type, last-event-id, if-match, if-none-match';
const ALLOWED_METHODS = 'GET, HEAD, PUT, POST, DELETE';
/** How long a browser caches the permission, in seconds. */
const PREFLIGHT_S = 600;

/**
 * Lets only pages that a server of the cluster has sent use this server. The page of a server that died continues with
 * another one; other pages read nothing and change nothing, not even by requests that browsers send without a
 * preflight.
 */
export function guardOrigins(app: FastifyInstance, urls: ReadonlyMap<ServerId, string>): void {
  app.addHook('onRequest', async (request, reply) => {
    const { origin } = request.headers;
    // Programs other than browsers send none; authorization covers them.
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
      `Changes from pages of ${JSON.stringify(origin)} are refused: it is not a server of this cluster`,
    );
  });
}

/** Whether the page came from the requested host. For a form of origin `null`, browsers say so in `sec-fetch-site`. */
function isOwnOrigin(request: FastifyRequest, origin: string): boolean {
  if (request.headers['sec-fetch-site'] === 'same-origin') return true;
  return URL.canParse(origin) && new URL(origin).host === request.headers.host;
}

function isOfCluster(origin: string, urls: ReadonlyMap<ServerId, string>): boolean {
  return [...urls.values()].some((url) => originOf(url) === originOf(origin));
}

/** Returns a URL's origin, with 127.0.0.1 for `localhost`: on one machine both are the same server. */
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
