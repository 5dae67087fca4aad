import { uriEncode } from '../../platform/s3-signature.ts';
import type { XmlElements } from '../../platform/s3-xml.ts';
import type { Bucket } from './buckets.ts';
import type { KeyWalk, WalkedObject, WalkPosition } from './key-walk.ts';
import { computedOf, objectEtag } from './object-record.ts';
import { S3Error } from './s3-error.ts';
import { httpSecondsIso } from './times.ts';

export const LIST_MAX = 1_000;
export const OWNER = { ID: 'leasehold', DisplayName: 'leasehold' } as const;

export interface Listing {
  readonly prefix: string;
  /** Empty: keys are not grouped. */
  readonly delimiter: string;
  readonly start: WalkPosition;
  readonly countMax: number;
}

export interface ListedKeys {
  readonly objects: readonly WalkedObject[];
  readonly prefixes: readonly string[];
  /** Where the next page begins; null at the end. */
  readonly next: WalkPosition | null;
}

/** One page of a bucket's keys, and of the prefixes up to the delimiter that others have. */
export async function listKeys(walk: KeyWalk, bucket: Bucket, listing: Listing): Promise<ListedKeys> {
  const { prefix, delimiter, countMax } = listing;
  const objects: WalkedObject[] = [];
  const prefixes: string[] = [];
  let position = listing.start;
  if (countMax === 0) return { objects, prefixes, next: null };
  for (let isDone = false; !isDone; ) {
    isDone = true;
    const remaining = countMax - objects.length - prefixes.length;
    const range = { prefix, descends: delimiter !== '/', countMax: remaining + 1, ...position };
    for await (const step of walk.steps(bucket, range)) {
      if (objects.length + prefixes.length === countMax) return { objects, prefixes, next: position };
      const key = step.kind === 'object' ? step.object.key : step.key;
      const group = step.kind === 'directory' ? step.key : commonPrefix(key, prefix, delimiter);
      if (group === null) {
        if (step.kind === 'object') objects.push(step.object);
        position = { after: key, past: false };
        continue;
      }
      prefixes.push(group);
      position = { after: group, past: true };
      // Directories are groups already; other delimiters have to skip what has the same prefix.
      if (step.kind === 'directory') continue;
      isDone = false;
      break;
    }
  }
  return { objects, prefixes, next: null };
}

/** What a key is grouped under; null: nothing. */
export function commonPrefix(key: string, prefix: string, delimiter: string): string | null {
  if (delimiter === '') return null;
  const at = key.indexOf(delimiter, prefix.length);
  return at < 0 ? null : key.slice(0, at + delimiter.length);
}

/** A marker that is a common prefix stands for all keys that begin with it. */
export function markerPosition(marker: string, prefix: string, delimiter: string): WalkPosition {
  const group = marker.startsWith(prefix) ? commonPrefix(marker, prefix, delimiter) : null;
  return { after: marker, past: group === marker };
}

export function tokenOf({ after, past }: WalkPosition): string {
  return Buffer.from(JSON.stringify([past, after])).toString('base64url');
}

/** @throws S3Error `InvalidArgument` */
export function positionOf(token: string): WalkPosition {
  try {
    const [past, after] = JSON.parse(Buffer.from(token, 'base64url').toString()) as [unknown, unknown];
    if (typeof past === 'boolean' && typeof after === 'string') return { past, after };
  } catch (error) {
    if (!(error instanceof SyntaxError) && !(error instanceof TypeError)) throw error;
  }
  throw new S3Error('InvalidArgument', 'The continuation token is incorrect');
}

/** Texts of an answer, percent-encoded if the client asks for it. */
export function encoderOf(encodingType: string | undefined): (text: string) => string {
  if (encodingType === undefined || encodingType === '') return (text) => text;
  if (encodingType !== 'url') throw new S3Error('InvalidArgument', 'The encoding type can only be "url"');
  return (text) => uriEncode(text).replaceAll('%2F', '/');
}

/**
 * The prefix in a listing of the first version. Some clients decode it, boto does not: it is encoded only if XML cannot
 * have it, or if decoding would change it.
 */
export function firstPrefix(prefix: string, encode: (text: string) => string): string {
  return /[%+]|(?![\t\n])[\p{Cc}\ufffe\uffff]/u.test(prefix) ? encode(prefix) : prefix;
}

export function objectXml(
  { key, attributes, record }: WalkedObject,
  encode: (text: string) => string,
): XmlElements {
  const checksum = computedOf(record, attributes)?.checksum;
  return {
    Key: encode(key),
    LastModified: httpSecondsIso(attributes.modifiedNs),
    ETag: objectEtag(record, attributes),
    ...(checksum === undefined ? {} : { ChecksumAlgorithm: checksum.algorithm, ChecksumType: checksum.type }),
    Size: attributes.kind === 'directory' ? 0 : attributes.sizeBytes,
    StorageClass: 'STANDARD',
  };
}
