import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AssertionFailure } from '../../base/assert.ts';
import { ERRORS, type ErrorCode, redirectDetailsOf, ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { STATUS_CODES } from '../../platform/node-http.ts';
import type { Problem } from '../../wire/http-api.ts';
import { addTokenChallenge } from '../security/authorization.ts';

export const PROBLEM_TYPE = 'application/problem+json';

/** Retry-After of an error that names no time. */
const RETRY_AFTER_MS = 1000;

/** How long a client that sent no HTTP may take to read its refusal and close its connection. */
const LINGER_MS = 10_000;

/** Failures of HTTP itself have more precise statuses than `bad-request`. */
const HTTP_STATUSES: ReadonlySet<number> = new Set([405, 408, 411, 415, 417, 431]);

/** @param status if HTTP has a more precise one than the error */
export function problemOf(error: ServiceError, status: number = ERRORS[error.code].status): Problem {
  const { unreachable, primary, holder, outdated } = error.details;
  return {
    type: `urn:leasehold:problem:${error.code}`,
    title: ERRORS[error.code].title,
    status,
    detail: error.message,
    code: error.code,
    ...(unreachable === undefined ? {} : { unreachable }),
    ...(primary === undefined ? {} : { primary }),
    ...(holder === undefined ? {} : { holder }),
    ...(outdated === undefined ? {} : { outdated }),
    ...redirectDetailsOf(error.details),
  };
}

/** Sends the error as a problem document; headers that the reply has already stay. */
export function sendProblem(reply: FastifyReply, error: ServiceError, status?: number): FastifyReply {
  const problem = problemOf(error, status);
  if (problem.status === 401) addTokenChallenge(reply);
  if (problem.status === 503) {
    const seconds = Math.max(1, Math.ceil((error.details.retryAfterMs ?? RETRY_AFTER_MS) / 1000));
    reply.header('retry-after', String(seconds));
  }
  return reply
    .code(problem.status)
    .type(PROBLEM_TYPE)
    .send(Buffer.from(JSON.stringify(problem)));
}

/** Turns every failure of `app` into a problem document, also of routing and parsing. */
export function installErrorHandlers(app: FastifyInstance, world: World): void {
  const routes: { readonly pattern: RegExp; readonly methods: Set<string> }[] = [];
  app.addHook('onRoute', ({ url, method }) => {
    const pattern = patternOf(url);
    const known = routes.find((route) => route.pattern.source === pattern.source);
    const methods = known?.methods ?? new Set<string>();
    for (const name of [method].flat()) methods.add(name);
    if (known === undefined) routes.push({ pattern, methods });
  });

  app.setNotFoundHandler((request, reply) => {
    const [path = ''] = request.url.split('?');
    const methods = routes.filter(({ pattern }) => pattern.test(path)).flatMap((route) => [...route.methods]);
    const where = request.originalUrl.split('?')[0];
    if (methods.length === 0) {
      return sendProblem(reply, new ServiceError('not-found', `No route ${where}`));
    }
    reply.header('allow', [...new Set(methods)].sort().join(', '));
    return sendProblem(
      reply,
      new ServiceError('bad-request', `${where} does not support ${request.method}`),
      405,
    );
  });

  app.setErrorHandler((error, request, reply) => handleError(world, error, request, reply));
}

/** Logs an error, and answers with a problem document; also called for errors before a route is found. */
export function handleError(
  world: World,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const reported = reportedError(world, error, request);
  return sendProblem(reply, reported.error, reported.status);
}

/** An error as a client gets it. */
export interface ReportedError {
  readonly error: ServiceError;
  /** If HTTP has a more precise one than the error. */
  readonly status?: number;
}

/** Logs an error, and ends the process for a broken invariant. @returns what the client gets */
export function reportedError(world: World, error: unknown, request: FastifyRequest): ReportedError {
  if (error instanceof ServiceError) {
    if (error.code === 'internal' || error.code === 'storage' || error.code === 'integrity') {
      request.log.error({ err: error, url: request.originalUrl }, 'request failed');
    } else {
      request.log.debug(
        { code: error.code, detail: error.message, url: request.originalUrl },
        'request refused',
      );
    }
    return { error };
  }
  const refusal = refusalOf(error);
  if (refusal !== null) return refusal;
  request.log.error({ err: error, url: request.originalUrl }, 'request failed unexpectedly');
  if (error instanceof AssertionFailure) {
    // A broken invariant ends the process, after this answer had its chance.
    world.soon(() => {
      throw error;
    });
  }
  const detail = `Internal error: see the server's log for request ${request.id}`;
  return { error: new ServiceError('internal', detail) };
}

/** Refusals by Fastify: too long, not JSON, not HTTP. Null if the failure is this server's. */
function refusalOf(error: unknown): ReportedError | null {
  if (!(error instanceof Error)) return null;
  const { statusCode } = error as Partial<FastifyError>;
  if (statusCode === undefined || statusCode < 400 || statusCode > 499) return null;
  const code: ErrorCode = statusCode === 413 ? 'too-large' : statusCode === 404 ? 'not-found' : 'bad-request';
  const status = HTTP_STATUSES.has(statusCode) ? statusCode : ERRORS[code].status;
  return { error: new ServiceError(code, error.message, {}, { cause: error }), status };
}

/** Answers a client that does not speak HTTP, and ends its connection. */
export function refuseConnection(
  world: World,
  error: Error & { readonly code?: string },
  socket: Socket,
): void {
  // Nothing can be sent: the client has disconnected, or its handshake failed.
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const status =
    error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
  const detail = status === 400 ? 'Malformed HTTP request' : (STATUS_CODES[status] as string);
  const body = JSON.stringify(problemOf(new ServiceError('bad-request', detail), status));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-type: ${PROBLEM_TYPE}\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  const timer = world.after(LINGER_MS, () => socket.destroy());
  socket.once('close', () => timer.cancel());
}

function patternOf(url: string): RegExp {
  const source = url
    .split('/')
    .map((part) =>
      part === '*' ? '.*' : part.startsWith(':') ? '[^/]+' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'),
    )
    .join('/');
  return new RegExp(`^${source}$`);
}
