import type { IncomingHttpHeaders } from 'node:http';
import type { Attributes, NewXattrs } from '../../wire/catalog-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { etagOf } from '../http/conditions.ts';
import { ALGORITHMS, CHECKSUM_TYPES, type Checksum } from './checksums.ts';
import { arePairs, decodeSizes, encodeSizes, type PartSizes } from './part-sizes.ts';
import { S3Error } from './s3-error.ts';

/** Extended attribute with what S3 stores beside contents; mounts see it, and copy it with `cp --preserve=xattr`. */
export const RECORD_XATTR = 'user.s3';

/** Bytes of names and values of user metadata, as in S3. */
const METADATA_BYTES_MAX = 2048;
const META_PREFIX = 'x-amz-meta-';
/** Of an extended attribute. */
const RECORD_BYTES_MAX = 64 * 1024;
const MOST = Number.MAX_SAFE_INTEGER;
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
  /** Of an object that was uploaded in parts. */
  readonly parts?: PartSizes;
  /** Checksums of the parts, with the algorithm of `checksum`, one after the other in base64. */
  readonly partChecksums?: string;
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
  return recordBytes(record).toString('base64');
}

function recordBytes(record: { readonly computed?: Computed }): Buffer {
  const { computed } = record;
  if (computed?.parts === undefined) return Buffer.from(JSON.stringify(record));
  const { parts, ...others } = computed;
  return Buffer.from(JSON.stringify({ ...record, computed: { ...others, ...encodeSizes(parts) } }));
}

/**
 * To be called before the contents of an object in parts are copied.
 * @throws S3Error `InvalidRequest` if the record of the object would be too large to be stored
 */
export function assertRecordFits(record: Omit<ObjectRecord, 'of'> & { readonly computed: Computed }): void {
  // With the longest numbers of a file and its version.
  const longest: ObjectRecord = { ...record, of: [MOST, MOST, MOST] };
  const { length } = recordBytes(longest);
  if (length <= RECORD_BYTES_MAX) return;
  throw new S3Error(
    'InvalidRequest',
    `The sizes of the parts, the metadata and the tags of the object take ${length} bytes, and at most ` +
      `${RECORD_BYTES_MAX} are stored with an object: upload parts of equal sizes, or less metadata`,
  );
}

/** Returns the record in an attribute, which a user of a mount may have written: then as far as it is valid. */
export function decodeRecord(base64: string | undefined): ObjectRecord {
  if (base64 === undefined) return {};
  const value = parseJsonObject(Buffer.from(base64, 'base64').toString());
  if (value === null) return {};
  const { of, headers, meta, tags, upload, implicit } = value as Record<string, unknown>;
  const computed = computedIn(value.computed);
  const isOf = Array.isArray(of) && of.length === 3 && of.every(Number.isSafeInteger);
  return {
    ...(areHeaders(headers) && Object.keys(headers).every(isContentHeader) ? { headers } : {}),
    ...(areHeaders(meta) ? { meta } : {}),
    ...(isTexts(tags) ? { tags } : {}),
    ...(isOf && computed !== null ? { of: of as unknown as [number, number, number], computed } : {}),
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

/** Returns null for what is not valid. */
function computedIn(value: unknown): Computed | null {
  if (typeof value !== 'object' || value === null) return null;
  const { etag, checksum, parts, sizes, partChecksums } = value as Record<string, unknown>;
  if (typeof etag !== 'string' || !/^[0-9a-f]{32}(-\d{1,5})?$/.test(etag)) return null;
  if (checksum !== undefined && !isChecksum(checksum)) return null;
  const ofParts = sizes === undefined ? parts : decodeSizes(sizes);
  if (ofParts !== undefined && !arePairs(ofParts)) return null;
  return {
    etag,
    ...(checksum === undefined ? {} : { checksum }),
    ...(ofParts === undefined ? {} : { parts: ofParts }),
    ...(typeof partChecksums === 'string' ? { partChecksums } : {}),
  };
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
