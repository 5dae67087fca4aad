import type { Attributes } from '../../wire/catalog-api.ts';
import { checkUnchanged, NO_CONDITIONS, secondsOf, secondsOfDate } from '../http/conditions.ts';
import { quotedTag } from './entity-tags.ts';
import { type ObjectRecord, objectEtag } from './object-record.ts';
import { S3Error } from './s3-error.ts';

/** What an object must be to be removed. */
export interface RemovalConditions {
  readonly ifMatch?: string;
  /** Seconds since 1970. */
  readonly modifiedS?: number;
  readonly sizeBytes?: number;
}

/** Texts of a request. */
export interface RemovalTexts {
  readonly ifMatch: string | undefined;
  /** A date as in HTTP, or as in ISO 8601. */
  readonly modified: string | undefined;
  readonly size: string | undefined;
}

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;

/** @throws S3Error `InvalidArgument` */
export function removalConditions({ ifMatch, modified, size }: RemovalTexts): RemovalConditions {
  const modifiedS = modified === undefined ? undefined : secondsOfText(modified.trim());
  if (modifiedS === null) throw new S3Error('InvalidArgument', 'The time of a condition is no date');
  if (size !== undefined && !/^\d{1,15}$/.test(size.trim()))
    throw new S3Error('InvalidArgument', 'The size of a condition is no number of bytes');
  return {
    ...(ifMatch === undefined ? {} : { ifMatch: quotedTag(ifMatch) }),
    ...(modifiedS === undefined ? {} : { modifiedS }),
    ...(size === undefined ? {} : { sizeBytes: Number(size) }),
  };
}

function secondsOfText(text: string): number | null {
  if (!ISO.test(text)) return secondsOfDate(text);
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : Math.floor(ms / 1000);
}

export function hasRemovalConditions(conditions: RemovalConditions): boolean {
  return Object.keys(conditions).length > 0;
}

/** @throws ServiceError `precondition-failed` */
export function checkRemoval(
  { ifMatch, modifiedS, sizeBytes }: RemovalConditions,
  record: ObjectRecord,
  attributes: Attributes,
): void {
  const { modifiedNs } = attributes;
  const version = { etag: objectEtag(record, attributes), modifiedNs };
  checkUnchanged({ ...NO_CONDITIONS, ifMatch }, version, 'the object');
  if (modifiedS !== undefined && modifiedS !== secondsOf(modifiedNs))
    throw new S3Error('PreconditionFailed', 'The object was modified at another time');
  const size = attributes.kind === 'directory' ? 0 : attributes.sizeBytes;
  if (sizeBytes !== undefined && sizeBytes !== size)
    throw new S3Error('PreconditionFailed', `The object has ${size} bytes`);
}
