import { nsOfDate } from '../base/dates.ts';
import { RETENTION_MS_MAX } from './request-limits.ts';

/** Until when a file or snapshot is retained: a date, or a time from now on by the catalog's retention clock. */
export type Retention = { readonly untilNs: string } | { readonly forMs: number };

const DURATION = /^(\d{1,9})(s|m|h|d)$/;
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** What people write, for messages. */
export const RETENTION_FORM =
  'a date such as 2030-01-31 or 2030-01-31T12:00:00Z (UTC), or a duration such as 30d or 12h';

/** @returns null if it is neither a date nor a duration */
export function parseRetention(text: string): Retention | null {
  const [, count, unit = ''] = DURATION.exec(text) ?? [];
  if (count === undefined) {
    const untilNs = nsOfDate(text);
    return untilNs === null ? null : { untilNs };
  }
  const forMs = Number(count) * (UNIT_MS[unit] ?? 0);
  return forMs >= 1 && forMs <= RETENTION_MS_MAX ? { forMs } : null;
}
