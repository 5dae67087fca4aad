import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { HEADER_FORWARDED } from '../../wire/http-api.ts';
import { HEADER_CHANGE, HEADER_SESSION, HEADER_TOKEN } from '../../wire/lease-headers.ts';
import {
  AcquireBody,
  type GrantedLease,
  KeyBody,
  type LeaseEvent,
  type LeaseList,
  type LeaseQueryAnswer,
  RefreshBody,
} from '../../wire/named-lease-api.ts';
import { STREAM_COMMENT, streamEventText } from '../../wire/sse.ts';
import { LIST_COUNT_MAX } from '../named/lease-directory.ts';
import { assertName } from '../named/named-lease-service.ts';
import { HEARTBEAT_MS, type NamedLeases } from '../named/named-leases.ts';
import { bodyReader } from './body.ts';
import { integerOf } from './input.ts';
import { READ, WRITE } from './roles.ts';

type Parameters = Readonly<Record<string, unknown>>;

const acquireBody = bodyReader(AcquireBody);
const refreshBody = bodyReader(RefreshBody);
const keyBody = bodyReader(KeyBody);

/** `/v1/leases`: named leases. A name is one path segment, with its slashes written %2F. */
export function leaseRoutes(app: FastifyInstance, named: NamedLeases, world: World): void {
  const { service, directory, watches } = named;
  app.get('/v1/leases', READ, async (request): Promise<LeaseList> => {
    const { prefix = '', limit } = request.query as Parameters;
    if (typeof prefix !== 'string') throw new ServiceError('bad-request', '"prefix" must be given once');
    const count = limit === undefined ? LIST_COUNT_MAX : integerOf(limit, 'limit', 1, LIST_COUNT_MAX);
    return directory.list(prefix, count);
  });

  app.post('/v1/leases/:name', WRITE, async (request, reply) => {
    const { owner, ttlMs, keys } = acquireBody(request);
    const session = sessionOf(request) ?? named.drawSession();
    const lease = await service.acquire(nameOf(request), session, owner, ttlMs, keys ?? {});
    return granted(reply.code(201), lease);
  });

  app.patch('/v1/leases/:name', WRITE, async (request, reply) => {
    const { ttlMs, keys } = refreshBody(request);
    const session = ownSession(request);
    const change = changeOf(request);
    return granted(
      reply,
      await service.refresh(nameOf(request), session, ttlMs ?? null, keys ?? null, change),
    );
  });

  app.delete('/v1/leases/:name', WRITE, async (request, reply) => {
    await service.release(nameOf(request), ownSession(request));
    return reply.code(204).send();
  });

  app.get('/v1/leases/:name', READ, async (request, reply): Promise<LeaseQueryAnswer> => {
    const found = await queryWith(nameOf(request), (request.query as Parameters).consistency);
    reply.header(HEADER_TOKEN, String(found.token));
    return found;
  });

  app.get('/v1/leases/:name/keys/:key', READ, async (request, reply) => {
    const found = await service.readKey(nameOf(request), keyOf(request));
    reply.header(HEADER_TOKEN, String(found.token));
    return found;
  });

  app.put('/v1/leases/:name/keys/:key', WRITE, async (request, reply) => {
    const { value } = keyBody(request);
    return granted(
      reply,
      await service.writeKey(nameOf(request), ownSession(request), keyOf(request), value, changeOf(request)),
    );
  });

  app.delete('/v1/leases/:name/keys/:key', WRITE, async (request, reply) => {
    const change = changeOf(request);
    const session = ownSession(request);
    return granted(reply, await service.writeKey(nameOf(request), session, keyOf(request), null, change));
  });

  // A HEAD of a stream without an end would keep its connection for nothing.
  app.get('/v1/leases/:name/watch', { ...READ, exposeHeadRoute: false }, (request, reply) => {
    const name = nameOf(request);
    assertName(name);
    watch(name, request, reply);
  });

  async function queryWith(name: string, consistency: unknown): Promise<LeaseQueryAnswer> {
    if (consistency === undefined || consistency === 'majority') return service.query(name);
    if (consistency !== 'stale')
      throw new ServiceError('bad-request', '"consistency" must be "majority" or "stale"');
    // A server that is no voter has no local answer, and asks a majority.
    return service.queryLocal(name) ?? service.query(name);
  }

  /** Sends server-sent events until the client disconnects or the watch ends. */
  function watch(name: string, request: FastifyRequest, reply: FastifyReply): void {
    const { raw } = reply;
    const write = ({ kind, ...event }: LeaseEvent) => raw.write(streamEventText(kind, JSON.stringify(event)));
    const queued: LeaseEvent[] = [];
    let isHeadSent = false;
    let isEnded = false;
    // Sends the head after the watch was admitted, so that a refusal is a problem document.
    const gate = {
      write: (event: LeaseEvent) => (isHeadSent ? write(event) : queued.push(event) > 0),
      end: () => {
        isEnded = true;
        if (isHeadSent) raw.end();
      },
    };
    const opened = watches.watch(name, gate, request.headers[HEADER_FORWARDED] !== undefined);
    reply.hijack();
    raw.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    raw.write(STREAM_COMMENT);
    isHeadSent = true;
    for (const event of queued) write(event);
    const heartbeat = world.every(HEARTBEAT_MS, () => {
      // A client that does not read gets nothing, and its connection ends by itself.
      if (!raw.writableNeedDrain) raw.write(STREAM_COMMENT);
    });
    raw.on('drain', () => opened.resume());
    raw.on('error', () => raw.destroy());
    raw.on('close', () => {
      heartbeat.cancel();
      opened.close();
    });
    if (isEnded) raw.end();
  }
}

function granted(reply: FastifyReply, lease: GrantedLease): FastifyReply {
  return reply.header(HEADER_TOKEN, String(lease.token)).send(lease);
}

function nameOf(request: FastifyRequest): string {
  return String((request.params as Parameters).name);
}

function keyOf(request: FastifyRequest): string {
  return String((request.params as Parameters).key);
}

function sessionOf(request: FastifyRequest): number | null {
  const text = request.headers[HEADER_SESSION];
  return text === undefined ? null : integerOf(text, 'Leasehold-Session', 1);
}

/** Number of a change of keys; null if it has none. */
function changeOf(request: FastifyRequest): number | null {
  const text = request.headers[HEADER_CHANGE];
  return text === undefined ? null : integerOf(text, 'Leasehold-Change', 1);
}

function ownSession(request: FastifyRequest): number {
  const session = sessionOf(request);
  if (session !== null) return session;
  throw new ServiceError(
    'bad-request',
    'The header Leasehold-Session is missing: send the session with which the lease was acquired',
  );
}
