import type { IncomingHttpHeaders } from 'node:http';
import type { Attributes, NewXattrs } from '../../wire/catalog-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { etagOf } from '../http/conditions.ts';
import { ALGORITHMS, CHECKSUM_TYPES, type Checksum } from './checksums.ts';
import { S3Error } from './s3-error.ts';

/** Extended attribute with what S3 stores beside contents; mounts see it, and copy it with `cp --preserve=xattr`. */
export const RECORD_XATTR = 'user.s3';

/** Bytes of names and values of user metadata, as in S3. */
const METADATA_BYTES_MAX = 2048;
const META_PREFIX = 'x-amz-meta-';
/** Parts of an upload, as in S3. */
export const PARTS_MAX = 10_000;
/** Headers that are stored with an object, and returned. */
export const CONTENT_HEADERS = [
  'cache-control',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-type',
  'expires',
] as const;
export const DEFAULT_TYPE = 'binary/octet-stream';

/** What the client says of an object. */
export interface Description {
  readonly headers: Readonly<Record<string, string>>;
  readonly meta: Readonly<Record<string, string>>;
}

/** What was computed from contents: only of this file, in this version. */
export interface Computed {
  /** Without quotes: an MD5, or of a multipart object with "-" and the number of parts. */
  readonly etag: string;
  readonly checksum?: Checksum;
  /** Sizes of parts, each with the number of parts in a row that have it. */
  readonly parts?: readonly (readonly [sizeBytes: number, count: number])[];
}

export interface ObjectRecord extends Partial<Description> {
  /** The contents that `computed` is about. */
  readonly of?: readonly [inode: number, epoch: number, seq: number];
  readonly computed?: Computed;
  readonly tags?: Readonly<Record<string, string>>;
  /** The multipart upload that created it. */
  readonly upload?: string;
  /** A directory that exists only because of the objects in it. */
  readonly implicit?: true;
}

/** Of directories that exist only because of the objects in them. */
export const IMPLICIT_XATTR = { name: RECORD_XATTR, value: encodeRecord({ implicit: true }) };

export function encodeRecord(record: object): string {
  return Buffer.from(JSON.stringify(record)).toString('base64');
}

/** Returns the record in an attribute, which a user of a mount may have written: then as far as it is valid. */
export function decodeRecord(base64: string | undefined): ObjectRecord {
  if (base64 === undefined) return {};
  const value = parseJsonObject(Buffer.from(base64, 'base64').toString());
  if (value === null) return {};
  const { of, computed, headers, meta, tags, upload, implicit } = value as Record<string, unknown>;
  const isOf = Array.isArray(of) && of.length === 3 && of.every(Number.isSafeInteger);
  return {
    ...(areHeaders(headers) && Object.keys(headers).every(isContentHeader) ? { headers } : {}),
    ...(areHeaders(meta) ? { meta } : {}),
    ...(isTexts(tags) ? { tags } : {}),
    ...(isOf && isComputed(computed) ? { of: of as unknown as [number, number, number], computed } : {}),
    ...(typeof upload === 'string' ? { upload } : {}),
    ...(implicit === true ? { implicit } : {}),
  };
}

function isContentHeader(name: string): boolean {
  return (CONTENT_HEADERS as readonly string[]).includes(name);
}

function isTexts(value: unknown): value is Readonly<Record<string, string>> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every((text) => typeof text === 'string')
  );
}

/** Whether all can be headers of an answer: a user of a mount may have written anything. */
function areHeaders(value: unknown): value is Readonly<Record<string, string>> {
  return isTexts(value) && Object.entries(value).every(([name, text]) => isHeader(name, text));
}

function isComputed(value: unknown): value is Computed {
  if (typeof value !== 'object' || value === null) return false;
  const { etag, checksum, parts } = value as Partial<Record<keyof Computed, unknown>>;
  return (
    typeof etag === 'string' &&
    /^[0-9a-f]{32}(-\d{1,5})?$/.test(etag) &&
    (checksum === undefined || isChecksum(checksum)) &&
    (parts === undefined || areParts(parts))
  );
}

/** No more than an upload can have: answers list them one by one. */
function areParts(value: unknown): boolean {
  if (!Array.isArray(value)) return false;
  const isPair = (one: unknown): one is [number, number] =>
    Array.isArray(one) && one.length === 2 && one.every(Number.isSafeInteger) && one[0] >= 0 && one[1] >= 1;
  return value.every(isPair) && value.reduce((sum, [, count]) => sum + count, 0) <= PARTS_MAX;
}

function isChecksum(checksum: unknown): checksum is Checksum {
  if (typeof checksum !== 'object' || checksum === null) return false;
  const { algorithm, value, type } = checksum as Partial<Record<keyof Checksum, unknown>>;
  return (
    ALGORITHMS.some((one) => one === algorithm) &&
    CHECKSUM_TYPES.some((one) => one === type) &&
    typeof value === 'string' &&
    /^[\w+/=-]+$/.test(value)
  );
}

/** Returns what was computed of the contents, unless they have changed since. */
export function computedOf(
  { of, computed }: ObjectRecord,
  { inode, contents }: Pick<Attributes, 'inode' | 'contents'>,
): Computed | null {
  if (of === undefined || computed === undefined) return null;
  const [file, epoch, seq] = of;
  return file === inode && epoch === contents.epoch && seq === contents.seq ? computed : null;
}

/**
 * The entity tag in quotes: an MD5 if the contents are those that S3 clients have put; otherwise a text with a dash, as
 * of multipart objects, which no client takes for an MD5.
 */
export function objectEtag(record: ObjectRecord, file: Pick<Attributes, 'inode' | 'contents'>): string {
  const computed = computedOf(record, file);
  return computed === null ? etagOf(file.inode, file.contents) : `"${computed.etag}"`;
}

/**
 * Reads content headers and user metadata, in the characters that HTTP has for bytes.
 * @throws S3Error `MetadataTooLarge`; `InvalidArgument` for what cannot be a header of an answer
 */
export function descriptionOf(
  source: IncomingHttpHeaders | Readonly<Record<string, string | undefined>>,
): Description {
  const headers = new Map<string, string>();
  const meta = new Map<string, string>();
  let bytes = 0;
  for (const [name, value] of Object.entries(source)) {
    const text = [value].flat().join(',');
    const isMeta = name.startsWith(META_PREFIX);
    const isContent = isContentHeader(name);
    if (isMeta || isContent) assertHeader(name, text);
    if (isContent && text !== '') headers.set(name, text);
    if (name === META_PREFIX)
      throw new S3Error('InvalidArgument', `User metadata has a name after "${META_PREFIX}"`);
    if (!isMeta) continue;
    meta.set(name.slice(META_PREFIX.length), text);
    bytes += name.length - META_PREFIX.length + text.length;
  }
  if (bytes > METADATA_BYTES_MAX)
    throw new S3Error('MetadataTooLarge', `User metadata has at most ${METADATA_BYTES_MAX} bytes`);
  const encoding = withoutTransfer(headers.get('content-encoding') ?? '');
  if (encoding === '') headers.delete('content-encoding');
  else headers.set('content-encoding', encoding);
  return { headers: Object.fromEntries(headers), meta: Object.fromEntries(meta) };
}

/** `aws-chunked` describes the request's body, which is decoded. */
function withoutTransfer(encoding: string): string {
  return encoding
    .split(',')
    .filter((one) => one.trim().toLowerCase() !== 'aws-chunked')
    .join(',')
    .trim();
}

function assertHeader(name: string, value: string): void {
  if (isHeader(name, value)) return;
  throw new S3Error('InvalidArgument', `${JSON.stringify(name)} has characters that a header cannot have`);
}

export function isHeader(name: string, value: string): boolean {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(name) && /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}

export function metaHeader(name: string): string {
  return META_PREFIX + name;
}

/** The attribute of an object with these contents. */
export function recordXattrs(
  record: Omit<ObjectRecord, 'of'>,
  file: Pick<Attributes, 'inode' | 'contents'>,
): NewXattrs {
  const { inode, contents } = file;
  const ofContents = record.computed === undefined ? {} : { of: [inode, contents.epoch, contents.seq] };
  return [{ name: RECORD_XATTR, value: encodeRecord({ ...record, ...ofContents }) }];
}
