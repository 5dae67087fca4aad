/**
 * Sizes of the parts of an object, as they are stored with it: pairs of a size and the number of parts in a row that
 * have it; of many sizes, one number for each part, with a fixed number of digits. An upload of 10,000 parts of up to
 * 64 GiB, all of different sizes, then takes 60,000 characters.
 */

/** Parts of an upload, as in S3. */
export const PARTS_MAX = 10_000;
/** Pairs that are stored as such, which earlier releases read, too. */
const PAIRS_MAX = 100;
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
/** For numbers below 2^54. */
const DIGITS_MAX = 9;
const VALUES = new Map([...DIGITS].map((digit, value) => [digit, value]));

export type PartSizes = readonly (readonly [sizeBytes: number, count: number])[];

/** As they are stored. `sizes`: the number of digits of each size, and the digits, the most significant ones first. */
export interface StoredSizes {
  readonly parts?: PartSizes;
  readonly sizes?: readonly [digits: number, text: string];
}

export function encodeSizes(parts: PartSizes): StoredSizes {
  if (parts.length <= PAIRS_MAX) return { parts };
  const most = parts.reduce((largest, [size]) => Math.max(largest, size), 0);
  let digits = 1;
  while (64 ** digits <= most) digits++;
  const text = parts.map(([size, count]) => encodeSize(size, digits).repeat(count)).join('');
  return { sizes: [digits, text] };
}

function encodeSize(size: number, digits: number): string {
  let text = '';
  for (let rest = size; text.length < digits; rest = Math.floor(rest / 64)) text = DIGITS[rest % 64] + text;
  return text;
}

/** @param stored may be anything: a user of a mount may have written it @returns null if it is not valid */
export function decodeSizes(stored: unknown): PartSizes | null {
  if (!Array.isArray(stored) || stored.length !== 2) return null;
  const [digits, text] = stored as [unknown, unknown];
  if (!Number.isInteger(digits) || typeof text !== 'string') return null;
  const length = Number(digits);
  if (length < 1 || length > DIGITS_MAX || text.length % length !== 0 || text.length > PARTS_MAX * length)
    return null;
  const parts: [number, number][] = [];
  for (let at = 0; at < text.length; at += length) {
    let size = 0;
    for (const digit of text.slice(at, at + length)) size = size * 64 + (VALUES.get(digit) ?? Number.NaN);
    if (!Number.isSafeInteger(size)) return null;
    const last = parts.at(-1);
    if (last?.[0] === size) last[1]++;
    else parts.push([size, 1]);
  }
  return parts;
}

/** No more than an upload can have: answers list them one by one. */
export function arePairs(value: unknown): value is PartSizes {
  if (!Array.isArray(value)) return false;
  const isPair = (one: unknown): one is [number, number] =>
    Array.isArray(one) && one.length === 2 && one.every(Number.isSafeInteger) && one[0] >= 0 && one[1] >= 1;
  return value.every(isPair) && value.reduce((sum, [, count]) => sum + count, 0) <= PARTS_MAX;
}
