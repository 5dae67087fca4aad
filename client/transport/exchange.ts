import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { type CapabilityAnswer, HEADER_CAPABILITY, HEADER_PRIMARY } from '../../wire/http-api.ts';
import type { Access } from './access.ts';
import { type Attempt, type AttemptLimits, attemptOnce } from './attempt.ts';
import type { Endpoint } from './endpoint.ts';
import { Endpoints } from './endpoints.ts';
import {
  type AttemptOptions,
  ExchangeAttempts,
  type ExchangeFailure,
  noAnswer,
} from './exchange-attempts.ts';
import { FileCapabilities } from './file-capabilities.ts';
import type { CallLimits } from './in-time.ts';
import { MoveWait } from './move-wait.ts';
import { type ExchangeRequest, postRequest } from './request.ts';
import { type Response, readJson } from './response.ts';

/** The subject of a request, a file or the catalog, with its primary as last reported. */
export interface Subject {
  primary: string | null;
  /** The server of the first attempt, one of the client's zone; absent or null: the primary. */
  readonly near?: string | null;
  /** Called with the headers of each answer. @param server the one that answered; null if its id is not known */
  received?(headers: Response['headers'], server: string | null): void;
}

export interface TimedAnswer<Value> {
  readonly answer: Value;
  /** When the answered attempt was sent, by the caller's clock. */
  readonly sentMs: number;
}

/** A server of the client's zone has no longer than this for the first attempt: others can answer as well. */
const NEAR_ATTEMPT_MS = 2_000;

export interface CallOptions extends AttemptOptions {
  readonly timeoutMs?: number;
}

export type ExchangeOutcome<Value> =
  | { readonly kind: 'answered'; readonly value: Value }
  | ({ readonly kind: 'failed' } & ExchangeFailure);

/** Sends requests to a cluster: to one server after another, until one answers or time is up. */
export class Exchanger {
  readonly world: World;
  readonly endpoints: Endpoints;
  readonly capabilities: FileCapabilities;
  readonly moveWait: MoveWait;
  readonly operationTimeoutMs: number;
  readonly #access: Access;
  #closed = false;

  /** @param zone the client's; null: it prefers no server */
  constructor(
    world: World,
    urls: readonly string[],
    operationTimeoutMs: number,
    access: Access,
    zone: string | null = null,
  ) {
    this.world = world;
    this.endpoints = new Endpoints(world, urls, access, zone);
    this.capabilities = new FileCapabilities(() => world.nowMs());
    this.moveWait = new MoveWait(world);
    this.#access = access;
    this.operationTimeoutMs = operationTimeoutMs;
  }

  /** As `perform`, for an answer in JSON. @param subject absent: any server answers */
  ask<Value>(
    request: ExchangeRequest,
    options?: CallOptions,
    subject: Subject = { primary: null },
  ): Promise<Value> {
    return this.perform(subject, request, readJson<Value>, options);
  }

  /** As `ask`; also returns when the answered attempt was sent: attempts never overlap, so it is the last. */
  async askTimed<Value>(
    clock: () => number,
    request: ExchangeRequest,
    options?: CallOptions,
    subject?: Subject,
  ): Promise<TimedAnswer<Value>> {
    let sentMs = clock();
    const onAttempt = (): void => {
      sentMs = clock();
    };
    const answer = await this.ask<Value>({ ...request, onAttempt }, options, subject);
    return { answer, sentMs };
  }

  /** As `exchange`, but throws every failure. */
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
   * Sends the same request until there is a final answer. Safe for every request of this client: those that change
   * something carry a request id, so that all attempts are one operation.
   * @param read reads a successful answer; a connection that breaks meanwhile is one more failed attempt
   * @throws only the reason of `options.signal`; failures are returned
   */
  async exchange<Value>(
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions,
  ): Promise<ExchangeOutcome<Value>> {
    const { files = [] } = request;
    if (files.length === 0 || !this.#access.hasCredentials)
      return this.#exchange(subject, request, read, options);
    const limits = this.limitsOf(options);
    for (let attempt = 1; ; attempt++) {
      const authorized = await this.#withCapabilities(request, options);
      if (authorized.kind === 'failed') return authorized;
      const limited = { ...options, timeoutMs: limits.leftMs() };
      const outcome = await this.#exchange(subject, authorized.value, read, limited);
      // The servers' keys or clocks may have changed, so one attempt follows with new capabilities.
      const isRefused = outcome.kind === 'failed' && outcome.error.code === 'forbidden';
      if (!isRefused || attempt === 2) return outcome;
      this.capabilities.forget(files);
    }
  }

  /** Asks one server, once, for an answer that the caller can do without. */
  async askOnce<Value>(
    endpoint: Endpoint,
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions & { readonly timeoutMs: number },
  ): Promise<ExchangeOutcome<Value>> {
    const authorized = await this.#withCapabilities(request, options);
    if (authorized.kind === 'failed') return authorized;
    const limits = { limitMs: options.timeoutMs, patienceIntervals: 0, signal: options.signal };
    const attempt = await this.#attempt(endpoint, subject, authorized.value, read, limits);
    if (attempt.kind === 'answered') return attempt;
    if (attempt.kind === 'problem') {
      if (attempt.error.code === 'forbidden') this.capabilities.forget(request.files ?? []);
      return { kind: 'failed', error: attempt.error, isOutcomeUnknown: false };
    }
    if (attempt.kind === 'unreached') endpoint.markDead(this.world.nowMs());
    const error = noAnswer(this.endpoints, request, attempt.cause);
    return { kind: 'failed', error, isOutcomeUnknown: attempt.kind === 'cut' && request.mutation };
  }

  /** Adds the client's capabilities for the files of a request; fetches those that are missing or old. */
  async #withCapabilities(
    request: ExchangeRequest,
    options: CallOptions,
  ): Promise<ExchangeOutcome<ExchangeRequest>> {
    const { what, files = [] } = request;
    if (!this.#access.hasCredentials) return { kind: 'answered', value: request };
    const ask = async (wanted: readonly number[]): Promise<ReadonlyMap<number, string>> => {
      // Other callers wait for the same answer, so this one's signal must not end it.
      const { signal: _, ...rest } = options;
      const capabilityRequest = postRequest(what, '/v1/catalog/capabilities', { files: wanted });
      const { capabilities } = await this.ask<CapabilityAnswer>(capabilityRequest, rest);
      return new Map(capabilities.map(({ file, capability }) => [file, capability]));
    };
    try {
      const header = await this.capabilities.headerFor(files, ask);
      if (header === null) return { kind: 'answered', value: request };
      const headers = { ...request.headers, [HEADER_CAPABILITY]: header };
      return { kind: 'answered', value: { ...request, headers } };
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof ServiceError)) throw error;
      return { kind: 'failed', error, isOutcomeUnknown: false };
    }
  }

  async #exchange<Value>(
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    options: CallOptions,
  ): Promise<ExchangeOutcome<Value>> {
    const { world, endpoints, moveWait } = this;
    const timeoutMs = options.timeoutMs ?? this.operationTimeoutMs;
    const parts = { world, endpoints, moveWait, access: this.#access, request, subject, options, timeoutMs };
    const attempts = new ExchangeAttempts(parts);
    let last: Endpoint | null = null;
    for (;;) {
      options.signal?.throwIfAborted();
      const nowMs = world.nowMs();
      if (nowMs >= attempts.deadlineMs) return { kind: 'failed', ...attempts.failure() };
      if (this.#closed) return { kind: 'failed', ...attempts.failure(new Error('this client was closed')) };
      const near = last === null ? (subject.near ?? null) : null;
      const endpoint = endpoints.choose(near ?? subject.primary, last, nowMs);
      const limits = attempts.beginAttempt(nowMs, near === null ? Number.POSITIVE_INFINITY : NEAR_ATTEMPT_MS);
      const attempt = await this.#attempt(endpoint, subject, request, read, limits);
      last = endpoint;
      if (attempt.kind === 'answered') {
        endpoints.prefer(endpoint);
        return attempt;
      }
      const step = attempts.nextStep(attempt, endpoint);
      if (step.kind === 'fail') return { kind: 'failed', ...attempts.failure() };
      if (near !== null) endpoints.zone.failed(near);
      if (step.kind === 'wait') await this.#sleep(step.ms, options.signal);
    }
  }

  /** The limits of a call that begins now. @see MoveWait */
  limitsOf({ timeoutMs = this.operationTimeoutMs, signal }: CallOptions): CallLimits {
    const beganMs = this.world.nowMs();
    const deadlineMs = (): number => this.moveWait.deadlineMs(beganMs, timeoutMs);
    return { deadlineMs, signal, leftMs: () => Math.max(0, deadlineMs() - this.world.nowMs()) };
  }

  async #sleep(forMs: number, signal: AbortSignal | undefined): Promise<void> {
    await this.world.sleep(forMs, signal === undefined ? {} : { signal }).catch((error: unknown) => {
      signal?.throwIfAborted();
      throw error;
    });
  }

  #attempt<Value>(
    endpoint: Endpoint,
    subject: Subject,
    request: ExchangeRequest,
    read: (response: Response) => Promise<Value>,
    limits: AttemptLimits,
  ): Promise<Attempt<Value>> {
    const received = (headers: Response['headers']): void => {
      const primary = headers[HEADER_PRIMARY];
      if (typeof primary === 'string' && primary !== '') subject.primary = primary;
      subject.received?.(headers, endpoint.id);
    };
    return attemptOnce({ world: this.world, endpoint, request, limits, received, read });
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.endpoints.close();
  }
}
