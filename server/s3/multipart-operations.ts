import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { countOf, sendXml } from './bucket-operations.ts';
import type { Bucket, Buckets } from './buckets.ts';
import { bodyOf, header, readBody, removerOf, type S3Call } from './call.ts';
import { ALGORITHMS, algorithmOf, checksumElement, checksumTypeOf } from './checksums.ts';
import { encoderOf, LIST_MAX, OWNER } from './list-objects.ts';
import { type ClaimedPart, type MultipartUploads, PARTS_MAX } from './multipart.ts';
import {
  addChecksum,
  assertCopied,
  changeConditionsOf,
  checksumXml,
  describedBy,
  type ObjectOperations,
  refuseUnknown,
} from './object-operations.ts';
import type { Computed } from './object-record.ts';
import type { ObjectStore } from './object-store.ts';
import { S3Error, s3ErrorOf } from './s3-error.ts';
import { httpSecondsIso, isoOfMs } from './times.ts';
import { childrenOf, childText, requiredText, XML_DECLARATION, xmlError, xmlParse, xmlRoot } from './xml.ts';

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
    const checksumType = checksumTypeOf(header(call, 'x-amz-checksum-type'));
    if (checksumType === 'FULL_OBJECT' && algorithm?.startsWith('SHA'))
      throw new S3Error('InvalidRequest', `The checksum type FULL_OBJECT is not possible with ${algorithm}`);
    const initiatedMs = this.#parts.world.wallMs();
    const record = { key, ...describedBy(call), initiatedMs, algorithm, checksumType };
    const id = await this.#parts.uploads.create(bucket, record);
    if (algorithm !== null) call.reply.header('x-amz-checksum-algorithm', algorithm);
    return sendXml(call, 'InitiateMultipartUploadResult', { Bucket: bucket.name, Key: key, UploadId: id });
  }

  async putPart(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const [id, number] = [uploadIdOf(call), partNumberOf(call)];
    const computed = await this.#parts.uploads.putPart(bucket, key, id, number, bodyOf(call));
    call.reply.header('etag', `"${computed.etag}"`);
    if (computed.checksum !== undefined) addChecksum(call.reply, computed.checksum);
    return call.reply.send();
  }

  async copyPart(call: S3Call, bucket: Bucket, key: string): Promise<FastifyReply> {
    const [id, number] = [uploadIdOf(call), partNumberOf(call)];
    const source = this.#parts.of.sourceOf(call);
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
    const document = xmlParse(await readBody(call, DOCUMENT_BYTES_MAX), 'CompleteMultipartUpload');
    const claimed = childrenOf(document, 'Part').map((part): ClaimedPart => {
      const number = Number(requiredText(part, 'PartNumber'));
      const checksums = ALGORITHMS.flatMap((one) => childText(part, checksumElement(one)) ?? []);
      return { number, etag: requiredText(part, 'ETag'), checksum: checksums[0] ?? null };
    });
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
    const all = (await this.#parts.uploads.list(bucket)).filter(({ record }) =>
      record.key.startsWith(prefix),
    );
    // The marker may have been completed meanwhile: then later keys follow.
    const at = all.findIndex(({ id, record }) => record.key === keyMarker && id === idMarker);
    const later =
      keyMarker === ''
        ? all
        : at >= 0
          ? all.slice(at + 1)
          : all.filter(({ record }) => record.key > keyMarker);
    const groupOf = (key: string): string | null => {
      const end = delimiter === '' ? -1 : key.indexOf(delimiter, prefix.length);
      return end < 0 ? null : key.slice(0, end + delimiter.length);
    };
    const single = later.filter(({ record }) => groupOf(record.key) === null);
    const shown = single.slice(0, most);
    const groups = new Set(later.flatMap(({ record }) => groupOf(record.key) ?? []));
    const last = shown.length < single.length ? shown.at(-1) : undefined;
    return sendXml(call, 'ListMultipartUploadsResult', {
      Bucket: bucket.name,
      KeyMarker: encode(keyMarker),
      UploadIdMarker: idMarker,
      NextKeyMarker: last === undefined ? '' : encode(last.record.key),
      NextUploadIdMarker: last?.id ?? '',
      Prefix: encode(prefix),
      Delimiter: delimiter === '' ? undefined : encode(delimiter),
      MaxUploads: most,
      EncodingType: query.get('encoding-type'),
      IsTruncated: last !== undefined,
      Upload: shown.map(({ id, record }) => ({
        Key: encode(record.key),
        UploadId: id,
        Initiator: OWNER,
        Owner: OWNER,
        StorageClass: 'STANDARD',
        Initiated: isoOfMs(record.initiatedMs),
      })),
      CommonPrefixes: [...groups].map((Prefix) => ({ Prefix: encode(Prefix) })),
    });
  }
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
