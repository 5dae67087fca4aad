import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { addressKey } from './client-address.ts';
import { principalName } from './principal.ts';
import { hasBody } from './slow-bodies.ts';

/** Routes of long-lived answers, with the number that one client may have: half of what a server has. */
const STREAMS: ReadonlyMap<string, number> = new Map([
  ['/v1/events', 32],
  ['/v1/leases/:name/watch', 500],
  ['/v1/files', 500],
]);

/** Routes whose bodies are contents of files. */
const CONTENTS = /^\/v1\/(?:files|uploads\/)/;

/** Uploads and writes at a time from all clients; each takes memory or a slot. */
const UPLOADS_MAX = 64;
const WRITES_MAX = 128;

/** Bounds the open requests of one token or certificate, and its streams by route; one more fails with `busy`. */
export function limitOpenRequests(app: FastifyInstance, countMax: number): void {
  const open = new Map<string, number>();
  app.addHook('onRequest', async (request, reply) => {
    const { principal } = request;
    if (principal?.kind !== 'client') return;
    const name = principalName(principal);
    countOpen(
      open,
      name,
      countMax,
      `"${name}" has ${countMax} open requests at this server, the maximum: wait for one to end`,
      reply,
    );
    const route = request.routeOptions.url ?? '';
    const streamsMax = isStream(route, request) ? STREAMS.get(route) : undefined;
    if (streamsMax === undefined) return;
    const refusal = `"${name}" has ${streamsMax} open streams of this kind at this server, the maximum: close one`;
    countOpen(open, `${name} ${route}`, streamsMax, refusal, reply);
  });
}

/** Counts one more of `key` until the answer ends. @throws ServiceError `busy`, `refusal`, if there are `countMax` */
function countOpen(
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
    const remaining = (open.get(key) ?? 0) - 1;
    if (remaining > 0) open.set(key, remaining);
    else open.delete(key);
  });
}

/** `/v1/files` is a stream only as a watch. */
function isStream(route: string, { originalUrl }: FastifyRequest): boolean {
  return route !== '/v1/files' || /[?&]watch\b/.test(originalUrl);
}

/** Limits concurrent bodies of contents: a client, by token or address, may send as many as there are free slots. */
export function limitUploadsPerClient(
  app: FastifyInstance,
  isContents: (route: string) => boolean = (route) => CONTENTS.test(route),
): void {
  const uploads = { max: UPLOADS_MAX, all: 0, byClient: new Map<string, number>() };
  const writes = { max: WRITES_MAX, all: 0, byClient: new Map<string, number>() };
  app.addHook('onRequest', async ({ principal, raw, headers, routeOptions: { url = '' }, method }, reply) => {
    if (!isContents(url) || !hasBody(headers) || principal?.kind === 'server') return;
    const isWrite = url === '/v1/files' && (method === 'PATCH' || headers['content-range'] !== undefined);
    const slots = isWrite ? writes : uploads;
    const isNamed = principal?.kind === 'client';
    const client = isNamed ? principalName(principal) : addressKey(raw.socket.remoteAddress ?? '');
    const count = slots.byClient.get(client) ?? 0;
    if (count >= slots.max - slots.all) {
      const what = isWrite ? 'writes' : 'uploads';
      throw new ServiceError(
        'busy',
        `Too many concurrent ${what}: "${client}" has ${count}, and ` +
          `${slots.all} of ${slots.max} are in use; retry later`,
      );
    }
    slots.all++;
    slots.byClient.set(client, count + 1);
    reply.raw.once('close', () => {
      slots.all--;
      const remaining = (slots.byClient.get(client) ?? 0) - 1;
      if (remaining > 0) slots.byClient.set(client, remaining);
      else slots.byClient.delete(client);
    });
  });
}
