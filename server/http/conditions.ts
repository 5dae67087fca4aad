import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';

/** The entity tag of a file's contents: which file, and its version. Equal tags mean equal bytes. */
export function etagOf(inode: number, contents: ContentVersion): string {
  return `"${inode.toString(16)}-${contents.epoch.toString(16)}-${contents.seq.toString(16)}"`;
}

/** Nanoseconds since 1970 as an HTTP date, whole seconds rounded down. */
export function httpDate(timeNs: string): string {
  return new Date(Number(BigInt(timeNs) / 1_000_000n)).toUTCString();
}

/** RFC 9110 §13: what the client knows, and whether to go on. */
export interface Conditions {
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  readonly ifRange: string | undefined;
}

export function conditionsOf(headers: IncomingHttpHeaders): Conditions {
  const [ifRange] = [headers['if-range']].flat();
  return { ifMatch: headers['if-match'], ifNoneMatch: headers['if-none-match'], ifRange };
}

const ENTITY_TAG = /(W\/)?("[\x21\x23-\x7e\x80-\xff]*")/g;

/**
 * @param etag of what is there now; null where nothing is, '' where something is that has no tag
 * @throws ServiceError `precondition-failed`
 */
export function checkIfMatch(conditions: Conditions, etag: string | null, what: string): void {
  const { ifMatch } = conditions;
  if (ifMatch === undefined) return;
  if (etag === null) throw new ServiceError('precondition-failed', `If-Match: ${what} does not exist`);
  if (ifMatch.trim() === '*') return;
  // Strong comparison: a weak tag matches nothing.
  for (const [, weak, tag] of ifMatch.matchAll(ENTITY_TAG)) if (weak === undefined && tag === etag) return;
  const now = etag === '' ? 'has no ETag' : `has the ETag ${etag} now`;
  throw new ServiceError('precondition-failed', `If-Match: ${what} ${now}`);
}

/** @returns whether `If-None-Match` names what is there, by weak comparison */
export function matchesIfNoneMatch(conditions: Conditions, etag: string | null): boolean {
  const { ifNoneMatch } = conditions;
  if (ifNoneMatch === undefined || etag === null) return false;
  if (ifNoneMatch.trim() === '*') return true;
  for (const [, , tag] of ifNoneMatch.matchAll(ENTITY_TAG)) if (tag === etag) return true;
  return false;
}

export type RangeResult =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly start: number; readonly end: number }
  | { readonly kind: 'unsatisfiable' };

const RANGE = /^bytes=\s*(\d{0,16})-(\d{0,16})\s*$/i;

/**
 * RFC 9110 §14: one range of bytes; `end` of the result is exclusive. Several ranges, other units and
 * what is malformed are ignored, as the RFC allows, and the whole is sent.
 *
 * @param ifRange the header `If-Range`; only a strong entity tag can match, so a date sends the whole
 */
export function rangeOf(
  range: string | undefined,
  ifRange: string | undefined,
  etag: string,
  sizeBytes: number,
): RangeResult {
  const match = range === undefined ? null : RANGE.exec(range);
  if (match === null || (ifRange !== undefined && ifRange.trim() !== etag)) return { kind: 'whole' };
  const [, first = '', last = ''] = match;
  if (first === '') {
    if (last === '') return { kind: 'whole' };
    const start = Math.max(0, sizeBytes - Number(last));
    return start < sizeBytes ? { kind: 'part', start, end: sizeBytes } : { kind: 'unsatisfiable' };
  }
  const start = Number(first);
  if (last !== '' && Number(last) < start) return { kind: 'whole' };
  if (start >= sizeBytes) return { kind: 'unsatisfiable' };
  return { kind: 'part', start, end: last === '' ? sizeBytes : Math.min(sizeBytes, Number(last) + 1) };
}
