import { type ErrorCode, isErrorCode, ServiceError } from '../base/errors.ts';
import type { CommandResult } from './command.ts';
import type { Tables } from './tables.ts';

/** Results that are kept for a session; a request further back is refused, never executed. */
export const SESSION_WINDOW = 128;
/** Sessions that are remembered. */
export const SESSIONS_MAX = 10_000;
/** So many are forgotten at once when there are too many: looking for the oldest has its price. */
const SESSIONS_FORGOTTEN = 500;

/** How a command went: the same on every replica, and for every retry. */
export type Outcome =
  | { readonly kind: 'done'; readonly result: CommandResult }
  | { readonly kind: 'refused'; readonly code: ErrorCode; readonly message: string };

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
  throw new ServiceError(outcome.code, outcome.message);
}

/**
 * Looks a request up: what was answered to it, or that it is too old to tell, or null where it has
 * not been executed and may be.
 */
export function sessionRecall(tables: Tables, id: CommandId): Outcome | null {
  const session = tables.sessions.row(id.session);
  if (session === undefined) {
    if (id.since !== null) {
      const forgottenSeq = tables.sessions.forgottenSeq();
      if (forgottenSeq > 0 && id.since <= forgottenSeq) return expired(id);
    }
    // A session begins with its first numbers, a few of them in any order. This one has been forgotten.
    return id.number > SESSION_WINDOW ? expired(id) : null;
  }
  if (id.number <= session.highest - SESSION_WINDOW) return expired(id);
  const outcome = tables.sessions.request(id.session, id.number);
  return outcome === undefined ? null : parseOutcome(outcome);
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

/** Keeps the outcome for retries, and forgets what falls out of the window. */
export function sessionRecord(tables: Tables, id: CommandId, seq: number, outcome: Outcome): void {
  const session = tables.sessions.row(id.session);
  if (session === undefined) {
    const count = tables.sessions.insert(id.session, seq, id.number);
    if (count > SESSIONS_MAX) tables.sessions.forget(SESSIONS_FORGOTTEN, id.session);
  } else {
    const highest = Math.max(session.highest, id.number);
    if (session.usedSeq !== seq || session.highest !== highest) tables.sessions.use(id.session, seq, highest);
    if (highest > session.highest) tables.sessions.forgetRequests(id.session, highest - SESSION_WINDOW);
  }
  tables.sessions.putRequest(id.session, id.number, formatOutcome(outcome));
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
