import type { FastifyInstance } from 'fastify';
import { Compile } from 'typebox/compile';
import { ServiceError } from '../../base/errors.ts';
import { CacheOwner, CacheRequest, ChangesRequest, Command, Query } from '../../wire/catalog-api.ts';
import { HEADER_PRIMARY } from '../../wire/http-api.ts';
import type { Gateway } from '../gateway.ts';
import { callOptionsOf, integerOf } from './input.ts';
import { signedCommand } from './removal.ts';
import { READ, WRITE } from './roles.ts';

/** JSON of a command or query at the most: the largest extended attribute, or a thousand settled files. */
const JSON_BYTES_MAX = 1024 * 1024;

interface Checker {
  Check(value: unknown): boolean;
  Errors(value: unknown): readonly { readonly instancePath: string; readonly message: string }[];
}

// One checker per kind, so that a refusal speaks about the command that was meant, not about all of them.
const COMMANDS: ReadonlyMap<string, Checker> = new Map(
  Command.anyOf.map((schema) => [schema.properties.kind.const, Compile(schema)]),
);
const QUERIES: ReadonlyMap<string, Checker> = new Map(
  Query.anyOf.map((schema) => [schema.properties.kind.const, Compile(schema)]),
);

const CACHE_OWNER = Compile(CacheOwner);
const CACHE_REQUEST = Compile(CacheRequest);
const CHANGES_REQUEST = Compile(ChangesRequest);

/** `POST /v1/catalog/commands`, `/queries`, `/cache` and `/flush`. */
export function catalogRoutes(app: FastifyInstance, gateway: Gateway): void {
  // Whoever knows the catalog's primary asks it next time and saves a hop.
  app.addHook('onSend', async (_request, reply) => {
    const primary = gateway.router.catalogPrimary();
    if (primary !== null) reply.header(HEADER_PRIMARY, primary);
  });

  // Whoever may read may tell what he has read; what other commands take is held against their kind.
  app.post('/v1/catalog/commands', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request) => {
    const body = objectOf(request.body, 'The body');
    assertChangesNoSnapshot(body.command);
    const command = checked<Command>(COMMANDS, body.command, 'command');
    const session = integerOf(numberText(body.session), 'session', 1);
    const number = integerOf(numberText(body.number), 'number', 1);
    const since = body.since === undefined ? {} : { since: integerOf(numberText(body.since), 'since') };
    const options = callOptionsOf(request.headers);
    const owner = body.cache === undefined ? {} : { cacheOwner: matching(CACHE_OWNER, body.cache, 'cache') };
    const live = body.live === true;
    return gateway.command(
      signedCommand(request, command),
      { session, number, ...since },
      { ...options, ...owner, live },
    );
  });

  app.post('/v1/catalog/queries', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request) => {
    const body = objectOf(request.body, 'The body');
    const query = checked<Query>(QUERIES, body.query, 'query');
    const options = callOptionsOf(request.headers);
    if (body.cache === undefined) return gateway.query(query, { ...options, exact: body.exact === true });
    const session = integerOf(numberText(body.cache), 'cache', 1);
    return gateway.queryRemembered(query, session, options, body.delegate === true);
  });

  app.post('/v1/catalog/cache', { ...READ, bodyLimit: JSON_BYTES_MAX }, async (request) => {
    const poll = matching(CACHE_REQUEST, request.body, 'body');
    return gateway.cache(poll, callOptionsOf(request.headers));
  });

  app.post('/v1/catalog/changes', READ, async (request) => {
    const wanted = matching(CHANGES_REQUEST, request.body, 'body');
    return gateway.changes(wanted, callOptionsOf(request.headers));
  });

  app.post('/v1/catalog/flush', WRITE, async (request, reply) => {
    await gateway.flushCatalog(callOptionsOf(request.headers));
    return reply.code(204).send();
  });
}

/** @throws ServiceError `read-only` */
function assertChangesNoSnapshot(command: unknown): void {
  const { place, from, to } = (command ?? {}) as Record<string, unknown>;
  for (const one of [command, place, from, to]) {
    const { volume } = (one ?? {}) as { readonly volume?: unknown };
    if (typeof volume === 'string' && volume.includes('@'))
      throw new ServiceError('read-only', `Cannot change anything in ${volume}: a snapshot stays as it is`);
  }
}

function checked<Value>(checkers: ReadonlyMap<string, Checker>, value: unknown, name: string): Value {
  const { kind } = objectOf(value, `"${name}"`);
  const checker = typeof kind === 'string' ? checkers.get(kind) : undefined;
  if (checker === undefined) {
    throw new ServiceError('bad-request', `"${name}" is of the unknown kind ${JSON.stringify(kind)}`);
  }
  if (!checker.Check(value)) {
    const [first] = checker.Errors(value);
    const where = first === undefined ? '' : ` at ${first.instancePath || '/'}: ${first.message}`;
    throw new ServiceError('bad-request', `The ${name} "${kind}" is malformed${where}`);
  }
  // The schema of this kind has just accepted it.
  return value as Value;
}

function matching<Value>(
  checker: { Check(value: unknown): value is Value; Errors: Checker['Errors'] },
  value: unknown,
  name: string,
): Value {
  if (checker.Check(value)) return value;
  const [first] = checker.Errors(value);
  const where = first === undefined ? '' : ` at ${first.instancePath || '/'}: ${first.message}`;
  throw new ServiceError('bad-request', `The ${name} is malformed${where}`);
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
