import {
  type ErrorDetails,
  type HolderDetails,
  isErrorCode,
  parseRedirectDetails,
  ServiceError,
} from '../../base/errors.ts';
import { parseJsonObject } from '../../wire/json.ts';

const RETRY_AFTER_MAX_MS = 3_600_000;

/** @returns the error of an answer; without a problem document (a proxy's page), `internal`, or `busy` for a 503 */
export function problemError(
  what: string,
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  text: string,
): ServiceError {
  const problem = parseJsonObject(text);
  const retryAfterMs = retryAfter(headers['retry-after']);
  if (problem === null || !isErrorCode(problem.code)) {
    const excerpt = text.slice(0, 200).replaceAll(/\s+/g, ' ').trim();
    const excerptText = excerpt === '' ? '' : `: ${excerpt}`;
    // A 503 without a document still means "try again": a proxy in front of a server that restarts.
    const code = status === 503 ? 'busy' : 'internal';
    return new ServiceError(code, `${what}: the answer was HTTP status ${status}${excerptText}`, {
      ...retryAfterMs,
    });
  }
  const details: ErrorDetails = {
    ...(Array.isArray(problem.unreachable) ? { unreachable: textsOf(problem.unreachable) } : {}),
    ...(Array.isArray(problem.outdated) ? { outdated: textsOf(problem.outdated) } : {}),
    ...(typeof problem.primary === 'string' ? { primary: problem.primary } : {}),
    ...parseRedirectDetails(problem),
    ...holderIn(problem.holder),
    ...retryAfterMs,
  };
  const detail = typeof problem.detail === 'string' && problem.detail !== '' ? problem.detail : problem.title;
  return new ServiceError(problem.code, `${what}: ${String(detail ?? problem.code)}`, details);
}

function textsOf(values: readonly unknown[]): string[] {
  return values.filter((value): value is string => typeof value === 'string');
}

function holderIn(value: unknown): Pick<ErrorDetails, 'holder'> {
  if (typeof value !== 'object' || value === null) return {};
  const { owner, token, remainingMs } = value as Partial<HolderDetails>;
  if (typeof owner !== 'string' || typeof token !== 'number' || typeof remainingMs !== 'number') return {};
  return { holder: { owner, token, remainingMs } };
}

function retryAfter(header: string | string[] | undefined): { retryAfterMs?: number } {
  if (typeof header !== 'string') return {};
  const seconds = Number(header);
  if (!Number.isFinite(seconds) || seconds < 0) return {};
  return { retryAfterMs: Math.min(seconds * 1000, RETRY_AFTER_MAX_MS) };
}
