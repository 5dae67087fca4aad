import { createHash } from 'node:crypto';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { attributesAt, NO_PRECONDITION } from '../http/conditional-change.ts';
import type { NamedFile, NewFiles } from '../http/new-files.ts';
import type { CopySource } from '../http/upload.ts';
import { type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Bucket, bucketPath, removeWholeTree } from './buckets.ts';
import type { ReceivedBody } from './call.ts';
import { entriesOf, xattrOf } from './catalog-reads.ts';
import {
  type Checksum,
  type ChecksumAlgorithm,
  type ChecksumType,
  checksumOf,
  defaultChecksumType,
} from './checksums.ts';
import { combinedCrc, isCombinable } from './crc-combine.ts';
import { keyCompare, newKeyPath, UPLOADS_NAME } from './keys.ts';
import type { Computed, Description } from './object-record.ts';
import {
  assertRecordFits,
  computedOf,
  decodeRecord,
  encodeRecord,
  IMPLICIT_XATTR,
  objectEtag,
  RECORD_XATTR,
  recordXattrs,
} from './object-record.ts';
import type { ChangeConditions, ObjectStore } from './object-store.ts';
import { PARTS_MAX } from './part-sizes.ts';
import { S3Error } from './s3-error.ts';
import type { Tags } from './tags.ts';

/** All parts but the last one are at least this long, in bytes. */
const PART_BYTES_MIN = 5 * 1024 * 1024;
/** Of 64 parts with SHA-256, 512 with CRC-32: listings read all that is beside an object. */
const PART_CHECKSUMS_LENGTH_MAX = 2732;
const UPLOAD_ID = /^[0-9a-f]{32}$/;
const SWEEP_MS = 3_600_000;
const DIRECTORY_MODE = 0o700;

/** What a client says at the beginning of an upload. */
export interface UploadRecord extends Description {
  readonly key: string;
  readonly tags: Tags;
  readonly initiatedMs: number;
  readonly algorithm: ChecksumAlgorithm | null;
  readonly checksumType: ChecksumType | null;
}

export interface Upload {
  readonly id: string;
  readonly record: UploadRecord;
}

export interface UploadedPart {
  readonly number: number;
  readonly attributes: Attributes;
  /** In quotes. */
  readonly etag: string;
  readonly checksum: Checksum | null;
}

type ClaimedChecksum = Pick<Checksum, 'algorithm' | 'value'>;

/** What a client says of a part when it completes an upload. */
export interface ClaimedPart {
  readonly number: number;
  readonly etag: string;
  readonly checksum: ClaimedChecksum | null;
}

/** What a client says of the object when it completes an upload; null: nothing. */
export interface ClaimedObject {
  readonly parts: readonly ClaimedPart[];
  readonly sizeBytes: number | null;
  readonly checksum: ClaimedChecksum | null;
  readonly checksumType: ChecksumType | null;
}

export interface MultipartParts {
  readonly gateway: Gateway;
  readonly world: World;
  readonly files: NewFiles;
  readonly objects: ObjectStore;
  /** Unfinished uploads are removed after this time. */
  readonly expiryMs: number;
}

/**
 * Uploads in parts. Each upload is a directory of its bucket that no key reaches, and each part a file in it: parts
 * survive a loss of power, any server takes them, and a part that is sent twice is one of both as a whole. Completion
 * copies the parts, at the servers, into a file that then gets the key's name.
 */
export class MultipartUploads {
  readonly #parts: MultipartParts;
  /** When expired uploads of a bucket were last removed. */
  readonly #sweptMs = new Map<string, number>();
  #lastIdMs = 0;

  constructor(parts: MultipartParts) {
    this.#parts = parts;
  }

  async create(bucket: Bucket, record: UploadRecord): Promise<string> {
    newKeyPath(record.key);
    const { gateway, world } = this.#parts;
    const id = this.#idMs(record).toString(16).padStart(12, '0') + world.randomBytes(10).toString('hex');
    const make = (path: FilePath, xattr: string): Promise<unknown> =>
      gateway.durably({
        kind: 'make-directory',
        ...{ place: placeOf(path), mode: DIRECTORY_MODE, uid: 0, gid: 0 },
        xattrs: [{ name: RECORD_XATTR, value: xattr }],
      });
    await make(bucketPath(bucket, [UPLOADS_NAME]), IMPLICIT_XATTR.value).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
    });
    await make(uploadPath(bucket, id), encodeRecord({ upload: record }));
    this.#sweepSoon(bucket);
    return id;
  }

  /** Ids are in the order of creation, for listings: also those of one millisecond, or of a clock that was set back. */
  #idMs({ initiatedMs }: UploadRecord): number {
    this.#lastIdMs = Math.max(Math.floor(initiatedMs), this.#lastIdMs + 1);
    return this.#lastIdMs;
  }

  /** @throws S3Error `NoSuchUpload` */
  async find(bucket: Bucket, key: string, id: string): Promise<Upload> {
    const found = await this.#findOrNull(bucket, key, id);
    if (found !== null) return found.upload;
    throw noSuchUpload(id);
  }

  async #findOrNull(
    bucket: Bucket,
    key: string,
    id: string,
  ): Promise<{ readonly upload: Upload; readonly directory: Attributes } | null> {
    if (!UPLOAD_ID.test(id)) return null;
    const { gateway } = this.#parts;
    const directory = await attributesAt(gateway, uploadPath(bucket, id), { follow: false, live: false });
    if (directory === null) return null;
    const record = uploadRecordOf(await xattrOf(gateway, directory, RECORD_XATTR));
    return record?.key === key ? { upload: { id, record }, directory } : null;
  }

  /** @param upload as `find` returned it @throws S3Error `NoSuchUpload` */
  async putPart(
    bucket: Bucket,
    { id }: Upload,
    number: number,
    { body, check, lengthBytes, announcedBytes }: ReceivedBody,
  ): Promise<Computed> {
    const path = partPath(bucket, id, number);
    const { files } = this.#parts;
    return this.#unlessEnded(id, async () => {
      const limits = { announcedBytes, lengthBytes };
      const received = await files.receive(path, NO_PRECONDITION, body, check, limits);
      const { md5, checksum } = check.digests;
      const computed = { etag: md5.toString('hex'), ...(checksum === null ? {} : { checksum }) };
      await files.name(path, received, NO_PRECONDITION, null, { trash: false }, (file) =>
        recordXattrs({ computed }, file),
      );
      return computed;
    });
  }

  /** Creates a part from a part of an object. @returns its entity tag, in quotes, and the part's file */
  async copyPart(
    bucket: Bucket,
    key: string,
    id: string,
    number: number,
    source: CopySource,
  ): Promise<NamedFile> {
    await this.find(bucket, key, id);
    const path = partPath(bucket, id, number);
    const { files } = this.#parts;
    return this.#unlessEnded(id, async () => {
      const staged = await files.createStaged(path, NO_PRECONDITION);
      const state = await files.fillFrom(staged, [{ ...source, exact: true }]);
      return files.name(path, { kind: 'staged', state }, NO_PRECONDITION, null, { trash: false });
    });
  }

  /** The upload's directory is gone once another request has completed or aborted it. */
  async #unlessEnded<Result>(id: string, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      const isGone =
        error instanceof ServiceError && error.code === 'not-found' && !(error instanceof S3Error);
      throw isGone ? noSuchUpload(id) : error;
    }
  }

  /** The parts in the order of their numbers. */
  async parts(bucket: Bucket, key: string, id: string): Promise<UploadedPart[]> {
    const found = await this.#findOrNull(bucket, key, id);
    if (found === null) throw noSuchUpload(id);
    return this.#partsIn(found.directory);
  }

  async #partsIn(directory: Attributes): Promise<UploadedPart[]> {
    const { gateway } = this.#parts;
    const parts: UploadedPart[] = [];
    const entries = entriesOf(gateway, directory, { live: true, xattr: RECORD_XATTR });
    for await (const { name, attributes, xattr } of entries) {
      const record = decodeRecord(xattr);
      const checksum = computedOf(record, attributes)?.checksum ?? null;
      parts.push({ number: Number(name), attributes, etag: objectEtag(record, attributes), checksum });
    }
    return parts;
  }

  /**
   * Creates the object from its parts. A repetition, after an answer that was lost, gets the same answer.
   * @throws S3Error `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `NoSuchUpload`, `PreconditionFailed`,
   * `BadDigest`, `InvalidRequest`
   */
  async complete(
    bucket: Bucket,
    key: string,
    id: string,
    claimed: ClaimedObject,
    conditions: ChangeConditions,
    removal: { readonly by?: string },
  ): Promise<Computed> {
    const { objects, gateway } = this.#parts;
    const found = await this.#findOrNull(bucket, key, id);
    if (found === null) return this.#completedBefore(bucket, key, id);
    const stored = await this.#partsIn(found.directory);
    try {
      const parts = chosenParts(stored, claimed.parts);
      const { record } = found.upload;
      const computed = computedOfParts(parts, record);
      assertClaimed(claimed, parts, computed, record);
      const { headers, meta, tags } = record;
      const ofObject = { headers, meta, tags, upload: id };
      assertRecordFits({ ...ofObject, computed });
      const object = {
        ...{ bucket, key, conditions, removal },
        // Once it was completed or aborted, the key may have a later object, or none.
        assertWanted: async () => void (await this.find(bucket, key, id)),
      };
      await objects.putCopy(object, async () => ({
        sources: parts.map(({ attributes }) => ({ attributes })),
        computed,
        record: ofObject,
      }));
      await removeWholeTree(gateway, uploadPath(bucket, id));
      return computed;
    } catch (error) {
      // Another request may have completed the upload, and removed its parts, meanwhile.
      const isLate =
        error instanceof ServiceError &&
        (error.code === 'not-found' || error.code === 'bad-request' || error.code === 'precondition-failed');
      const before = isLate ? await this.#completedOrNull(bucket, key, id) : null;
      if (before !== null) return before;
      if (isLate && (await this.#findOrNull(bucket, key, id)) === null) throw noSuchUpload(id);
      throw error;
    }
  }

  async #completedBefore(bucket: Bucket, key: string, id: string): Promise<Computed> {
    const computed = await this.#completedOrNull(bucket, key, id);
    if (computed === null) throw noSuchUpload(id);
    return computed;
  }

  async #completedOrNull(bucket: Bucket, key: string, id: string): Promise<Computed | null> {
    const found = await this.#parts.objects.find(bucket, key).catch((error: unknown) => {
      if (error instanceof S3Error && error.s3 === 'NoSuchKey') return null;
      throw error;
    });
    return found?.record.upload === id ? computedOf(found.record, found.attributes) : null;
  }

  /** @throws S3Error `NoSuchUpload` */
  async abort(bucket: Bucket, key: string, id: string): Promise<void> {
    await this.find(bucket, key, id);
    await removeWholeTree(this.#parts.gateway, uploadPath(bucket, id));
  }

  /** All unfinished uploads of a bucket, by key and time. */
  async list(bucket: Bucket): Promise<Upload[]> {
    const { gateway } = this.#parts;
    const path = bucketPath(bucket, [UPLOADS_NAME]);
    const directory = await attributesAt(gateway, path, { follow: false, live: false });
    if (directory === null) return [];
    const uploads: Upload[] = [];
    const entries = entriesOf(gateway, directory, { xattr: RECORD_XATTR });
    for await (const { name, xattr } of entries) {
      const record = uploadRecordOf(xattr);
      // There may be many: what is not listed is not kept.
      if (record !== null && UPLOAD_ID.test(name))
        uploads.push({ id: name, record: { ...record, headers: {}, meta: {}, tags: {} } });
    }
    return uploads.toSorted(uploadCompare);
  }

  /** Removes expired uploads of a bucket, once an hour at most; the request does not wait for it. */
  #sweepSoon(bucket: Bucket): void {
    const { world, gateway } = this.#parts;
    const nowMs = world.nowMs();
    if (nowMs - (this.#sweptMs.get(bucket.name) ?? Number.NEGATIVE_INFINITY) < SWEEP_MS) return;
    this.#sweptMs.set(bucket.name, nowMs);
    const sweep = async (): Promise<void> => {
      const oldestMs = world.wallMs() - this.#parts.expiryMs;
      for (const { id, record } of await this.list(bucket))
        if (record.initiatedMs < oldestMs) await removeWholeTree(gateway, uploadPath(bucket, id));
    };
    sweep().catch((error: unknown) => {
      // The next upload of the bucket that begins after an hour tries it again.
      if (!(error instanceof ServiceError)) throw error;
    });
  }
}

/** By key, then by time. */
export function uploadCompare(
  a: { readonly id: string; readonly record: Pick<UploadRecord, 'key'> },
  b: { readonly id: string; readonly record: Pick<UploadRecord, 'key'> },
): number {
  return keyCompare(a.record.key, b.record.key) || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
}

function uploadPath(bucket: Bucket, id: string): FilePath {
  return bucketPath(bucket, [UPLOADS_NAME, id]);
}

function partPath(bucket: Bucket, id: string, number: number): FilePath {
  return bucketPath(bucket, [UPLOADS_NAME, id, String(number).padStart(5, '0')]);
}

function placeOf({ volume, names }: FilePath): { readonly volume: string; readonly path: string } {
  return { volume, path: volumePath(names) };
}

function noSuchUpload(id: string): S3Error {
  return new S3Error('NoSuchUpload', `There is no multipart upload "${id.slice(0, 64)}" of this key`);
}

/** Null for a directory that no upload has created. */
function uploadRecordOf(xattr: string | undefined): UploadRecord | null {
  const value = xattr === undefined ? null : parseJsonObject(Buffer.from(xattr, 'base64').toString());
  const record = value?.upload as Partial<UploadRecord> | undefined;
  const { headers, meta, tags } = decodeRecord(encodeRecord(record ?? {}));
  if (typeof record?.key !== 'string' || typeof record.initiatedMs !== 'number') return null;
  const { key, initiatedMs, algorithm = null, checksumType = null } = record;
  return {
    key,
    initiatedMs,
    algorithm,
    checksumType,
    headers: headers ?? {},
    meta: meta ?? {},
    tags: tags ?? {},
  };
}

function bareTag(etag: string): string {
  return etag.replaceAll('"', '');
}

function chosenParts(parts: readonly UploadedPart[], claimed: readonly ClaimedPart[]): UploadedPart[] {
  if (claimed.length === 0 || claimed.length > PARTS_MAX)
    throw new S3Error('MalformedXML', `An upload has 1 to ${PARTS_MAX} parts`);
  const byNumber = new Map(parts.map((part) => [part.number, part]));
  // A client may list both answers for a part that it has sent twice: the later one counts.
  const wanted = claimed.filter(({ number, etag }, index) => {
    const next = claimed[index + 1];
    return next?.number !== number || bareTag(next.etag) === bareTag(etag);
  });
  const chosen = wanted.map(({ number, etag, checksum }, index) => {
    if (index > 0 && number <= (wanted[index - 1]?.number ?? 0))
      throw new S3Error('InvalidPartOrder', 'The parts are not in ascending order of their numbers');
    const part = byNumber.get(number);
    if (part === undefined || bareTag(part.etag) !== bareTag(etag))
      throw new S3Error('InvalidPart', `Part ${number} was not uploaded, or has another entity tag`);
    const { algorithm, value } = part.checksum ?? {};
    if (checksum !== null && (checksum.algorithm !== algorithm || checksum.value !== value))
      throw new S3Error('InvalidPart', `Part ${number} has another checksum`);
    return part;
  });
  const small = chosen.slice(0, -1).find(({ attributes }) => attributes.sizeBytes < PART_BYTES_MIN);
  if (small !== undefined)
    throw new S3Error(
      'EntityTooSmall',
      `Part ${small.number} has ${small.attributes.sizeBytes} bytes: all but the last have at least ${PART_BYTES_MIN}`,
    );
  return chosen;
}

/** The entity tag of an object in parts: the MD5 of the parts' MD5s, and their number. */
function computedOfParts(
  parts: readonly UploadedPart[],
  { algorithm, checksumType }: UploadRecord,
): Computed {
  const md5 = createHash('md5');
  for (const { etag } of parts) {
    const hex = bareTag(etag);
    // A part that was copied has no MD5: its tag stands for it.
    md5.update(/^[0-9a-f]{32}$/.test(hex) ? Buffer.from(hex, 'hex') : hex);
  }
  const sizes: [number, number][] = [];
  for (const { attributes } of parts) {
    const last = sizes.at(-1);
    if (last?.[0] === attributes.sizeBytes) last[1]++;
    else sizes.push([attributes.sizeBytes, 1]);
  }
  const checksum = checksumOfParts(parts, algorithm, checksumType);
  const partChecksums = checksum === null || algorithm === null ? '' : joinedChecksums(parts);
  return {
    etag: `${md5.digest('hex')}-${parts.length}`,
    parts: sizes,
    ...(checksum === null ? {} : { checksum }),
    ...(partChecksums === '' || partChecksums.length > PART_CHECKSUMS_LENGTH_MAX ? {} : { partChecksums }),
  };
}

function joinedChecksums(parts: readonly UploadedPart[]): string {
  const values = parts.map(({ checksum }) => Buffer.from(checksum?.value ?? '', 'base64'));
  return Buffer.concat(values).toString('base64');
}

/**
 * The checksum of an object, from those of its parts; null if a part has none, as parts that were copied. Without an
 * algorithm of the upload, CRCs that all parts have are combined.
 */
function checksumOfParts(
  parts: readonly UploadedPart[],
  ofUpload: ChecksumAlgorithm | null,
  typeOfUpload: ChecksumType | null,
): Checksum | null {
  const algorithm = ofUpload ?? parts[0]?.checksum?.algorithm;
  if (algorithm === undefined) return null;
  const values = parts.flatMap(({ checksum, attributes: { sizeBytes } }) =>
    checksum?.algorithm === algorithm ? [{ crc: Buffer.from(checksum.value, 'base64'), sizeBytes }] : [],
  );
  if (values.length < parts.length) return null;
  const type = ofUpload === null ? 'FULL_OBJECT' : (typeOfUpload ?? defaultChecksumType(ofUpload));
  if (type === 'COMPOSITE') {
    const value = checksumOf(algorithm, Buffer.concat(values.map(({ crc }) => crc)));
    return { algorithm, value: `${value}-${parts.length}`, type };
  }
  if (!isCombinable(algorithm)) return null;
  return { algorithm, value: combinedCrc(algorithm, values).toString('base64'), type };
}

/** @throws S3Error `InvalidRequest`, `BadDigest` */
function assertClaimed(
  { sizeBytes, checksum, checksumType }: ClaimedObject,
  parts: readonly UploadedPart[],
  computed: Computed,
  record: UploadRecord,
): void {
  const size = parts.reduce((sum, { attributes }) => sum + attributes.sizeBytes, 0);
  if (sizeBytes !== null && sizeBytes !== size)
    throw new S3Error(
      'InvalidRequest',
      `x-amz-mp-object-size is ${sizeBytes}, but the parts have ${size} bytes`,
    );
  const type = computed.checksum?.type ?? record.checksumType;
  if (checksumType !== null && checksumType !== type)
    throw new S3Error(
      'InvalidRequest',
      `The upload has the checksum type ${type ?? 'of none'}, not ${checksumType}`,
    );
  if (checksum === null) return;
  const { algorithm, value } = computed.checksum ?? {};
  if (algorithm === undefined || algorithm !== checksum.algorithm)
    throw new S3Error('InvalidRequest', `The upload has no checksum ${checksum.algorithm} to compare`);
  if (checksum.value !== value && checksum.value !== value?.replace(/-\d+$/, ''))
    throw new S3Error(
      'BadDigest',
      `The ${algorithm} of the request is ${checksum.value}, but the object has ${value}`,
    );
}
