import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Endpoint } from './endpoint.ts';
import { problemError } from './problem.ts';
import type { ExchangeRequest } from './request.ts';
import type { Response } from './response.ts';

export type FailedAttempt =
  | { readonly kind: 'problem'; readonly error: ServiceError }
  /** No connection: the server certainly did not receive the request. */
  | { readonly kind: 'unreached'; readonly cause: Error }
  /** The connection broke or was aborted: the request may have been executed. */
  | { readonly kind: 'cut'; readonly cause: Error; readonly why: 'broken' | 'timed-out' | 'silent' };

export type Attempt<Value> = { readonly kind: 'answered'; readonly value: Value } | FailedAttempt;

export interface AttemptLimits {
  readonly limitMs: number;
  /** @see LivenessProbe.watch */
  readonly patienceIntervals: number;
  readonly signal: AbortSignal | undefined;
}

export interface AttemptParts<Value> {
  readonly world: World;
  readonly endpoint: Endpoint;
  readonly request: ExchangeRequest;
  readonly limits: AttemptLimits;
  received(headers: Response['headers']): void;
  read(response: Response): Promise<Value>;
}

const CONNECT_FAILURES = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EHOSTDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
]);

const TRUST_FAILURE =
  /^(?:ERR_TLS_|ERR_SSL_|CERT_|SELF_SIGNED_|DEPTH_ZERO_|UNABLE_TO_|INVALID_CA|HOSTNAME_MISMATCH|EPROTO$)/;

/** @throws only the reason of the signal, and errors that are no failure of the connection */
export async function attemptOnce<Value>(parts: AttemptParts<Value>): Promise<Attempt<Value>> {
  const { world, endpoint, request, limits } = parts;
  const { limitMs, patienceIntervals, signal } = limits;
  const controller = new AbortController();
  let why: 'broken' | 'timed-out' | 'silent' = 'broken';
  const timer = world.after(limitMs, () => {
    why = 'timed-out';
    controller.abort(new Error(`no answer from ${endpoint.url} within ${Math.round(limitMs)} ms`));
  });
  const endWatch = endpoint.liveness.watch(patienceIntervals, () => {
    why = 'silent';
    controller.abort(new Error(`${endpoint.url} does not respond`));
  });
  const onAbort = () => controller.abort(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    request.onAttempt?.();
    const response = await endpoint.request({
      method: request.method,
      path: request.path,
      headers: request.headers ?? null,
      body: request.body ?? null,
      signal: controller.signal,
    });
    endpoint.liveness.signOfLife();
    parts.received(response.headers);
    if (response.statusCode >= 200 && response.statusCode < 300)
      return { kind: 'answered', value: await parts.read(response) };
    const text = await response.body.text();
    return {
      kind: 'problem',
      error: problemError(request.what, response.statusCode, response.headers, text),
    };
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof Error) || error instanceof ServiceError) throw error;
    if (why === 'broken' && (isConnectFailure(error) || isTrustFailure(error)))
      return { kind: 'unreached', cause: error };
    return { kind: 'cut', cause: error, why };
  } finally {
    timer.cancel();
    endWatch();
    signal?.removeEventListener('abort', onAbort);
  }
}

function isConnectFailure(error: Error): boolean {
  if ('code' in error && typeof error.code === 'string' && CONNECT_FAILURES.has(error.code)) return true;
  // A host with several addresses fails with one error per address.
  if (error instanceof AggregateError) {
    return error.errors.every((one: unknown) => one instanceof Error && isConnectFailure(one));
  }
  return false;
}

/** Whether this client does not trust the server's certificate, or the server does not trust the client's. */
export function isTrustFailure(error: Error): boolean {
  return 'code' in error && typeof error.code === 'string' && TRUST_FAILURE.test(error.code);
}
