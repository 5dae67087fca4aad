import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { childrenOf, childText, XML_DECLARATION, xmlError, xmlRoot } from '../../platform/s3-xml.ts';
import { countOf, sendXml } from './bucket-operations.ts';
import type { Bucket, Buckets } from './buckets.ts';
import { bodyOf, header, readBody, removerOf, type S3Call } from './call.ts';
import {
  ALGORITHMS,
  algorithmOf,
  checksumElement,
  checksumHeader,
  checksumTypeOf,
  defaultChecksumType,
} from './checksums.ts';
import { keyCompare } from './keys.ts';
import { commonPrefix, encoderOf, LIST_MAX, OWNER } from './list-objects.ts';
import {
  type ClaimedObject,
  type ClaimedPart,
  type MultipartUploads,
  type Upload,
  uploadCompare,
} from './multipart.ts';
import {
  addChecksum,
  assertCopied,
  changeConditionsOf,
  checksumXml,
  describedBy,
  type ObjectOperations,
} from './object-operations.ts';
import type { Computed } from './object-record.ts';
import type { ObjectStore } from './object-store.ts';
import { PARTS_MAX } from './part-sizes.ts';
import { refuseUnknown } from './refusals.ts';
import { S3Error, s3ErrorOf } from './s3-error.ts';
import { httpSecondsIso, isoOfMs } from './times.ts';
import { requiredText, xmlParse } from './xml.ts';

const DOCUMENT_BYTES_MAX = 4 * 1024 * 1024;
/** A completion that takes longer is answered piece by piece, so that no client aborts it. */
const SILENT_MS_MAX = 5_000;

export interface MultipartOperationsParts {
  readonly world: World;
  readonly buckets: Buckets;
  readonly objects: ObjectStore;
  readonly uploads: MultipartUploads;
  readonly of: Pick<ObjectOperations, 'sourceOf'>;
}

/** Operations on multipart uploads. */
export class MultipartOperations {
  readonly #parts: MultipartOperationsParts;

  constructor(parts: MultipartOperationsParts) {
    this.#parts = parts;
  }

  async create(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    refuseUnknown((name) => header(call, name));
    await this.#parts.buckets.directoryOf(bucket);
    const algorithm = algorithmOf(header(call, 'x-amz-checksum-algorithm'));
    const type = checksumTypeOf(header(call, 'x-amz-checksum-type'));
    if (algorithm === null && type !== null)
      throw new S3Error('InvalidRequest', 'x-amz-checksum-type needs x-amz-checksum-algorithm');
    const isImpossible =
      (type === 'FULL_OBJECT' && algorithm?.startsWith('SHA')) ||
      (type === 'COMPOSITE' && algorithm === 'CRC64NVME');
    if (isImpossible)
      throw new S3Error('InvalidRequest', `The checksum type ${type} is not possible with ${algorithm}`);
    const checksumType = algorithm === null ? null : (type ?? defaultChecksumType(algorithm));
    const initiatedMs = this.#parts.world.wallMs();
    const record = { key, ...describedBy(call), initiatedMs, algorithm, checksumType };
    const id = await this.#parts.uploads.create(bucket, record);
    if (algorithm !== null && checksumType !== null)
      call.reply.header('x-amz-checksum-algorithm', algorithm).header('x-amz-checksum-type', checksumType);
    return sendXml(call, 'InitiateMultipartUploadResult', { Bucket: bucket.name, Key: key, UploadId: id });
  }

  async putPart(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const [id, number] = [uploadIdOf(call), partNumberOf(call)];
    const { uploads } = this.#parts;
    await this.#parts.buckets.directoryOf(bucket);
    const upload = await uploads.find(bucket, key, id);
    const { algorithm } = upload.record;
    const body = bodyOf(call, { algorithm });
    const claimed = body.check.algorithm;
    if (algorithm !== null && claimed !== algorithm)
      throw new S3Error(
        'InvalidRequest',
        `The upload was created with the checksum algorithm ${algorithm}, but the part has ${claimed}`,
      );
    const computed = await uploads.putPart(bucket, upload, number, body);
    call.reply.header('etag', `"${computed.etag}"`);
    if (computed.checksum !== undefined) addChecksum(call.reply, computed.checksum);
    return call.reply.send();
  }

  async copyPart(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const [id, number] = [uploadIdOf(call), partNumberOf(call)];
    const source = this.#parts.of.sourceOf(call);
    await this.#parts.buckets.directoryOf(bucket);
    const found = await this.#parts.objects.find(source.bucket, source.key);
    assertCopied(call, found);
    const range = copyRange(header(call, 'x-amz-copy-source-range'), found.attributes.sizeBytes);
    const copied = await this.#parts.uploads.copyPart(bucket, key, id, number, {
      attributes: found.attributes,
      ...(range === null ? {} : { range }),
    });
    return sendXml(call, 'CopyPartResult', {
      LastModified: httpSecondsIso(copied.attributes.modifiedNs),
      ETag: copied.etag,
    });
  }

  async complete(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const id = uploadIdOf(call);
    await this.#parts.buckets.directoryOf(bucket);
    const body = await readBody(call, DOCUMENT_BYTES_MAX, { areOfObject: true });
    const document = xmlParse(body, 'CompleteMultipartUpload');
    const parts = childrenOf(document, 'Part').map((part): ClaimedPart => {
      const number = Number(requiredText(part, 'PartNumber'));
      const [checksum = null] = ALGORITHMS.flatMap((algorithm) => {
        const value = childText(part, checksumElement(algorithm));
        return value === undefined ? [] : [{ algorithm, value }];
      });
      return { number, etag: requiredText(part, 'ETag'), checksum };
    });
    const claimed = { ...claimedObject(call), parts };
    const conditions = changeConditionsOf(call);
    const result = (computed: Computed): string =>
      xmlRoot('CompleteMultipartUploadResult', {
        Location: `/${bucket.name}/${key}`,
        Bucket: bucket.name,
        Key: key,
        ETag: `"${computed.etag}"`,
        ...checksumXml(computed.checksum),
      });
    const work = this.#parts.uploads.complete(bucket, key, id, claimed, conditions, removerOf(call));
    return this.#sendLate(call, work.then(result));
  }

  /** Answers in time, or begins the answer, and keeps it going: an error is then in the document. */
  async #sendLate({ reply }: S3Call, work: Promise<string>): Promise<FastifyReply> {
    reply.type('application/xml');
    const late = Symbol('late');
    const first = await Promise.race([work, this.#afterSilence(late)]);
    if (typeof first === 'string') return reply.send(Buffer.from(XML_DECLARATION + first));
    const settled = work.catch((error: unknown) => {
      if (!(error instanceof ServiceError)) throw error;
      const { s3: Code, message: Message } = s3ErrorOf(error);
      return xmlError({ Code, Message }).slice(XML_DECLARATION.length);
    });
    const pieces = async function* (silence: () => Promise<symbol>): AsyncGenerator<string> {
      yield XML_DECLARATION;
      for (;;) {
        const next = await Promise.race([settled, silence()]);
        // White space before the root changes nothing.
        yield typeof next === 'string' ? next : '\n';
        if (typeof next === 'string') return;
      }
    };
    return reply.send(
      Readable.from(
        pieces(() => this.#afterSilence(late)),
        { objectMode: false },
      ),
    );
  }

  #afterSilence(late: symbol): Promise<symbol> {
    return this.#parts.world.sleep(SILENT_MS_MAX).then(() => late);
  }

  async abort(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    await this.#parts.buckets.directoryOf(bucket);
    await this.#parts.uploads.abort(bucket, key, uploadIdOf(call));
    return call.reply.code(204).send();
  }

  async listParts(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const id = uploadIdOf(call);
    await this.#parts.buckets.directoryOf(bucket);
    const most = countOf(call.query.get('max-parts'), 'max-parts', LIST_MAX);
    const after = countOf(call.query.get('part-number-marker'), 'part-number-marker', PARTS_MAX);
    const marker = call.query.has('part-number-marker') ? after : 0;
    const { record } = await this.#parts.uploads.find(bucket, key, id);
    const all = (await this.#parts.uploads.parts(bucket, key, id)).filter(({ number }) => number > marker);
    const shown = all.slice(0, most);
    return sendXml(call, 'ListPartsResult', {
      Bucket: bucket.name,
      Key: key,
      UploadId: id,
      Initiator: OWNER,
      Owner: OWNER,
      StorageClass: 'STANDARD',
      PartNumberMarker: marker,
      NextPartNumberMarker: shown.at(-1)?.number ?? 0,
      MaxParts: most,
      IsTruncated: shown.length < all.length,
      ChecksumAlgorithm: record.algorithm ?? undefined,
      ChecksumType: record.checksumType ?? undefined,
      Part: shown.map(({ number, attributes, etag, checksum }) => ({
        PartNumber: number,
        LastModified: httpSecondsIso(attributes.modifiedNs),
        ETag: etag,
        Size: attributes.sizeBytes,
        ...(checksum === null ? {} : { [checksumElement(checksum.algorithm)]: checksum.value }),
      })),
    });
  }

  async listUploads(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const { query } = call;
    await this.#parts.buckets.directoryOf(bucket);
    const encode = encoderOf(query.get('encoding-type'));
    const most = countOf(query.get('max-uploads'), 'max-uploads', LIST_MAX);
    const [prefix, delimiter] = [query.get('prefix') ?? '', query.get('delimiter') ?? ''];
    const [keyMarker, idMarker] = [query.get('key-marker') ?? '', query.get('upload-id-marker') ?? ''];
    const marker = { id: idMarker, record: { key: keyMarker } };
    const groupOf = (key: string): string | null => commonPrefix(key, prefix, delimiter);
    const later = (await this.#parts.uploads.list(bucket)).filter(({ id, record }) => {
      const { key } = record;
      if (!key.startsWith(prefix)) return false;
      // Without the marker's upload, all uploads of its key are before it.
      const isLater =
        idMarker === '' ? keyCompare(key, keyMarker) > 0 : uploadCompare({ id, record }, marker) > 0;
      // The marker of a page that ended with a group.
      return isLater && !(keyMarker !== '' && groupOf(key) === keyMarker);
    });
    const shown: Upload[] = [];
    const groups = new Set<string>();
    let last: { readonly key: string; readonly id: string } | null = null;
    let isTruncated = false;
    for (const upload of later) {
      const group = groupOf(upload.record.key);
      if (group !== null && groups.has(group)) continue;
      isTruncated = shown.length + groups.size === most;
      if (isTruncated) break;
      if (group === null) shown.push(upload);
      else groups.add(group);
      last = group === null ? { key: upload.record.key, id: upload.id } : { key: group, id: '' };
    }
    // As for objects, a page of none is the last one.
    if (most === 0) isTruncated = false;
    const next = isTruncated ? last : null;
    return sendXml(call, 'ListMultipartUploadsResult', {
      Bucket: bucket.name,
      KeyMarker: encode(keyMarker),
      UploadIdMarker: idMarker,
      NextKeyMarker: next === null ? '' : encode(next.key),
      NextUploadIdMarker: next?.id ?? '',
      Prefix: encode(prefix),
      Delimiter: delimiter === '' ? undefined : encode(delimiter),
      MaxUploads: most,
      EncodingType: query.get('encoding-type'),
      IsTruncated: isTruncated,
      Upload: shown.map(({ id, record }) => ({
        Key: encode(record.key),
        UploadId: id,
        Initiator: OWNER,
        Owner: OWNER,
        StorageClass: 'STANDARD',
        Initiated: isoOfMs(record.initiatedMs),
        ChecksumAlgorithm: record.algorithm ?? undefined,
        ChecksumType: record.checksumType ?? undefined,
      })),
      CommonPrefixes: [...groups].map((Prefix) => ({ Prefix: encode(Prefix) })),
    });
  }
}

/** @throws S3Error `InvalidRequest`, `InvalidArgument` */
function claimedObject(call: S3Call): Omit<ClaimedObject, 'parts'> {
  const size = header(call, 'x-amz-mp-object-size');
  if (size !== undefined && !/^\d{1,15}$/.test(size))
    throw new S3Error('InvalidArgument', 'x-amz-mp-object-size is no number of bytes');
  const claims = ALGORITHMS.flatMap((algorithm) => {
    const value = header(call, checksumHeader(algorithm));
    return value === undefined ? [] : [{ algorithm, value: value.trim() }];
  });
  if (claims.length > 1) throw new S3Error('InvalidRequest', 'Send one checksum only');
  return {
    sizeBytes: size === undefined ? null : Number(size),
    checksum: claims[0] ?? null,
    checksumType: checksumTypeOf(header(call, 'x-amz-checksum-type')),
  };
}

function uploadIdOf({ query }: S3Call): string {
  return query.get('uploadId') ?? '';
}

/** @throws S3Error `InvalidArgument` */
function partNumberOf({ query }: S3Call): number {
  const text = query.get('partNumber') ?? '';
  const number = Number(text);
  if (/^\d{1,5}$/.test(text) && number >= 1 && number <= PARTS_MAX) return number;
  throw new S3Error('InvalidArgument', `The part number must be an integer from 1 to ${PARTS_MAX}`);
}

/** @throws S3Error `InvalidArgument`, `InvalidRange` */
function copyRange(
  text: string | undefined,
  sizeBytes: number,
): { readonly start: number; readonly end: number } | null {
  if (text === undefined) return null;
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(text) ?? [];
  if (first === undefined || last === undefined || Number(last) < Number(first))
    throw new S3Error('InvalidArgument', 'x-amz-copy-source-range has the form bytes=FIRST-LAST');
  if (Number(last) >= sizeBytes)
    throw new S3Error('InvalidRange', `The range ends after the end of the source (${sizeBytes} bytes)`);
  return { start: Number(first), end: Number(last) + 1 };
}
