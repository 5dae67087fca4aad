import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import {
  CacheOwner,
  CacheRequest,
  ChangesRequest,
  Command,
  FlushRequest,
  Query,
} from '../../wire/catalog-api.ts';
import { HEADER_CATALOG_EPOCH, HEADER_CATALOG_SEQ, HEADER_PRIMARY } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { callOptionsOf, integerOf } from './input.ts';
import { type Matching, matching } from './matching.ts';
import { commandWithRemover } from './removal.ts';
import { READ, WRITE } from './roles.ts';

/** Largest JSON of a command or query: the largest extended attribute, or a thousand settled files. */
const JSON_BYTES_MAX = 1024 * 1024;

// By kind, so that an error is about the given command, not about all of them.
const COMMANDS: ReadonlyMap<string, Matching<Command>> = new Map(
  Command.anyOf.map((schema) => [schema.properties.kind.const, matching(schema)]),
);
const QUERIES: ReadonlyMap<string, Matching<Query>> = new Map(
  Query.anyOf.map((schema) => [schema.properties.kind.const, matching(schema)]),
);

const cacheOwner = matching(CacheOwner);
const cacheRequest = matching(CacheRequest);
const changesRequest = matching(ChangesRequest);
const flushRequest = matching(FlushRequest);

/** `POST /v1/catalog/commands`, `/queries`, `/cache`, `/changes` and `/flush`. */
export function catalogRoutes(app: FastifyInstance, gateway: Gateway): void {
  // A client that knows the catalog's primary sends its next request there.
  app.addHook('onSend', async (_request, reply) => {
    const primary = reply.hasHeader(HEADER_PRIMARY) ? null : gateway.router.catalogPrimary();
    if (primary !== null) reply.header(HEADER_PRIMARY, primary);
    const { catalogSeq: seq, catalogEpoch: epoch } = gateway;
    if (seq !== null) reply.header(HEADER_CATALOG_SEQ, String(seq));
    if (epoch > 0) reply.header(HEADER_CATALOG_EPOCH, String(epoch));
  });

  // A reader may report access times; authorization checks the role that other commands need.
  app.post('/v1/catalog/commands', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request) => {
    const body = objectOf(request.body, 'The body');
    assertChangesNoSnapshot(body.command);
    const command = matchKind(COMMANDS, body.command, 'command');
    const session = integerOf(numberText(body.session), 'session', 1);
    const number = integerOf(numberText(body.number), 'number', 1);
    const since = body.since === undefined ? {} : { since: integerOf(numberText(body.since), 'since') };
    const options = callOptionsOf(request.headers);
    const owner = body.cache === undefined ? {} : { cacheOwner: cacheOwner(body.cache, 'cache') };
    const live = body.live === true;
    return gateway.command(
      commandWithRemover(request, command),
      { session, number, ...since },
      { ...options, ...owner, live },
    );
  });

  app.post('/v1/catalog/queries', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request, reply) => {
    const body = objectOf(request.body, 'The body');
    const query = matchKind(QUERIES, body.query, 'query');
    const options = callOptionsOf(request.headers);
    if (body.cache === undefined) {
      const exact = body.exact === true;
      const answer = await gateway.query(query, { ...options, exact });
      // Empty: the client chooses by itself, and not the primary, which cannot answer all clients.
      if (!exact) reply.header(HEADER_PRIMARY, gateway.catalogReader ?? '');
      return answer;
    }
    const session = integerOf(numberText(body.cache), 'cache', 1);
    return gateway.queryWithGrants(query, session, options, body.delegate === true);
  });

  app.post('/v1/catalog/cache', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request) => {
    const poll = cacheRequest(request.body, 'body');
    return gateway.cache(poll, callOptionsOf(request.headers));
  });

  app.post('/v1/catalog/changes', READ, async (request) => {
    const wanted = changesRequest(request.body, 'body');
    return gateway.changes(wanted, callOptionsOf(request.headers));
  });

  app.post('/v1/catalog/flush', WRITE, async (request, reply) => {
    const { answered = [] } = request.body === undefined ? {} : flushRequest(request.body, 'body');
    const flushed = await gateway.flushCommands(answered, callOptionsOf(request.headers));
    return answered.length === 0 ? reply.code(204).send() : flushed;
  });
}

function assertChangesNoSnapshot(command: unknown): void {
  const { place, from, to } = (command ?? {}) as Record<string, unknown>;
  for (const one of [command, place, from, to]) {
    const { volume } = (one ?? {}) as { readonly volume?: unknown };
    if (typeof volume === 'string' && volume.includes('@'))
      throw new ServiceError('read-only', `Cannot change ${volume}: snapshots are read-only`);
  }
}

function matchKind<Value>(kinds: ReadonlyMap<string, Matching<Value>>, value: unknown, name: string): Value {
  const { kind } = objectOf(value, `"${name}"`);
  const matched = typeof kind === 'string' ? kinds.get(kind) : undefined;
  if (matched === undefined) {
    throw new ServiceError('bad-request', `"${name}" is of the unknown kind ${JSON.stringify(kind)}`);
  }
  return matched(value, `${name} "${kind}"`);
}

function objectOf(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ServiceError('bad-request', `${what} is not a JSON object`);
  }
  return value as Record<string, unknown>;
}

function numberText(value: unknown): string {
  return typeof value === 'number' ? String(value) : '';
}
