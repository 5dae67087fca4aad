import { type ErrorCode, isErrorCode, ServiceError } from '../base/errors.ts';
import type { AnsweredCommands } from '../wire/catalog-api.ts';
import type { CommandResult } from './command.ts';
import type { Tables } from './tables.ts';

/** Results that are kept for a session; a request further back is refused, never executed. */
export const SESSION_WINDOW = 128;
/**
 * Sessions that are remembered of those that name when they began. Any of them can be forgotten: its later requests
 * are recognized by that, and refused.
 */
export const SESSIONS_MAX = 10_000;
/** So many are forgotten at once when there are too many: looking for the oldest has its price. */
const SESSIONS_FORGOTTEN = 500;
/**
 * For how long after its last use a session is remembered that does not name when it began, in milliseconds by the
 * catalog's clock: an `Idempotency-Key`, or a client of an earlier release. A later request is taken for a new one.
 */
export const TIMED_SESSION_MS = 24 * 60 * 60_000;
/** So many of these there are at the most: a further one is refused, because to forget one early would execute its retry. */
export const TIMED_SESSIONS_MAX = 250_000;
/** Where there is no place for a session, a client asks again after so long, in milliseconds. */
const NO_PLACE_RETRY_MS = 5_000;

/** How a command went: the same on every replica, and for every retry. */
export type Outcome =
  | { readonly kind: 'done'; readonly result: CommandResult }
  | {
      readonly kind: 'refused';
      readonly code: ErrorCode;
      readonly message: string;
      /** Only of a refusal that is not remembered. */
      readonly retryAfterMs?: number;
    };

/** Names a command for good; a retry carries the same. */
export interface CommandId {
  readonly session: number;
  readonly number: number;
  /** The catalog's seq when the session began, if the client knows it. */
  readonly since: number | null;
}

export function outcomeOfError(error: ServiceError): Outcome {
  return { kind: 'refused', code: error.code, message: error.message };
}

/** @returns the result, or throws the refusal that it was */
export function outcomeResult(outcome: Outcome): CommandResult {
  if (outcome.kind === 'done') return outcome.result;
  throw refusalOf(outcome);
}

export function refusalOf({
  code,
  message,
  retryAfterMs,
}: Extract<Outcome, { kind: 'refused' }>): ServiceError {
  return new ServiceError(code, message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

/**
 * Looks a request up: what was answered to it, or why it is not executed, or null where it has not been executed and
 * may be, as a part of batch `seq`.
 *
 * A session that names when it began (`since`) is executed first in a later batch. Once it is forgotten, the newest
 * forgotten use is therefore later than `since`: such a request is of unknown outcome, and refused. A `since` that is
 * still to come stems from batches that a loss of power took back, and proves nothing.
 */
export function sessionRecall(tables: Tables, id: CommandId, seq: number): Outcome | null {
  const session = tables.sessions.row(id.session);
  if (session === undefined) {
    if (id.since !== null) {
      const forgottenSeq = tables.sessions.forgottenSeq();
      if ((forgottenSeq > 0 && id.since <= forgottenSeq) || id.since >= seq) return expired(id);
    }
    // A session begins with its first numbers, a few of them in any order. This one has been forgotten.
    return id.number > SESSION_WINDOW ? expired(id) : null;
  }
  if (id.number <= session.highest - SESSION_WINDOW) return expired(id);
  const outcome = tables.sessions.request(id.session, id.number);
  return outcome === undefined ? null : parseOutcome(outcome);
}

/**
 * Whether the session of a request that `sessionRecall` lets through can be remembered: the primary asks before it
 * executes the request.
 *
 * @returns the refusal where it cannot, else null
 */
export function sessionRefusal(tables: Tables, id: CommandId, atNs: bigint): Outcome | null {
  if (id.since !== null || tables.sessions.row(id.session) !== undefined) return null;
  const { count, oldestMs } = tables.sessions.timed();
  if (count < TIMED_SESSIONS_MAX || oldestMs === null || oldestMs < millisecondsOf(atNs) - TIMED_SESSION_MS)
    return null;
  const message = `${count} requests with an Idempotency-Key, or of clients of an earlier release, are remembered already`;
  return { kind: 'refused', code: 'busy', message, retryAfterMs: NO_PLACE_RETRY_MS };
}

/** The last command of a session: its number, 0 where there is none, and its result if it was done. */
export function sessionLast(
  tables: Tables,
  session: number,
): { result: CommandResult | null; number: number } {
  const number = tables.sessions.row(session)?.highest ?? 0;
  const outcome = number === 0 ? undefined : tables.sessions.request(session, number);
  const parsed = outcome === undefined ? null : parseOutcome(outcome);
  return { result: parsed?.kind === 'done' ? parsed.result : null, number };
}

/** Of commands, those whose outcomes are not remembered. Sessions that have none of them are left out. */
export function sessionsMissing(
  tables: Tables,
  answered: readonly AnsweredCommands[],
): readonly AnsweredCommands[] {
  return answered.flatMap(({ session, numbers }) => {
    const missing = numbers.filter((number) => tables.sessions.request(session, number) === undefined);
    return missing.length === 0 ? [] : [{ session, numbers: missing }];
  });
}

/**
 * Keeps the outcome for retries, and forgets what falls out of the window.
 *
 * @param fenced false while a member of the catalog knows one kind of sessions only
 */
export function sessionRecord(
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
      const count = sessions.insert(id.session, seq, id.number);
      if (count > SESSIONS_MAX) sessions.forget(SESSIONS_FORGOTTEN, id.session);
    }
  } else {
    const highest = Math.max(session.highest, id.number);
    const used = Math.max(session.used, session.kind === 'fenced' ? seq : millisecondsOf(atNs));
    if (session.used !== used || session.highest !== highest)
      sessions.use(id.session, { kind: session.kind, used, highest });
    if (highest > session.highest) sessions.forgetRequests(id.session, highest - SESSION_WINDOW);
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
  return JSON.stringify(outcome.kind === 'done' ? outcome.result : [outcome.code, outcome.message]);
}

/** Results are objects, refusals are arrays. */
function parseOutcome(text: string): Outcome {
  const value: unknown = JSON.parse(text);
  if (!Array.isArray(value)) return { kind: 'done', result: value as CommandResult };
  const [code, message] = value as unknown[];
  if (!isErrorCode(code) || typeof message !== 'string') {
    throw new ServiceError('integrity', 'A remembered outcome is damaged');
  }
  return { kind: 'refused', code, message };
}
