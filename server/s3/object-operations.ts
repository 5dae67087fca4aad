import type { FastifyReply } from 'fastify';
import type { XmlElements } from '../../platform/s3-xml.ts';
import {
  checkUnchanged,
  conditionsOf,
  httpDate,
  isKnownToClient,
  NO_CONDITIONS,
} from '../http/conditions.ts';
import type { Downloads } from '../http/download.ts';
import { contentTypeOf } from '../http/form.ts';
import { rangeOf } from '../http/range.ts';
import { assertVolumeGranted } from '../security/volume-scope.ts';
import { countOf, sendXml } from './bucket-operations.ts';
import type { Bucket, Buckets } from './buckets.ts';
import { bodyOf, header, readBody, refuseVersion, removerOf, type S3Call } from './call.ts';
import { type Checksum, checksumElement, checksumHeader, splitChecksums } from './checksums.ts';
import { quotedTag } from './entity-tags.ts';
import {
  CONTENT_HEADERS,
  type Computed,
  computedOf,
  DEFAULT_TYPE,
  type Description,
  descriptionOf,
  isHeader,
  metaHeader,
  objectEtag,
} from './object-record.ts';
import type { ChangeConditions, FoundObject, NewObject, ObjectStore } from './object-store.ts';
import { refuseUnknown } from './refusals.ts';
import { removalConditions } from './removal-conditions.ts';
import { S3Error } from './s3-error.ts';
import { tagsOfHeader, tagsOfXml, tagsXml } from './tags.ts';
import { httpSecondsIso } from './times.ts';
import { xmlParse } from './xml.ts';

const DOCUMENT_BYTES_MAX = 64 * 1024;
export interface ObjectOperationsParts {
  readonly buckets: Buckets;
  readonly objects: ObjectStore;
  readonly downloads: Downloads;
}

/** Operations on one object. */
export class ObjectOperations {
  readonly #parts: ObjectOperationsParts;

  constructor(parts: ObjectOperationsParts) {
    this.#parts = parts;
  }

  /** `GET` and `HEAD`. */
  async get(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const { request, reply, query } = call;
    const found = await this.#parts.objects.find(bucket, key);
    const { attributes, record } = found;
    this.#describe(call, found);
    normalizeConditions(request.headers);
    const number = query.get('partNumber');
    if (number !== undefined && request.headers.range !== undefined)
      throw new S3Error('InvalidRequest', 'A request has a range or a part number, not both');
    const part = partRange(number, computedOf(record, attributes), attributes.sizeBytes);
    if (part !== null) {
      if (part.count !== null) reply.header('x-amz-mp-parts-count', String(part.count));
      if (part.range !== null) request.headers.range = part.range;
    }
    if (attributes.kind === 'directory') return sendDirectory(call, found);
    const wantsChecksum = header(call, 'x-amz-checksum-mode')?.toUpperCase() === 'ENABLED';
    return this.#parts.downloads.send(request, reply, attributes, {
      etagOf: (inode, contents) => objectEtag(record, { inode, contents }),
      rangesOfHead: true,
      describe: (to, contents) => {
        const checksum = computedOf(record, { inode: attributes.inode, contents })?.checksum;
        if (checksum === undefined || !wantsChecksum || request.headers.range !== undefined)
          removeChecksums(to);
        if (checksum !== undefined && wantsChecksum && request.headers.range === undefined)
          addChecksum(to, checksum);
      },
    });
  }

  /** Sets the headers that do not depend on the contents. */
  #describe({ reply, query }: S3Call, { record }: FoundObject): void {
    reply.header('content-type', DEFAULT_TYPE).header('accept-ranges', 'bytes');
    for (const [name, value] of Object.entries(record.headers ?? {})) reply.header(name, value);
    for (const [name, value] of Object.entries(record.meta ?? {})) reply.header(metaHeader(name), value);
    const tags = Object.keys(record.tags ?? {}).length;
    if (tags > 0) reply.header('x-amz-tagging-count', String(tags));
    for (const name of CONTENT_HEADERS) {
      const text = query.get(`response-${name}`);
      if (text === undefined) continue;
      const value = Buffer.from(text).toString('latin1');
      if (!isHeader(name, value))
        throw new S3Error('InvalidArgument', `response-${name} has characters that no header has`);
      reply.header(name, value);
    }
  }

  async put(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    refuseUnknown((name) => header(call, name));
    const object = newObject(call, bucket, key, describedBy(call));
    const { computed } = await this.#parts.objects.put(object, bodyOf(call));
    call.reply.header('etag', `"${computed.etag}"`);
    if (computed.checksum !== undefined) addChecksum(call.reply, computed.checksum);
    return call.reply.send();
  }

  async delete(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const conditions = removalConditions({
      ifMatch: header(call, 'if-match'),
      modified: header(call, 'x-amz-if-match-last-modified-time'),
      size: header(call, 'x-amz-if-match-size'),
    });
    await this.#parts.objects.remove(bucket, key, conditions, removerOf(call));
    return call.reply.code(204).send();
  }

  async copy(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    refuseUnknown((name) => header(call, name));
    const source = this.sourceOf(call);
    const directive = header(call, 'x-amz-metadata-directive') ?? 'COPY';
    const tagging = header(call, 'x-amz-tagging-directive') ?? 'COPY';
    for (const one of [directive, tagging])
      if (one !== 'COPY' && one !== 'REPLACE')
        throw new S3Error('InvalidArgument', `A directive is COPY or REPLACE, not "${one}"`);
    if (source.bucket.name === bucket.name && source.key === key && directive === 'COPY')
      throw new S3Error(
        'InvalidRequest',
        'An object is copied to itself only with other metadata: set x-amz-metadata-directive to REPLACE',
      );
    const described = describedBy(call);
    const { record: _, ...target } = newObject(call, bucket, key, {});
    let computed: Computed | null = null;
    const { attributes, etag } = await this.#parts.objects.putCopy(target, async () => {
      const found = await this.#sourceFound(call, source);
      const { headers = {}, meta = {}, tags = {} } = found.record;
      computed = computedOf(found.record, found.attributes);
      const record = {
        ...(directive === 'COPY' ? { headers, meta } : { headers: described.headers, meta: described.meta }),
        tags: tagging === 'COPY' ? tags : described.tags,
      };
      return { sources: [{ attributes: found.attributes }], computed, record };
    });
    const copied = computed as Computed | null;
    return sendXml(call, 'CopyObjectResult', {
      LastModified: httpSecondsIso(attributes.modifiedNs),
      ETag: copied === null ? etag : `"${copied.etag}"`,
      ...checksumXml(copied?.checksum),
    });
  }

  /** The object of `x-amz-copy-source`, in a bucket that the caller may read. @throws S3Error `InvalidArgument` */
  sourceOf(call: S3Call): { readonly bucket: Bucket; readonly key: string } {
    const text = header(call, 'x-amz-copy-source') ?? '';
    const [path = '', version] = text.split('?versionId=');
    refuseVersion(version);
    let decoded: string;
    try {
      decoded = decodeURIComponent(path.replace(/^\//, ''));
    } catch (cause) {
      throw new S3Error('InvalidArgument', 'x-amz-copy-source is not percent-encoded UTF-8', { cause });
    }
    const slash = decoded.indexOf('/');
    if (slash < 1 || slash === decoded.length - 1)
      throw new S3Error('InvalidArgument', 'x-amz-copy-source has the form BUCKET/KEY');
    const bucket = this.#parts.buckets.named(decoded.slice(0, slash));
    if (call.principal.kind === 'client') assertVolumeGranted(call.principal.grant, bucket.volume);
    return { bucket, key: decoded.slice(slash + 1) };
  }

  async #sourceFound(
    call: S3Call,
    { bucket, key }: { readonly bucket: Bucket; readonly key: string },
  ): Promise<FoundObject> {
    const found = await this.#parts.objects.find(bucket, key);
    if (found.attributes.kind === 'directory')
      throw new S3Error('InvalidArgument', 'A directory has no contents to copy: its key ends in "/"');
    assertCopied(call, found);
    return found;
  }

  async attributes(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const found = await this.#parts.objects.find(bucket, key);
    const { attributes, record } = found;
    const wanted = new Set(
      (header(call, 'x-amz-object-attributes') ?? '').split(',').map((name) => name.trim()),
    );
    if ([...wanted].some((name) => !ATTRIBUTES.has(name)))
      throw new S3Error(
        'InvalidArgument',
        `The header x-amz-object-attributes names some of ${[...ATTRIBUTES].join(', ')}`,
      );
    const computed = computedOf(record, attributes);
    call.reply.header('last-modified', httpDate(attributes.modifiedNs));
    return sendXml(call, 'GetObjectAttributesResponse', {
      ETag: wanted.has('ETag') ? objectEtag(record, attributes).replaceAll('"', '') : undefined,
      Checksum: wanted.has('Checksum') && computed?.checksum ? checksumXml(computed.checksum) : undefined,
      ObjectParts: wanted.has('ObjectParts') && computed !== null ? partsXml(call, computed) : undefined,
      StorageClass: wanted.has('StorageClass') ? 'STANDARD' : undefined,
      ObjectSize: wanted.has('ObjectSize') ? attributes.sizeBytes : undefined,
    });
  }

  async getTags(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const { record } = await this.#parts.objects.find(bucket, key, { live: false });
    return sendXml(call, 'Tagging', tagsXml(record.tags ?? {}));
  }

  async putTags(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const tags = tagsOfXml(xmlParse(await readBody(call, DOCUMENT_BYTES_MAX), 'Tagging'));
    const { attributes, record } = await this.#parts.objects.find(bucket, key, { live: false });
    await this.#parts.objects.setRecord(attributes.inode, { ...record, tags });
    return call.reply.send();
  }

  async deleteTags(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const { attributes, record } = await this.#parts.objects.find(bucket, key, { live: false });
    const { tags: _, ...others } = record;
    await this.#parts.objects.setRecord(attributes.inode, others);
    return call.reply.code(204).send();
  }
}

export function addChecksum(reply: FastifyReply, { algorithm, value, type }: Checksum): void {
  reply.header(checksumHeader(algorithm), value).header('x-amz-checksum-type', type);
}

export function removeChecksums(reply: FastifyReply): void {
  for (const name of Object.keys(reply.getHeaders()))
    if (name.startsWith('x-amz-checksum-')) reply.removeHeader(name);
}

export function checksumXml(checksum: Checksum | undefined): XmlElements {
  if (checksum === undefined) return {};
  return { [checksumElement(checksum.algorithm)]: checksum.value, ChecksumType: checksum.type };
}

export function describedBy(call: S3Call): Description & { readonly tags: Readonly<Record<string, string>> } {
  const { headers, raw } = call.request;
  const type = contentTypeOf(raw);
  const described = descriptionOf(type === '' ? headers : { ...headers, 'content-type': type });
  return { ...described, tags: tagsOfHeader(header(call, 'x-amz-tagging')) };
}

export function changeConditionsOf(call: S3Call): ChangeConditions {
  return {
    ifMatch: quotedTag(header(call, 'if-match')),
    ifNoneMatch: quotedTag(header(call, 'if-none-match')),
  };
}

function newObject(call: S3Call, bucket: Bucket, key: string, record: NewObject['record']): NewObject {
  return { bucket, key, conditions: changeConditionsOf(call), record, removal: removerOf(call) };
}

const ATTRIBUTES: ReadonlySet<string> = new Set([
  ...['ETag', 'Checksum', 'ObjectParts', 'StorageClass', 'ObjectSize'],
]);
/** Parts in one answer. */
const PARTS_MAX = 1_000;

/** Checks the conditions on the source of a copy. @throws S3Error `PreconditionFailed` */
export function assertCopied(call: S3Call, { attributes, record }: FoundObject): void {
  const condition = (name: string): string | undefined => header(call, `x-amz-copy-source-if-${name}`);
  const conditions = {
    ...NO_CONDITIONS,
    ifMatch: quotedTag(condition('match')),
    ifNoneMatch: quotedTag(condition('none-match')),
    ifModifiedSince: condition('modified-since'),
    ifUnmodifiedSince: condition('unmodified-since'),
  };
  const version = { etag: objectEtag(record, attributes), modifiedNs: attributes.modifiedNs };
  checkUnchanged(conditions, version, 'the source');
  if (isKnownToClient(conditions, version))
    throw new S3Error('PreconditionFailed', 'The source does not fulfil the conditions of the request');
}

function normalizeConditions(headers: Record<string, string | string[] | undefined>): void {
  for (const name of ['if-match', 'if-none-match', 'if-range']) {
    const value = headers[name];
    if (typeof value === 'string' && !(name === 'if-range' && value.includes(' ')))
      headers[name] = quotedTag(value);
  }
}

/** A directory has no contents, but a tag, a time and conditions as other objects. */
function sendDirectory({ request, reply }: S3Call, { attributes, record }: FoundObject): FastifyReply {
  const version = { etag: objectEtag(record, attributes), modifiedNs: attributes.modifiedNs };
  const conditions = conditionsOf(request.headers);
  checkUnchanged(conditions, version, 'the object');
  reply.header('etag', version.etag).header('last-modified', httpDate(version.modifiedNs));
  if (isKnownToClient(conditions, version)) return reply.code(304).send();
  const range = rangeOf(request.headers.range, conditions, { ...version, sizeBytes: 0 }, 0);
  if (range.kind === 'unsatisfiable') {
    reply.header('content-range', 'bytes */0');
    throw new S3Error('InvalidRange', 'The range begins after the end of the object (0 bytes)');
  }
  return reply.header('content-length', '0').send();
}

/** The parts of a multipart object, from the marker on. @throws S3Error `InvalidArgument` */
function partsXml(call: S3Call, { parts, checksum, partChecksums = '' }: Computed): XmlElements | undefined {
  if (parts === undefined) return undefined;
  const all = parts.flatMap(([size, count]) => new Array<number>(count).fill(size));
  const most = countOf(header(call, 'x-amz-max-parts'), 'x-amz-max-parts', PARTS_MAX);
  const text = header(call, 'x-amz-part-number-marker') ?? '0';
  const marker = countOf(text, 'x-amz-part-number-marker', all.length);
  const shown = all.slice(marker, marker + most);
  const sums = checksum === undefined ? [] : splitChecksums(partChecksums, checksum.algorithm, all.length);
  return {
    PartsCount: all.length,
    PartNumberMarker: marker,
    NextPartNumberMarker: marker + shown.length,
    MaxParts: most,
    IsTruncated: marker + shown.length < all.length,
    Part: shown.map((Size, index) => ({
      PartNumber: marker + index + 1,
      Size,
      ...(checksum === undefined ? {} : { [checksumElement(checksum.algorithm)]: sums[marker + index] }),
    })),
  };
}

/** The range of a part; `count` is null without parts. @throws S3Error `InvalidPart`, `InvalidArgument` */
function partRange(
  text: string | undefined,
  computed: Computed | null,
  sizeBytes: number,
): { readonly count: number | null; readonly range: string | null } | null {
  if (text === undefined) return null;
  const wanted = Number(text);
  if (!/^\d{1,5}$/.test(text) || wanted < 1)
    throw new S3Error('InvalidArgument', 'partNumber is a number from 1 on');
  const parts = computed?.parts ?? [[sizeBytes, 1]];
  const total = parts.reduce((sum, [, times]) => sum + times, 0);
  if (wanted > total) throw new S3Error('InvalidPart', `The object has ${total} parts`);
  const count = computed?.parts === undefined ? null : total;
  let [number, start] = [1, 0];
  for (const [size, times] of parts) {
    if (wanted < number + times) {
      const at = start + (wanted - number) * size;
      return { count, range: size === 0 ? null : `bytes=${at}-${at + size - 1}` };
    }
    number += times;
    start += times * size;
  }
  return { count, range: null };
}
