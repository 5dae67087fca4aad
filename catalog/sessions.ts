import {
  type ErrorCode,
  type ErrorDetails,
  isErrorCode,
  junctionDetailsOf,
  type RedirectDetails,
  redirectDetailsOf,
  ServiceError,
} from '../base/errors.ts';
import type { AnsweredCommands } from '../wire/catalog-api.ts';
import type { CommandResult } from './command.ts';
import type { Tables } from './tables.ts';

/** Outcomes kept per session; an older request is refused, never executed. */
export const SESSION_WINDOW = 128;
/** Sessions kept with a known start. Any of them can be forgotten: its later requests are detected and refused. */
export const SESSIONS_MAX = 10_000;
/** Sessions forgotten at once, because finding the oldest is costly. */
const SESSIONS_FORGOTTEN = 500;
/** Lifetime of a session without a start (`Idempotency-Key`, old clients), in milliseconds of the catalog's clock. */
export const TIMED_SESSION_MS = 24 * 60 * 60_000;
/** Limit of these; more are refused, because forgetting one early would execute its retry. */
export const TIMED_SESSIONS_MAX = 250_000;
const FULL_RETRY_MS = 5_000;

/** A command's outcome: the same on every replica, and for every retry. */
export type Outcome =
  | { readonly kind: 'done'; readonly result: CommandResult }
  | ({
      readonly kind: 'refused';
      readonly code: ErrorCode;
      readonly message: string;
    } & RedirectDetails &
      Pick<ErrorDetails, 'retryAfterMs'>);

/** Identifies a command; a retry has the same. */
export interface CommandId {
  readonly session: number;
  readonly number: number;
  /** The catalog's seq at the session's start, if the client knows it. */
  readonly since: number | null;
}

export function outcomeOfError(error: ServiceError): Outcome {
  const { code, message, details } = error;
  return { kind: 'refused', code, message, ...redirectDetailsOf(details) };
}

export function outcomeResult(outcome: Outcome): CommandResult {
  if (outcome.kind === 'done') return outcome.result;
  throw refusalOf(outcome);
}

export function refusalOf({
  kind,
  code,
  message,
  ...details
}: Extract<Outcome, { kind: 'refused' }>): ServiceError {
  return new ServiceError(code, message, details);
}

/**
 * Looks up a request: its outcome, or a refusal, or null if it may be executed in batch `seq`.
 *
 * The first batch of a session with a start is later than `since`. Once it is forgotten, the newest forgotten use is
 * later than `since` too, so the outcome is unknown and the request refused. A future `since` stems from batches that
 * a power loss reverted; it proves nothing.
 */
export function sessionFind(tables: Tables, id: CommandId, seq: number): Outcome | null {
  const session = tables.sessions.row(id.session);
  if (session === undefined) {
    if (id.since !== null) {
      const forgottenSeq = tables.sessions.forgottenSeq();
      if ((forgottenSeq > 0 && id.since <= forgottenSeq) || id.since >= seq) return expired(id);
    }
    // A session starts with its first numbers, in any order. This one was forgotten.
    return id.number > SESSION_WINDOW ? expired(id) : null;
  }
  if (id.number <= session.highestNumber - SESSION_WINDOW) return expired(id);
  const outcome = tables.sessions.request(id.session, id.number);
  return outcome === undefined ? null : parseOutcome(outcome);
}

/** Checks, before the primary executes a request, that its session can be stored. @returns the refusal, or null */
export function sessionRefusal(tables: Tables, id: CommandId, atNs: bigint): Outcome | null {
  if (id.since !== null || tables.sessions.row(id.session) !== undefined) return null;
  const { count, oldestMs } = tables.sessions.timed();
  if (count < TIMED_SESSIONS_MAX || oldestMs === null || oldestMs < millisecondsOf(atNs) - TIMED_SESSION_MS)
    return null;
  const message = `${count} requests with an Idempotency-Key, or of clients of an earlier release, are remembered already`;
  return { kind: 'refused', code: 'busy', message, retryAfterMs: FULL_RETRY_MS };
}

/** A session's last command: its number, or 0, and its result if it was done. */
export function sessionLast(
  tables: Tables,
  session: number,
): { result: CommandResult | null; number: number } {
  const number = tables.sessions.row(session)?.highestNumber ?? 0;
  const outcome = number === 0 ? undefined : tables.sessions.request(session, number);
  const parsed = outcome === undefined ? null : parseOutcome(outcome);
  return { result: parsed?.kind === 'done' ? parsed.result : null, number };
}

/** The commands without a stored outcome, by session. */
export function sessionsMissing(
  tables: Tables,
  answered: readonly AnsweredCommands[],
): readonly AnsweredCommands[] {
  return answered.flatMap(({ session, numbers }) => {
    const missing = numbers.filter((number) => tables.sessions.request(session, number) === undefined);
    return missing.length === 0 ? [] : [{ session, numbers: missing }];
  });
}

/** Stores an outcome for retries, and forgets old ones. @param fenced false until all members know timed sessions */
export function sessionStore(
  tables: Tables,
  id: CommandId,
  { seq, atNs, fenced }: { readonly seq: number; readonly atNs: bigint; readonly fenced: boolean },
  outcome: Outcome,
): void {
  const { sessions } = tables;
  const session = sessions.row(id.session);
  if (session === undefined) {
    if (fenced && id.since === null) {
      const atMs = millisecondsOf(atNs);
      sessions.forgetTimed(atMs - TIMED_SESSION_MS, SESSIONS_FORGOTTEN);
      sessions.insertTimed(id.session, atMs, id.number);
    } else {
      const count = sessions.insertFenced(id.session, seq, id.number);
      if (count > SESSIONS_MAX) sessions.forget(SESSIONS_FORGOTTEN, id.session);
    }
  } else {
    const highest = Math.max(session.highestNumber, id.number);
    const used = Math.max(session.used, session.kind === 'fenced' ? seq : millisecondsOf(atNs));
    if (session.used !== used || session.highestNumber !== highest)
      sessions.use(id.session, { kind: session.kind, used, highestNumber: highest });
    if (highest > session.highestNumber) sessions.forgetRequests(id.session, highest - SESSION_WINDOW);
  }
  sessions.putRequest(id.session, id.number, formatOutcome(outcome));
}

function millisecondsOf(ns: bigint): number {
  return Number(ns / 1_000_000n);
}

function expired(id: CommandId): Outcome {
  const message = `Request ${id.number} of session ${id.session} is older than what is remembered`;
  return { kind: 'refused', code: 'session-expired', message };
}

function formatOutcome(outcome: Outcome): string {
  if (outcome.kind === 'done') return JSON.stringify(outcome.result);
  const { code, message, junction } = outcome;
  // A retry continues in the same volume, which has the outcome of the first attempt.
  return JSON.stringify(junction === undefined ? [code, message] : [code, message, junction]);
}

/** Results are objects, refusals arrays. */
function parseOutcome(text: string): Outcome {
  const value: unknown = JSON.parse(text);
  if (!Array.isArray(value)) return { kind: 'done', result: value as CommandResult };
  const [code, message, details] = value as unknown[];
  if (!isErrorCode(code) || typeof message !== 'string') {
    throw new ServiceError('integrity', 'A remembered outcome is damaged');
  }
  const junction = junctionDetailsOf(details);
  return { kind: 'refused', code, message, ...(junction === null ? {} : { junction }) };
}
