import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import {
  CacheOwner,
  CacheRequest,
  ChangesRequest,
  Command,
  FlushRequest,
  Query,
} from '../../wire/catalog-api.ts';
import {
  HEADER_CATALOG,
  HEADER_CATALOG_EPOCH,
  HEADER_CATALOG_SEQ,
  HEADER_PRIMARY,
} from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { commandInNamedCatalog } from '../routing/named-catalog.ts';
import { callOptionsOf, catalogOf, integerOf } from './input.ts';
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
  app.addHook('onSend', async ({ headers }, reply) => {
    const answering = Number(reply.getHeader(HEADER_CATALOG) ?? namedCatalog(headers)) as CatalogNumber;
    const { number, primary, seq, epoch } = gateway.catalog(answering);
    if (primary !== null && !reply.hasHeader(HEADER_PRIMARY)) reply.header(HEADER_PRIMARY, primary);
    if (number !== ROOT_CATALOG) reply.header(HEADER_CATALOG, String(number));
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
    return commandInNamedCatalog(
      gateway,
      commandWithRemover(request, command),
      { session, number, ...since },
      { ...options, ...owner, live },
    );
  });

  app.post('/v1/catalog/queries', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request, reply) => {
    const body = objectOf(request.body, 'The body');
    const query = matchKind(QUERIES, body.query, 'query');
    const options = callOptionsOf(request.headers);
    const { catalog: named } = options;
    // A client learns by the header that the volume has moved.
    const showCatalog = (): void => {
      const { number } = gateway.ofQuery(query, options);
      if (number !== ROOT_CATALOG) reply.header(HEADER_CATALOG, String(number));
    };
    if (body.cache === undefined) {
      const exact = body.exact === true;
      const answer = await gateway.query(query, { ...options, exact });
      if (named !== undefined) showCatalog();
      // Empty: the client chooses by itself, and not the primary, which cannot answer all clients.
      if (!exact) reply.header(HEADER_PRIMARY, gateway.catalog(options.catalog ?? ROOT_CATALOG).reader ?? '');
      return answer;
    }
    const session = integerOf(numberText(body.cache), 'cache', 1);
    const granted = await gateway.queryWithGrants(query, session, options, body.delegate === true);
    if (named !== undefined) showCatalog();
    return granted;
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
    const options = callOptionsOf(request.headers);
    if (request.body === undefined) {
      await gateway.flushCommands([], options);
      return reply.code(204).send();
    }
    const { answered } = flushRequest(request.body, 'body');
    // A client has commands in the catalog that it names; one of an earlier release, which names none, in the root's.
    const flushed = await gateway.flushCommands(answered, { catalog: ROOT_CATALOG, ...options });
    return answered.length === 0 ? reply.code(204).send() : flushed;
  });
}

/** The catalog of which an answer's headers tell: that which the request names. */
function namedCatalog(headers: IncomingHttpHeaders): CatalogNumber {
  try {
    return catalogOf(headers) ?? ROOT_CATALOG;
  } catch (error) {
    // The answer is the refusal.
    if (error instanceof ServiceError) return ROOT_CATALOG;
    throw error;
  }
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
