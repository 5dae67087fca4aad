import { Nanoseconds } from './catalog-values.ts';
import { type Static, Type } from './schema.ts';

/** The longest retention, a century: times in nanoseconds have 64 bits. */
export const RETENTION_MS_MAX = 3_155_760_000_000;

/** Until when a file or snapshot is retained: a date, or a time from now on by the catalog's retention clock. */
export const Retention = Type.Union([
  Type.Object({ untilNs: Nanoseconds }),
  Type.Object({ forMs: Type.Integer({ minimum: 1, maximum: RETENTION_MS_MAX }) }),
]);
export type Retention = Static<typeof Retention>;

const DATE = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?Z)?$/;
const DURATION = /^(\d{1,9})(s|m|h|d)$/;
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** What people write, for messages. */
export const RETENTION_FORM =
  'a date such as 2030-01-31 or 2030-01-31T12:00:00Z (UTC), or a duration such as 30d or 12h';

/** @returns null if it is neither a date nor a duration */
export function parseRetention(text: string): Retention | null {
  const [, count, unit = ''] = DURATION.exec(text) ?? [];
  if (count !== undefined) {
    const forMs = Number(count) * (UNIT_MS[unit] ?? 0);
    return forMs >= 1 && forMs <= RETENTION_MS_MAX ? { forMs } : null;
  }
  if (!DATE.test(text)) return null;
  const ms = Date.parse(text);
  return Number.isFinite(ms) && isDay(text, ms) ? { untilNs: `${BigInt(ms) * 1_000_000n}` } : null;
}

/** Whether the date has the day that is written: 30 February is 2 March else. */
function isDay(text: string, ms: number): boolean {
  return new Date(ms).toISOString().startsWith(text.slice(0, 10));
}
