import { ERRORS, type ErrorCode } from '../../../base/errors.ts';
import { type Schema, Type } from '../../../wire/schema.ts';
import { USER_PATHS } from '../../requests/path.ts';
import type { RouteRole } from '../roles.ts';
import { FILE_OPERATIONS } from './file-operations.ts';
import { LEASE_OPERATIONS, LEASES_TAG } from './lease-operations.ts';
import type { AnswerText, Media, Operation, Operations } from './operation.ts';
import { OTHER_OPERATIONS } from './other-operations.ts';

export interface KnownRoute {
  readonly method: string;
  readonly url: string;
  readonly role: RouteRole;
}

export const OPERATIONS: Operations = {
  ...FILE_OPERATIONS,
  ...LEASE_OPERATIONS,
  ...OTHER_OPERATIONS,
};

const PARAMETERS: Readonly<Record<string, Schema>> = {
  volume: Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' }),
  path: Type.String({
    description: 'Path in the volume; each name percent-encoded, separated by slashes',
  }),
  file: Type.Integer({ minimum: 1, description: 'The number of a file' }),
};

const Problem = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String(),
  code: Type.Union(Object.keys(ERRORS).map((code) => Type.Literal(code))),
  unreachable: Type.Optional(Type.Array(Type.String())),
  primary: Type.Optional(Type.String()),
  holder: Type.Optional(
    Type.Object({ owner: Type.String(), token: Type.Integer(), remainingMs: Type.Number() }),
  ),
  outdated: Type.Optional(Type.Array(Type.String())),
  elsewhere: Type.Optional(Type.Literal(true)),
  movedTo: Type.Optional(Type.Integer({ minimum: 0 })),
  junction: Type.Optional(
    Type.Object({
      volume: Type.String(),
      catalog: Type.Integer(),
      inode: Type.Integer(),
      path: Type.String(),
    }),
  ),
});

const PROBLEM = {
  description: 'Error: what happened, why, and what to do (RFC 9457)',
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
};

const RETRY_AFTER = Type.Integer({ minimum: 1, description: 'Seconds until the next attempt' });

/** Summary of a route under `/v1/` without a description; a test demands that there is none. */
export const UNDESCRIBED = 'Not described';

/** Returns the document for this server's routes, without HEAD. */
export function openApiDocument(routes: readonly KnownRoute[], version: string): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const operation = OPERATIONS[`${route.method} ${route.url}`] ?? undescribed(route);
    if (operation === null) continue;
    const path = pathOf(route.url);
    paths[path] = {
      ...paths[path],
      [route.method.toLowerCase()]: operationObject(path, operation, route.role),
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Leasehold',
      version,
      summary: 'A replicated file system: any server takes any request',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    tags: [{ name: 'leases', description: LEASES_TAG }],
    paths,
    components: {
      schemas: { Problem },
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'Required by servers with --tokens' },
      },
    },
  };
}

function undescribed({ method, url }: KnownRoute): Operation | null {
  if (method === 'HEAD' || !url.startsWith('/v1/')) return null;
  return { id: `${method} ${url}`, tag: 'cluster', summary: UNDESCRIBED, answers: {} };
}

function pathOf(url: string): string {
  if (USER_PATHS.includes(url)) return `${url}/{volume}/{path}`;
  return url.replace(/:([a-z]+)/g, '{$1}');
}

function operationObject(path: string, operation: Operation, role: RouteRole): object {
  const { id, tag, summary, description, query = {}, headers = {}, required = [], body } = operation;
  const names = [...path.matchAll(/\{([a-z]+)\}/g)].map(([, name = '']) => name);
  const parts = { ...PARAMETERS, ...operation.parameters };
  const parameters = [
    ...names.map((name) => ({ name, in: 'path', required: true, schema: parts[name] ?? Type.String() })),
    ...Object.entries(query).map(([name, schema]) => ({ name, in: 'query', schema })),
    ...Object.entries(headers).map(([name, schema]) => ({
      name,
      in: 'header',
      ...(required.includes(name) ? { required: true } : {}),
      schema,
    })),
  ];
  const answers = Object.entries(operation.answers).map(([status, answer]) => [status, answerObject(answer)]);
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    'x-role': role,
    // None, or a token: not every server authenticates clients.
    security: role === 'open' ? [] : [{}, { token: [] }],
    parameters,
    ...(body === undefined
      ? {}
      : { requestBody: { ...bodyIsRequired(operation), content: contentOf(body) } }),
    responses: { ...Object.fromEntries(answers), ...errorAnswers(operation), default: PROBLEM },
  };
}

/** Where errors are described, the rest is complete, too. */
function bodyIsRequired({ errors }: Operation): object {
  return errors === undefined ? {} : { required: true };
}

/** One answer for each status, with the codes that it may have. */
function errorAnswers({ errors = {} }: Operation): Readonly<Record<string, object>> {
  const codes = Object.keys(errors) as ErrorCode[];
  const answers = Map.groupBy(codes, (code) => ERRORS[code].status);
  return Object.fromEntries(
    [...answers].map(([status, some]) => [
      status,
      {
        description: some.map((code) => `\`${code}\`: ${errors[code]}`).join('\n\n'),
        ...(status === 503 ? { headers: { 'Retry-After': { schema: RETRY_AFTER } } } : {}),
        content: {
          'application/problem+json': {
            schema: {
              allOf: [
                { $ref: '#/components/schemas/Problem' },
                Type.Object({ code: Type.Union(some.map((code) => Type.Literal(code))) }),
              ],
            },
          },
        },
      },
    ]),
  );
}

function answerObject({ text, media, headers = [] }: AnswerText): object {
  const schemas = isNames(headers)
    ? Object.fromEntries(headers.map((name) => [name, Type.String()]))
    : headers;
  const described = Object.entries(schemas).map(([name, schema]) => [name, { schema }]);
  return {
    description: text,
    ...(described.length === 0 ? {} : { headers: Object.fromEntries(described) }),
    ...(media === undefined ? {} : { content: contentOf(media) }),
  };
}

function isNames(headers: NonNullable<AnswerText['headers']>): headers is readonly string[] {
  return Array.isArray(headers);
}

function contentOf({ type, schema }: Media): object {
  return { [type]: { schema } };
}
