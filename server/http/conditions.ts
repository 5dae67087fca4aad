import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';

/** Entity tag of a file's contents: its number and version. Equal tags mean equal bytes. */
export function etagOf(inode: number, contents: ContentVersion): string {
  return `"${inode.toString(16)}-${contents.epoch.toString(16)}-${contents.seq.toString(16)}"`;
}

/** Nanoseconds since 1970 as an HTTP date, rounded down to seconds. */
export function httpDate(timeNs: string): string {
  return new Date(secondsOf(timeNs) * 1000).toUTCString();
}

/** The conditions of a request, RFC 9110 §13. */
export interface Conditions {
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  readonly ifModifiedSince: string | undefined;
  readonly ifUnmodifiedSince: string | undefined;
  readonly ifRange: string | undefined;
}

export const NO_CONDITIONS: Conditions = {
  ifMatch: undefined,
  ifNoneMatch: undefined,
  ifModifiedSince: undefined,
  ifUnmodifiedSince: undefined,
  ifRange: undefined,
};

export function conditionsOf(headers: IncomingHttpHeaders): Conditions {
  const [ifRange] = [headers['if-range']].flat();
  return {
    ifMatch: headers['if-match'],
    ifNoneMatch: headers['if-none-match'],
    ifModifiedSince: headers['if-modified-since'],
    ifUnmodifiedSince: headers['if-unmodified-since'],
    ifRange,
  };
}

/** What exists now; null for nothing. Anything but a file has the empty tag, which no header names. */
export type CurrentVersion = { readonly etag: string; readonly modifiedNs: string } | null;

export function currentVersionOf(attributes: Attributes | null): CurrentVersion {
  if (attributes === null) return null;
  const { kind, inode, contents, modifiedNs } = attributes;
  return { etag: kind === 'file' ? etagOf(inode, contents) : '', modifiedNs };
}

const ENTITY_TAG = /(W\/)?("[\x21\x23-\x7e\x80-\xff]*")/g;

/** Checks `If-Match` or, without it, `If-Unmodified-Since` (RFC 9110 §13.2.2). @throws `precondition-failed` */
export function checkUnchanged(conditions: Conditions, current: CurrentVersion, what: string): void {
  const { ifMatch, ifUnmodifiedSince } = conditions;
  if (ifMatch !== undefined) {
    checkIfMatch(ifMatch, current, what);
    return;
  }
  const since = secondsOfDate(ifUnmodifiedSince);
  // Without a date the condition is ignored (13.1.4).
  if (since === null || current === null) return;
  if (secondsOf(current.modifiedNs) <= since) return;
  const when = httpDate(current.modifiedNs);
  throw new ServiceError('precondition-failed', `If-Unmodified-Since: ${what} was modified ${when}`);
}

function checkIfMatch(ifMatch: string, current: CurrentVersion, what: string): void {
  if (current === null) throw new ServiceError('precondition-failed', `If-Match: ${what} does not exist`);
  if (ifMatch.trim() === '*') return;
  // Strong comparison: a weak tag matches nothing.
  for (const [, weak, tag] of ifMatch.matchAll(ENTITY_TAG)) {
    if (weak === undefined && tag === current.etag) return;
  }
  const now = current.etag === '' ? 'has no ETag' : `has the ETag ${current.etag} now`;
  throw new ServiceError('precondition-failed', `If-Match: ${what} ${now}`);
}

/** Whether a reader has this version by `If-None-Match` or, without it, `If-Modified-Since` (RFC 9110 §13.2.2). */
export function isKnownToClient(conditions: Conditions, current: CurrentVersion): boolean {
  const { ifNoneMatch, ifModifiedSince } = conditions;
  if (ifNoneMatch !== undefined) return matchesIfNoneMatch(ifNoneMatch, current);
  const since = secondsOfDate(ifModifiedSince);
  return since !== null && current !== null && secondsOf(current.modifiedNs) <= since;
}

/** Checks all conditions of a change. @throws ServiceError `precondition-failed` */
export function checkForChange(conditions: Conditions, current: CurrentVersion, what: string): void {
  checkUnchanged(conditions, current, what);
  const { ifNoneMatch } = conditions;
  if (ifNoneMatch !== undefined && matchesIfNoneMatch(ifNoneMatch, current)) {
    throw new ServiceError('precondition-failed', `If-None-Match: ${what} exists`);
  }
}

/** Weak comparison: a weak tag matches the strong one. */
function matchesIfNoneMatch(ifNoneMatch: string, current: CurrentVersion): boolean {
  if (current === null) return false;
  if (ifNoneMatch.trim() === '*') return true;
  for (const [, , tag] of ifNoneMatch.matchAll(ENTITY_TAG)) if (tag === current.etag) return true;
  return false;
}

const HTTP_DATE =
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d{2}:\d{2}:\d{2} GMT$/;

/** Returns seconds since 1970; null without a valid date, which RFC 9110 ignores. */
export function secondsOfDate(text: string | undefined): number | null {
  if (text === undefined || !HTTP_DATE.test(text)) return null;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : ms / 1000;
}

export function secondsOf(timeNs: string): number {
  return Number(BigInt(timeNs) / 1_000_000_000n);
}
