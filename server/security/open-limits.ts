import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { principalName } from './principal.ts';

/** Streams of which a server has a fixed number: one client may have half of them. By route. */
const STREAMS: ReadonlyMap<string, number> = new Map([
  ['/v1/events', 32],
  ['/v1/leases/:name/watch', 500],
  ['/v1/files', 500],
]);

/**
 * Bounds what each client has under way at a time: requests that wait, streams that somebody watches, contents that are sent. So one that
 * asks and never takes an answer leaves room for others.
 *
 * @param countMax of one token or certificate
 */
export function limitOpenRequests(app: FastifyInstance, countMax: number): void {
  const open = new Map<string, number>();
  app.addHook('onRequest', async (request, reply) => {
    const { principal } = request;
    if (principal?.kind !== 'client') return;
    const name = principalName(principal);
    take(open, name, countMax, `"${name}" has ${countMax} requests under way at this server already`, reply);
    const route = request.routeOptions.url ?? '';
    const streamsMax = isStream(route, request) ? STREAMS.get(route) : undefined;
    if (streamsMax === undefined) return;
    const words = `"${name}" has ${streamsMax} such streams open at this server already`;
    take(open, `${name} ${route}`, streamsMax, words, reply);
  });
}

/** @throws ServiceError `busy` where there are `countMax` under `key` */
function take(
  open: Map<string, number>,
  key: string,
  countMax: number,
  refusal: string,
  { raw }: FastifyReply,
): void {
  const count = open.get(key) ?? 0;
  if (count >= countMax) throw new ServiceError('busy', refusal);
  open.set(key, count + 1);
  raw.once('close', () => {
    const left = (open.get(key) ?? 0) - 1;
    if (left > 0) open.set(key, left);
    else open.delete(key);
  });
}

/** The route of files is that of contents, but for a watch. */
function isStream(route: string, { originalUrl }: FastifyRequest): boolean {
  return route !== '/v1/files' || /[?&]watch\b/.test(originalUrl);
}
