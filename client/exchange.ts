import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import {
  type CapabilityAnswer,
  HEADER_CAPABILITY,
  HEADER_CATALOG_EPOCH,
  HEADER_CATALOG_SEQ,
  HEADER_PRIMARY,
} from '../wire/http-api.ts';
import type { Access } from './access.ts';
import { Backoff } from './backoff.ts';
import type { Endpoint } from './endpoint.ts';
import { Endpoints } from './endpoints.ts';
import { FileCapabilities } from './file-capabilities.ts';
import { problemError } from './problem.ts';
import { PATIENCE_INTERVALS } from './pulse.ts';
import { type Response, readJson } from './response.ts';
import type { RequestBody } from './server-channel.ts';

/** Longest first attempt: a server that lives and has no answer must not use up the whole operation. */
const ATTEMPT_FIRST_MS = 5_000;
/** A server that is recovering or says `busy` is left alone for as long as it asks, but no longer than this. */
const RETRY_AFTER_OBEYED_MS = 1_000;

/** What a request is about: a file or the catalog. Remembers who its primary is. */
export interface Subject {
  primary: string | null;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Instead of the client's own `operationTimeoutMs`. */
  readonly timeoutMs?: number;
  /** If no server accepts a connection, fail at once instead of waiting for one to come back. */
  readonly failFast?: boolean;
  /** Longest first attempt, in milliseconds, before another server is asked; each that took too long makes the next longer. */
  readonly attemptMs?: number;
  /** Longest attempt at all, in milliseconds. */
  readonly attemptMsMax?: number;
}

export interface ExchangeRequest {
  /** Beginning of an error's message: `Cannot read file 12`. */
  readonly what: string;
  readonly method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE' | 'HEAD';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: RequestBody;
  /** Files whose contents it touches: what this client may do with them goes with it. */
  readonly files?: readonly number[];
  /** It changes something, so that an attempt without an answer leaves a doubt. */
  readonly mutation: boolean;
  /** Called before each attempt is sent. Attempts follow each other, so the last call is about the one that was answered. */
  readonly onAttempt?: () => void;
}

/** An error that is thrown at the end of an exchange knows whether an earlier attempt may have succeeded. */
export interface ExchangeFailure {
  readonly error: ServiceError;
  readonly doubtful: boolean;
}

export type ExchangeOutcome<Value> =
  | { readonly kind: 'answered'; readonly value: Value }
  | ({ readonly kind: 'failed' } & ExchangeFailure);

type Attempt<Value> =
  | { readonly kind: 'answered'; readonly value: Value }
  | { readonly kind: 'problem'; readonly error: ServiceError }
  /** No connection: the request was certainly not seen. */
  | { readonly kind: 'unreached'; readonly cause: Error }
  /** The connection broke, or was given up: the request may have been carried out. */
  | { readonly kind: 'cut'; readonly cause: Error; readonly why: 'broken' | 'timed-out' | 'silent' };

interface AttemptLimits {
  readonly limitMs: number;
  /** @see Pulse.watch */
  readonly patienceIntervals: number;
  readonly signal: AbortSignal | undefined;
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

/** Carries requests to a cluster: one server after the other, until one answers or time is up. */
export class Exchanger {
  readonly world: World;
  readonly endpoints: Endpoints;
  readonly capabilities: FileCapabilities;
  /** The operation of the catalog that the latest answer about the catalog named; null before there was one. */
  catalogSeq: number | null = null;
  /** The newest epoch of the catalog that an answer has named; 0 before there was one. */
  catalogEpoch = 0;
  readonly operationTimeoutMs: number;
  readonly #access: Access;
  #closed = false;

  constructor(world: World, urls: readonly string[], operationTimeoutMs: number, access: Access) {
    this.world = world;
    this.endpoints = new Endpoints(world, urls, access);
    this.capabilities = new FileCapabilities(() => world.nowMs());
    this.#access = access;
    this.operationTimeoutMs = operationTimeoutMs;
  }

  /** Like `attempt`, for callers to whom every failure is the same. */
  async perform<Value>(
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions = {},
  ): Promise<Value> {
    const outcome = await this.exchange(subject, request, read, options);
    if (outcome.kind === 'failed') throw outcome.error;
    return outcome.value;
  }

  /**
   * Sends the same request until it is answered for good. Safe for every request of this client:
   * those that change something carry a request id, so that all attempts are one operation.
   *
   * @param read takes the answer of a success; if the connection breaks in it, that is one more failed attempt
   * @throws only the reason of `options.signal`; failures are returned
   */
  async exchange<Value>(
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions,
  ): Promise<ExchangeOutcome<Value>> {
    const { files } = request;
    if (files === undefined || !this.#access.isNamed) return this.#exchange(subject, request, read, options);
    for (let attempt = 1; ; attempt++) {
      const shown = await this.#capable(request, files, options);
      if (shown.kind === 'failed') return shown;
      const outcome = await this.#exchange(subject, shown.value, read, options);
      // Servers have other keys now, or other clocks: what is new is good.
      const isRefused = outcome.kind === 'failed' && outcome.error.code === 'forbidden';
      if (!isRefused || attempt === 2) return outcome;
      this.capabilities.forget(files);
    }
  }

  /**
   * Asks one server, once, for what the caller can do without.
   *
   * @param options `timeoutMs` is how long it may take
   */
  async askOnce<Value>(
    endpoint: Endpoint,
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions & { readonly timeoutMs: number },
  ): Promise<ExchangeOutcome<Value>> {
    const { files = [] } = request;
    const shown: ExchangeOutcome<ExchangeRequest> = this.#access.isNamed
      ? await this.#capable(request, files, options)
      : { kind: 'answered', value: request };
    if (shown.kind === 'failed') return shown;
    const limits = { limitMs: options.timeoutMs, patienceIntervals: 0, signal: options.signal };
    const attempt = await this.#attempt(endpoint, subject, shown.value, read, limits);
    switch (attempt.kind) {
      case 'answered':
        return attempt;
      case 'problem':
        // Servers may have other keys by now.
        if (attempt.error.code === 'forbidden') this.capabilities.forget(files);
        return { kind: 'failed', error: attempt.error, doubtful: false };
      case 'unreached':
        endpoint.markDead(this.world.nowMs());
        return { kind: 'failed', error: this.#noAnswer(request, attempt.cause), doubtful: false };
      case 'cut':
        return { kind: 'failed', error: this.#noAnswer(request, attempt.cause), doubtful: request.mutation };
    }
  }

  /** @returns the request with what it takes to touch the contents of `files` */
  async #capable(
    request: ExchangeRequest,
    files: readonly number[],
    options: CallOptions,
  ): Promise<ExchangeOutcome<ExchangeRequest>> {
    const ask = async (wanted: readonly number[]): Promise<ReadonlyMap<number, string>> => {
      const question: ExchangeRequest = {
        what: request.what,
        method: 'POST',
        path: '/v1/catalog/capabilities',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ files: wanted }),
        mutation: false,
      };
      // Whoever else waits for the same must not fail because this one was called off.
      const { signal: _, ...rest } = options;
      const answer = await this.perform({ primary: null }, question, readJson<CapabilityAnswer>, rest);
      return new Map(answer.capabilities.map(({ file, capability }) => [file, capability]));
    };
    try {
      const header = await this.capabilities.headerFor(files, ask);
      if (header === null) return { kind: 'answered', value: request };
      const headers = { ...request.headers, [HEADER_CAPABILITY]: header };
      return { kind: 'answered', value: { ...request, headers } };
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof ServiceError)) throw error;
      return { kind: 'failed', error, doubtful: false };
    }
  }

  async #exchange<Value>(
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions,
  ): Promise<ExchangeOutcome<Value>> {
    const startMs = this.world.nowMs();
    const deadlineMs = startMs + (options.timeoutMs ?? this.operationTimeoutMs);
    const backoff = new Backoff(this.world);
    let attemptMs = options.attemptMs ?? ATTEMPT_FIRST_MS;
    let patienceIntervals = 0;
    let last: Endpoint | null = null;
    let lastProblem: ServiceError | null = null;
    let lastCause: Error | null = null;
    const distrustedOnes = new Set<Endpoint>();
    let doubtful = false;
    let passedOn = false;
    // Moves to another server without a pause in between; bounded, so that a loop of hints ends.
    let hops = 0;
    for (;;) {
      options.signal?.throwIfAborted();
      const nowMs = this.world.nowMs();
      if (nowMs >= deadlineMs) break;
      if (this.#closed) {
        lastCause = new Error('this client was closed');
        break;
      }
      const endpoint = this.endpoints.choose(subject.primary, last, nowMs);
      const limits: AttemptLimits = {
        limitMs: Math.min(attemptMs, deadlineMs - nowMs, options.attemptMsMax ?? Number.POSITIVE_INFINITY),
        patienceIntervals,
        signal: options.signal,
      };
      const attempt = await this.#attempt(endpoint, subject, request, read, limits);
      last = endpoint;
      let pauseMs = 0;
      switch (attempt.kind) {
        case 'answered':
          this.endpoints.prefer(endpoint);
          return attempt;
        case 'problem': {
          const { error } = attempt;
          if (error.code === 'unauthorized' && this.#access.refresh(this.world.nowMs())) continue;
          if (error.code === 'unknown') doubtful ||= request.mutation;
          if (error.remedy !== 'retry' && error.remedy !== 'redirect')
            return { kind: 'failed', error, doubtful: doubtful || passedOn };
          // A server that says so may have passed the request on before, and heard no answer.
          if (error.remedy === 'retry' && error.code !== 'busy') passedOn ||= request.mutation;
          lastProblem = error;
          const { primary, retryAfterMs } = error.details;
          if (primary !== undefined) subject.primary = primary;
          if (error.remedy === 'redirect' && primary !== undefined && hops < this.endpoints.all.length) {
            if (primary !== endpoint.id && this.endpoints.canAsk(primary, this.world.nowMs())) {
              hops++;
              continue;
            }
          }
          const obeyedMs = Math.min(retryAfterMs ?? 0, RETRY_AFTER_OBEYED_MS);
          // These two speak of the server, not of the file: the others are asked meanwhile.
          if (error.code === 'recovering' || error.code === 'clock-fault') {
            endpoint.avoidUntilMs = this.world.nowMs() + obeyedMs;
          }
          pauseMs = Math.max(backoff.nextDelayMs(), error.code === 'busy' ? obeyedMs : 0);
          break;
        }
        case 'unreached':
          endpoint.markDead(this.world.nowMs());
          lastCause = attempt.cause;
          if (isTrustFailure(attempt.cause)) distrustedOnes.add(endpoint);
          if (++hops < this.endpoints.all.length) continue;
          // Where there are others they are waited for: one by itself may have been revoked.
          if (isTrustFailure(attempt.cause) && this.endpoints.all.every((one) => distrustedOnes.has(one))) {
            return { kind: 'failed', error: distrusted(request, endpoint, attempt.cause), doubtful };
          }
          if (options.failFast && this.endpoints.allDead()) {
            return { kind: 'failed', error: this.#noAnswer(request, attempt.cause), doubtful };
          }
          pauseMs = backoff.nextDelayMs();
          break;
        case 'cut': {
          doubtful ||= request.mutation;
          // That no time was left says less than why all those before it failed.
          const isLate = attempt.why === 'timed-out' && limits.limitMs < nowMs - startMs;
          lastCause = isLate ? (lastCause ?? attempt.cause) : attempt.cause;
          // Longer than any server's own limit, so that the next one can say itself why it cannot answer.
          if (attempt.why === 'timed-out') attemptMs *= 4;
          // Where every server looks silent it is the way to them that is slow, and a large request takes its time.
          if (attempt.why === 'silent')
            patienceIntervals = Math.max(PATIENCE_INTERVALS, 2 * patienceIntervals);
          if (++hops < this.endpoints.all.length) continue;
          pauseMs = backoff.nextDelayMs();
          break;
        }
      }
      hops = 0;
      if (this.world.nowMs() + pauseMs >= deadlineMs) break;
      const { signal } = options;
      await this.world.sleep(pauseMs, signal === undefined ? {} : { signal }).catch((error: unknown) => {
        signal?.throwIfAborted();
        throw error;
      });
    }
    // What a server said says more than a connection that broke, unless none of them is left.
    const error =
      lastProblem !== null && !this.endpoints.allDead()
        ? lastProblem
        : this.#noAnswer(request, lastCause ?? new Error('no time was left for an attempt'));
    if (!doubtful || error.code === 'unknown') return { kind: 'failed', error, doubtful };
    const message = `${request.what}: no certain answer within ${Math.round(this.world.nowMs() - startMs)} ms, it may have happened (${error.message})`;
    return {
      kind: 'failed',
      error: new ServiceError('unknown', message, error.details, { cause: error }),
      doubtful,
    };
  }

  async #attempt<Value>(
    endpoint: Endpoint,
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    { limitMs, patienceIntervals, signal }: AttemptLimits,
  ): Promise<Attempt<Value>> {
    const controller = new AbortController();
    let why: 'broken' | 'timed-out' | 'silent' = 'broken';
    const timer = this.world.after(limitMs, () => {
      why = 'timed-out';
      controller.abort(new Error(`no answer from ${endpoint.url} within ${Math.round(limitMs)} ms`));
    });
    const endWatch = endpoint.pulse.watch(patienceIntervals, () => {
      why = 'silent';
      controller.abort(new Error(`${endpoint.url} keeps silent`));
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
      endpoint.pulse.heard();
      const primary = response.headers[HEADER_PRIMARY];
      if (typeof primary === 'string' && primary !== '') subject.primary = primary;
      const catalogSeq = response.headers[HEADER_CATALOG_SEQ];
      if (catalogSeq !== undefined) this.catalogSeq = Number(catalogSeq);
      const catalogEpoch = Number(response.headers[HEADER_CATALOG_EPOCH] ?? 0);
      this.catalogEpoch = Math.max(this.catalogEpoch, catalogEpoch);
      if (response.statusCode >= 200 && response.statusCode < 300) {
        return { kind: 'answered', value: await read(response) };
      }
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

  #noAnswer(request: ExchangeRequest, cause: Error): ServiceError {
    const unreachable = this.endpoints.awayNames();
    const why = this.endpoints.allAway()
      ? `no server answers at ${this.endpoints.all.map(({ url }) => url).join(', ')}`
      : causeText(cause);
    return new ServiceError(
      'no-majority',
      `${request.what}: ${why}`,
      unreachable.length > 0 ? { unreachable } : {},
      {
        cause,
      },
    );
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.endpoints.close();
  }
}

function isConnectFailure(error: Error): boolean {
  if ('code' in error && typeof error.code === 'string' && CONNECT_FAILURES.has(error.code)) return true;
  // A host with several addresses fails with one error for each.
  if (error instanceof AggregateError) {
    return error.errors.every((one: unknown) => one instanceof Error && isConnectFailure(one));
  }
  return false;
}

/** The server has shown a certificate that is not believed here, or does not believe the one shown to it. */
function isTrustFailure(error: Error): boolean {
  return 'code' in error && typeof error.code === 'string' && TRUST_FAILURE.test(error.code);
}

function distrusted(request: ExchangeRequest, { url }: Endpoint, cause: Error): ServiceError {
  return new ServiceError(
    'unauthorized',
    `${request.what}: cannot trust ${url}: ${causeText(cause)}`,
    {},
    { cause },
  );
}

function causeText(cause: Error): string {
  return cause.message !== '' ? cause.message : 'code' in cause ? String(cause.code) : cause.name;
}
