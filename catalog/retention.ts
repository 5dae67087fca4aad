import { dateOfNs } from '../base/dates.ts';
import { ServiceError } from '../base/errors.ts';
import { RETENTION_MS_MAX } from '../wire/request-limits.ts';
import type { Retention } from '../wire/retention.ts';
import { timeCheck } from './names.ts';
import type { Tables } from './tables.ts';

/**
 * Retention (docs/retention.md): until its date, a file is neither changed nor removed, and a snapshot is not removed.
 * No command shortens a retention. The clock is in `RetentionTables`.
 */

const NS_PER_MS = 1_000_000n;

/**
 * @param what names the file or snapshot in errors
 * @param present its date until now; null: none
 * @returns its new date, in nanoseconds @throws ServiceError if that is earlier than the present one, or no future date
 */
export function prolonged(
  { retentions }: Tables,
  what: string,
  present: string | null,
  wanted: Retention,
): string {
  const nowNs = retentions.nowNs();
  const untilNs =
    'untilNs' in wanted ? BigInt(timeCheck(wanted.untilNs)) : nowNs + BigInt(wanted.forMs) * NS_PER_MS;
  if (present !== null && untilNs < BigInt(present) && retentions.isAhead(present))
    throw new ServiceError(
      'protected',
      `${what} is retained until ${dateOfNs(present)}, and a retention is never shortened`,
    );
  if (untilNs <= nowNs)
    throw new ServiceError(
      'bad-request',
      `${dateOfNs(`${untilNs}`)} is not in the future: it is ${dateOfNs(`${nowNs}`)} by the clock of retentions`,
    );
  if (untilNs > nowNs + BigInt(RETENTION_MS_MAX) * NS_PER_MS)
    throw new ServiceError('bad-request', `${what} can be retained for a century at most`);
  return `${untilNs}`;
}

/** @throws ServiceError `protected` if the date has not come */
export function assertNotRetained({ retentions }: Tables, what: string, untilNs: string | null): void {
  if (untilNs === null || !retentions.isAhead(untilNs)) return;
  throw new ServiceError('protected', `${what} is retained until ${dateOfNs(untilNs)}`);
}
