import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import { Retry, type RetryOutcome, type RetryStep } from '../../base/retry.ts';
import type { World } from '../../base/world.ts';
import type { Access } from './access.ts';
import { type AttemptLimits, type FailedAttempt, isTrustFailure } from './attempt.ts';
import { CLIENT_PACE } from './backoff.ts';
import type { Endpoint } from './endpoint.ts';
import type { Endpoints } from './endpoints.ts';
import { PATIENCE_INTERVALS } from './liveness-probe.ts';
import type { MoveWait } from './move-wait.ts';
import type { ExchangeRequest } from './request.ts';

/** Bound of the first attempt: a server that is alive without an answer must not use up the whole operation. */
const ATTEMPT_FIRST_MS = 5_000;
/** A server that is recovering or `busy` may ask for a longer pause, but gets none longer than this. */
const RETRY_AFTER_OBEYED_MS = 1_000;
/** After such an answer no server has the request any more, and none has executed it since. */
const NOT_FORWARDED: ReadonlySet<ErrorCode> = new Set(['busy', 'moving']);

export interface AttemptOptions {
  readonly signal?: AbortSignal;
  /** If no server accepts a connection, fail at once instead of waiting for one. */
  readonly failFast?: boolean;
  /** Bound of the first attempt; each attempt that times out makes the next one longer. */
  readonly attemptMs?: number;
  readonly attemptMsMax?: number;
}

export interface ExchangeFailure {
  readonly error: ServiceError;
  readonly isOutcomeUnknown: boolean;
}

export interface ExchangeAttemptsParts {
  readonly world: World;
  readonly endpoints: Endpoints;
  readonly moveWait: MoveWait;
  readonly access: Access;
  readonly request: ExchangeRequest;
  readonly subject: { primary: string | null };
  readonly options: AttemptOptions;
  readonly timeoutMs: number;
}

/** The state of one request over its attempts: the next step, the bound of the next attempt, and the final error. */
export class ExchangeAttempts {
  readonly #parts: ExchangeAttemptsParts;
  readonly #retry: Retry;
  readonly #startMs: number;
  #beganMs = 0;
  #limitMs = 0;
  #attemptMs: number;
  #patienceIntervals = 0;
  #lastProblem: ServiceError | null = null;
  #lastCause: Error | null = null;
  readonly #untrusted = new Set<Endpoint>();
  #isOutcomeUnknown = false;
  #mayBeForwarded = false;
  #final: ExchangeFailure | null = null;

  constructor(parts: ExchangeAttemptsParts) {
    const { world, options } = parts;
    this.#parts = parts;
    this.#startMs = world.nowMs();
    this.#attemptMs = options.attemptMs ?? ATTEMPT_FIRST_MS;
    const deadlineMs = (): number => this.deadlineMs;
    this.#retry = new Retry({ deadlineMs, pace: CLIENT_PACE, lastWait: 'fail' }, () => world.random());
  }

  get deadlineMs(): number {
    const { moveWait, timeoutMs } = this.#parts;
    return moveWait.deadlineMs(this.#startMs, timeoutMs);
  }

  /** @param limitMsMax bound of this attempt alone */
  beginAttempt(nowMs: number, limitMsMax = Number.POSITIVE_INFINITY): AttemptLimits {
    const { attemptMsMax = Number.POSITIVE_INFINITY, signal } = this.#parts.options;
    this.#beganMs = nowMs;
    this.#limitMs = Math.min(this.#attemptMs, this.deadlineMs - nowMs, attemptMsMax, limitMsMax);
    return { limitMs: this.#limitMs, patienceIntervals: this.#patienceIntervals, signal };
  }

  /** @returns whether to send the request again after a failed attempt at `endpoint`, and when */
  nextStep(attempt: FailedAttempt, endpoint: Endpoint): RetryStep {
    const step = this.#retry.next(this.#outcomeOf(attempt, endpoint), this.#parts.world.nowMs());
    if (step.kind !== 'fail' || !step.isFinal) this.#final = null;
    return step;
  }

  /** @returns the error of the whole request. @param cause why it ends now; absent: the last failure */
  failure(cause?: Error): ExchangeFailure {
    if (this.#final !== null) return this.#final;
    const { world, endpoints, request } = this.#parts;
    // A server's error explains more than a broken connection, unless no server is left.
    const error =
      this.#lastProblem !== null && !endpoints.allDead()
        ? this.#lastProblem
        : noAnswer(
            endpoints,
            request,
            cause ?? this.#lastCause ?? new Error('the time limit was reached before a request was sent'),
          );
    const isUnknown = this.#isOutcomeUnknown;
    if (!isUnknown || error.code === 'unknown') return { error, isOutcomeUnknown: isUnknown };
    const message = `${request.what}: the outcome is unknown after ${Math.round(world.nowMs() - this.#startMs)} ms; it may have been executed (${error.message})`;
    return {
      error: new ServiceError('unknown', message, error.details, { cause: error }),
      isOutcomeUnknown: isUnknown,
    };
  }

  #outcomeOf(attempt: FailedAttempt, endpoint: Endpoint): RetryOutcome {
    switch (attempt.kind) {
      case 'problem':
        return this.#afterProblem(attempt.error, endpoint);
      case 'unreached':
        return this.#afterUnreached(attempt.cause, endpoint);
      case 'cut':
        return this.#afterCut(attempt);
    }
  }

  #afterProblem(error: ServiceError, endpoint: Endpoint): RetryOutcome {
    const { world, endpoints, moveWait, access, request, subject } = this.#parts;
    const { code, remedy } = error;
    if (code === 'unauthorized' && access.refresh(world.nowMs())) return { kind: 'again' };
    if (code === 'unknown') this.#isOutcomeUnknown ||= request.mutation;
    const { primary, retryAfterMs } = error.details;
    if (remedy !== 'retry' && remedy !== 'redirect') {
      this.#final = { error, isOutcomeUnknown: this.#isOutcomeUnknown || this.#mayBeForwarded };
      return { kind: 'final' };
    }
    if (remedy === 'retry' && !NOT_FORWARDED.has(code)) this.#mayBeForwarded ||= request.mutation;
    if (code === 'moving') moveWait.answered();
    // What says of its own attempt that it is not executed does not hide that an earlier one may be.
    if (!this.#mayBeForwarded || !NOT_FORWARDED.has(code)) this.#lastProblem = error;
    if (primary !== undefined) subject.primary = primary;
    const isRedirect = remedy === 'redirect' && primary !== undefined && primary !== endpoint.id;
    if (isRedirect && endpoints.isIdUsable(primary, world.nowMs()))
      return { kind: 'elsewhere', movesMax: endpoints.all.length, otherwise: 'later' };
    const leastMs = Math.min(retryAfterMs ?? 0, RETRY_AFTER_OBEYED_MS);
    // These two concern the server and not the file: the others are asked meanwhile.
    if (code === 'recovering' || code === 'clock-fault') endpoint.avoidUntilMs = world.nowMs() + leastMs;
    return { kind: 'later', leastMs: code === 'busy' ? leastMs : 0 };
  }

  #afterUnreached(cause: Error, endpoint: Endpoint): RetryOutcome {
    const { world, endpoints, request, options } = this.#parts;
    endpoint.markDead(world.nowMs());
    this.#lastCause = cause;
    if (isTrustFailure(cause)) this.#untrusted.add(endpoint);
    // If other servers are left, wait for them: a single one may have been revoked.
    const isDistrusted = isTrustFailure(cause) && endpoints.all.every((one) => this.#untrusted.has(one));
    const error = isDistrusted ? trustError(request, endpoint, cause) : noAnswer(endpoints, request, cause);
    this.#final = { error, isOutcomeUnknown: this.#isOutcomeUnknown };
    const isFinal = isDistrusted || (options.failFast === true && endpoints.allDead());
    return {
      ...{ kind: 'elsewhere', movesMax: endpoints.all.length - 1 },
      otherwise: isFinal ? 'final' : 'later',
    };
  }

  #afterCut({ cause, why }: Extract<FailedAttempt, { kind: 'cut' }>): RetryOutcome {
    this.#isOutcomeUnknown ||= this.#parts.request.mutation;
    // A last attempt that had less time than those before explains less than their failures.
    const isLate = why === 'timed-out' && this.#limitMs < this.#beganMs - this.#startMs;
    this.#lastCause = isLate ? (this.#lastCause ?? cause) : cause;
    // Longer than any server's own limit, so that the next server can say itself why it has no answer.
    if (why === 'timed-out') this.#attemptMs = Math.max(this.#attemptMs, 4 * this.#limitMs);
    // If every server seems silent, the network is slow, or the request is large: wait longer before the next move.
    if (why === 'silent') this.#patienceIntervals = Math.max(PATIENCE_INTERVALS, 2 * this.#patienceIntervals);
    return { kind: 'elsewhere', movesMax: this.#parts.endpoints.all.length - 1, otherwise: 'later' };
  }
}

/** The error of a request that no server has answered. */
export function noAnswer(endpoints: Endpoints, request: ExchangeRequest, cause: Error): ServiceError {
  const unreachable = endpoints.unreachableNames();
  const why = endpoints.allUnreachable()
    ? `no server answers at ${endpoints.all.map(({ url }) => url).join(', ')}`
    : causeText(cause);
  return new ServiceError(
    'no-majority',
    `${request.what}: ${why}`,
    unreachable.length > 0 ? { unreachable } : {},
    { cause },
  );
}

function trustError(request: ExchangeRequest, { url }: Endpoint, cause: Error): ServiceError {
  return new ServiceError(
    'unauthorized',
    `${request.what}: TLS with ${url} failed: ${causeText(cause)}`,
    {},
    { cause },
  );
}

function causeText(cause: Error): string {
  return cause.message !== '' ? cause.message : 'code' in cause ? String(cause.code) : cause.name;
}
