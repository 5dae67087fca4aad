/**
 * Dates of the Gregorian calendar in UTC, computed: cores have no `Date`.
 * Source: Howard Hinnant, *chrono-Compatible Low-Level Date Algorithms*. Years begin in March, so that a leap day ends
 * one; 400 years, an era, have 146,097 days.
 */

const DAYS_OF_ERA = 146_097;
/** From 1 March of the year 0 to 1970. */
const DAYS_BEFORE_1970 = 719_468;
const DAY_S = 86_400;
const NS_PER_S = 1_000_000_000n;
const DATE = /^(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2})(?::(\d{2}))?Z)?$/;

/** @returns the date, with seconds: `2027-01-31T12:00:00Z` */
export function dateOfNs(ns: string): string {
  const seconds = floorDiv(BigInt(ns), NS_PER_S);
  const days = Math.floor(Number(seconds) / DAY_S);
  const second = Number(seconds) - days * DAY_S;
  const time = [Math.floor(second / 3_600), Math.floor(second / 60) % 60, second % 60];
  return `${dayText(days)}T${time.map(twoDigits).join(':')}Z`;
}

/** @returns nanoseconds since 1970 of a date such as `2027-01-31` or `2027-01-31T12:00:00Z`; null if it is none */
export function nsOfDate(text: string): string | null {
  const match = DATE.exec(text);
  if (match === null) return null;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match
    .slice(1)
    .map((part) => Number(part ?? 0));
  const days = daysOf(year, month, day);
  // 30 February is 2 March else.
  if (month < 1 || month > 12 || dayText(days) !== text.slice(0, 10)) return null;
  if (hour > 23 || minute > 59 || second > 59) return null;
  return `${BigInt(days * DAY_S + hour * 3_600 + minute * 60 + second) * NS_PER_S}`;
}

/** @returns days since 1970 */
function daysOf(year: number, month: number, day: number): number {
  const marchYear = month > 2 ? year : year - 1;
  const era = Math.floor(marchYear / 400);
  const yearOfEra = marchYear - era * 400;
  const dayOfYear = Math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * DAYS_OF_ERA + dayOfEra - DAYS_BEFORE_1970;
}

function dayText(days: number): string {
  const shifted = days + DAYS_BEFORE_1970;
  const era = Math.floor(shifted / DAYS_OF_ERA);
  const dayOfEra = shifted - era * DAYS_OF_ERA;
  const leapDays =
    Math.floor(dayOfEra / 1_460) - Math.floor(dayOfEra / 36_524) + Math.floor(dayOfEra / 146_096);
  const yearOfEra = Math.floor((dayOfEra - leapDays) / 365);
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const marchMonth = Math.floor((5 * dayOfYear + 2) / 153);
  const day = dayOfYear - Math.floor((153 * marchMonth + 2) / 5) + 1;
  const month = ((marchMonth + 2) % 12) + 1;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  return `${String(year).padStart(4, '0')}-${twoDigits(month)}-${twoDigits(day)}`;
}

function twoDigits(number: number): string {
  return String(number).padStart(2, '0');
}

function floorDiv(a: bigint, b: bigint): bigint {
  return a < 0n && a % b !== 0n ? a / b - 1n : a / b;
}
