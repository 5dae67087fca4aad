import { type Conditions, httpDate, secondsOf, secondsOfDate } from './conditions.ts';

export type RangeResult =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly start: number; readonly end: number }
  | { readonly kind: 'unsatisfiable' };

export interface Ranged {
  readonly etag: string;
  readonly modifiedNs: string;
  readonly sizeBytes: number;
}

const RANGE = /^bytes=\s*(\d*)-(\d*)\s*$/i;

/**
 * RFC 9110 §14: one range of bytes, whose `end` is exclusive. Several ranges, other units and malformed ones are
 * ignored, as the RFC allows, and the whole is sent. `nowMs` is since 1970.
 */
export function rangeOf(
  range: string | undefined,
  { ifRange }: Conditions,
  { etag, modifiedNs, sizeBytes }: Ranged,
  nowMs: number,
): RangeResult {
  const match = range === undefined ? null : RANGE.exec(range);
  if (match === null || !rangeStillFits(ifRange, etag, modifiedNs, nowMs)) return { kind: 'whole' };
  const [, first = '', last = ''] = match;
  if (first === '') {
    if (last === '') return { kind: 'whole' };
    const start = Math.max(0, sizeBytes - Number(last));
    return start < sizeBytes ? { kind: 'part', start, end: sizeBytes } : { kind: 'unsatisfiable' };
  }
  const start = Number(first);
  // Positions may exceed 2^53.
  if (last !== '' && BigInt(last) < BigInt(first)) return { kind: 'whole' };
  if (start >= sizeBytes) return { kind: 'unsatisfiable' };
  return { kind: 'part', start, end: last === '' ? sizeBytes : Math.min(sizeBytes, Number(last) + 1) };
}

/** Whether `If-Range` holds (RFC 9110 §13.1.5): the strong tag, or the exact date, once no change can share it. */
function rangeStillFits(
  ifRange: string | undefined,
  etag: string,
  modifiedNs: string,
  nowMs: number,
): boolean {
  if (ifRange === undefined || ifRange.trim() === etag) return true;
  const seconds = secondsOfDate(ifRange.trim());
  if (seconds === null || ifRange.trim() !== httpDate(modifiedNs)) return false;
  return secondsOf(modifiedNs) + 2 <= nowMs / 1000;
}
