import type { FastifyReply } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import {
  childrenOf,
  childText,
  XmlAttributed,
  type XmlElements,
  xmlDocument,
} from '../../platform/s3-xml.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { Bucket, Buckets } from './buckets.ts';
import { header, readBody, refuseVersion, removerOf, type S3Call } from './call.ts';
import { xattrOf } from './catalog-reads.ts';
import { CORS_XATTR, type CorsRule, corsOfXml, corsXml, decodeCors, encodeCors } from './cors.ts';
import { KeyWalk } from './key-walk.ts';
import {
  encoderOf,
  firstPrefix,
  LIST_MAX,
  listKeys,
  markerPosition,
  OWNER,
  objectXml,
  positionOf,
  tokenOf,
} from './list-objects.ts';
import type { ObjectStore } from './object-store.ts';
import { refuseAcl, refuseUnknownOfBucket } from './refusals.ts';
import { removalConditions } from './removal-conditions.ts';
import { S3Error, s3ErrorOf } from './s3-error.ts';
import { tagsOfXml, tagsXml } from './tags.ts';
import { httpSecondsIso } from './times.ts';
import { requiredText, xmlParse } from './xml.ts';

const DOCUMENT_BYTES_MAX = 2 * 1024 * 1024;
const DELETIONS_MAX = 1_000;
const DELETIONS_PARALLEL = 16;
const BUCKET_TAGS_MAX = 50;
/** The version of objects without versions. */
const NULL_VERSION = 'null';
/** Any region signs; this one is reported. */
export const REGION = 'us-east-1';

export interface BucketOperationsParts {
  readonly gateway: Gateway;
  readonly buckets: Buckets;
  readonly objects: ObjectStore;
}

/** Operations on buckets, and on several keys of one. */
export class BucketOperations {
  readonly #parts: BucketOperationsParts;
  readonly #walk: KeyWalk;

  constructor(parts: BucketOperationsParts) {
    this.#parts = parts;
    this.#walk = new KeyWalk(parts.gateway);
  }

  async listBuckets(call: S3Call): Promise<FastifyReply> {
    const { principal, query } = call;
    const prefix = query.get('prefix') ?? '';
    const after = query.get('continuation-token');
    const most = countOf(query.get('max-buckets'), 'max-buckets', 10_000);
    const isGranted = (name: string): boolean =>
      principal.kind !== 'client' ||
      principal.grant.volumes === null ||
      principal.grant.volumes.includes(this.#parts.buckets.named(name).volume);
    const all = (await this.#parts.buckets.list()).filter(
      ({ name }) => isGranted(name) && name.startsWith(prefix) && (after === undefined || name > after),
    );
    const shown = all.slice(0, most);
    return sendXml(call, 'ListAllMyBucketsResult', {
      Owner: OWNER,
      Buckets: {
        Bucket: shown.map(({ name, createdNs }) => ({ Name: name, CreationDate: httpSecondsIso(createdNs) })),
      },
      ContinuationToken: shown.length < all.length ? shown.at(-1)?.name : undefined,
      Prefix: prefix === '' ? undefined : prefix,
    });
  }

  async createBucket(call: S3Call, { name }: Pick<Bucket, 'name'>): Promise<FastifyReply> {
    refuseUnknownOfBucket((name) => header(call, name));
    const document = await readBody(call, DOCUMENT_BYTES_MAX);
    if (document.length > 0) xmlParse(document, 'CreateBucketConfiguration');
    await this.#parts.buckets.create(name);
    return call.reply.header('location', `/${name}`).send();
  }

  async headBucket(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    await this.#parts.buckets.directoryOf(bucket);
    return call.reply.header('x-amz-bucket-region', REGION).send();
  }

  async deleteBucket({ reply }: S3Call, bucket: Bucket): Promise<FastifyReply> {
    await this.#parts.buckets.remove(bucket);
    return reply.code(204).send();
  }

  async location(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    await this.#parts.buckets.directoryOf(bucket);
    // Empty for the first region.
    return sendXml(call, 'LocationConstraint', '');
  }

  /** Answers with a document that says that nothing is configured. */
  async fixed(call: S3Call, bucket: Bucket, root: string, contents: XmlElements): Promise<FastifyReply> {
    await this.#parts.buckets.directoryOf(bucket);
    return sendXml(call, root, contents);
  }

  async missing(bucket: Bucket, error: S3Error): Promise<never> {
    await this.#parts.buckets.directoryOf(bucket);
    throw error;
  }

  async listObjects(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const { query } = call;
    await this.#parts.buckets.directoryOf(bucket);
    const isSecond = query.get('list-type') === '2';
    const encode = encoderOf(query.get('encoding-type'));
    const [prefix, delimiter] = [query.get('prefix') ?? '', query.get('delimiter') ?? ''];
    // Keys are ordered whether a client of Ceph insists on it or not.
    if (query.get('allow-unordered') === 'true' && delimiter !== '')
      throw new S3Error('InvalidArgument', 'allow-unordered cannot be used with a delimiter');
    const countMax = countOf(query.get('max-keys'), 'max-keys', LIST_MAX);
    const token = query.get('continuation-token');
    const marker = (isSecond ? query.get('start-after') : query.get('marker')) ?? '';
    const isContinued = isSecond && token !== undefined && token !== '';
    const start = isContinued ? positionOf(token) : markerPosition(marker, prefix, delimiter);
    const { objects, prefixes, next } = await listKeys(this.#walk, bucket, {
      prefix,
      delimiter,
      start,
      countMax,
    });
    const withOwner = !isSecond || query.get('fetch-owner') === 'true';
    const page = isSecond
      ? {
          KeyCount: objects.length + prefixes.length,
          ContinuationToken: token,
          StartAfter: query.has('start-after') ? encode(marker) : undefined,
          NextContinuationToken: next === null ? undefined : tokenOf(next),
        }
      : {
          Marker: encode(marker),
          // Without a delimiter, the last key is the marker.
          NextMarker: next === null || delimiter === '' ? undefined : encode(next.after),
        };
    return sendXml(call, 'ListBucketResult', {
      Name: bucket.name,
      Prefix: isSecond ? encode(prefix) : firstPrefix(prefix, encode),
      Delimiter: delimiter === '' ? undefined : encode(delimiter),
      MaxKeys: countMax,
      EncodingType: query.get('encoding-type'),
      IsTruncated: next !== null,
      ...page,
      Contents: objects.map((object) => ({
        ...objectXml(object, encode),
        ...(withOwner ? { Owner: OWNER } : {}),
      })),
      CommonPrefixes: prefixes.map((one) => ({ Prefix: encode(one) })),
    });
  }

  /** Objects without versions, as those of a bucket for which versions were never enabled. */
  async listVersions(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const { query } = call;
    await this.#parts.buckets.directoryOf(bucket);
    const encode = encoderOf(query.get('encoding-type'));
    const [prefix, delimiter] = [query.get('prefix') ?? '', query.get('delimiter') ?? ''];
    const [marker, version] = [query.get('key-marker') ?? '', query.get('version-id-marker') ?? ''];
    if (version !== '' && marker === '')
      throw new S3Error('InvalidArgument', 'A version-id marker needs a key marker');
    if (version !== '' && version !== NULL_VERSION)
      throw new S3Error('InvalidArgument', `The version-id marker can only be "${NULL_VERSION}" here`);
    const countMax = countOf(query.get('max-keys'), 'max-keys', LIST_MAX);
    const { objects, prefixes, next } = await listKeys(this.#walk, bucket, {
      ...{ prefix, delimiter, countMax },
      start: markerPosition(marker, prefix, delimiter),
    });
    return sendXml(call, 'ListVersionsResult', {
      Name: bucket.name,
      Prefix: encode(prefix),
      Delimiter: delimiter === '' ? undefined : encode(delimiter),
      KeyMarker: encode(marker),
      VersionIdMarker: version,
      NextKeyMarker: next === null ? undefined : encode(next.after),
      NextVersionIdMarker: next === null || next.past ? undefined : NULL_VERSION,
      MaxKeys: countMax,
      EncodingType: query.get('encoding-type'),
      IsTruncated: next !== null,
      Version: objects.map((object) => ({
        ...objectXml(object, encode),
        ...{ VersionId: NULL_VERSION, IsLatest: true, Owner: OWNER },
      })),
      CommonPrefixes: prefixes.map((one) => ({ Prefix: encode(one) })),
    });
  }

  async deleteObjects(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const document = xmlParse(await readBody(call, DOCUMENT_BYTES_MAX), 'Delete');
    await this.#parts.buckets.directoryOf(bucket);
    const objects = childrenOf(document, 'Object').map((one) => ({
      key: requiredText(one, 'Key'),
      version: childText(one, 'VersionId'),
      texts: {
        ifMatch: childText(one, 'ETag'),
        modified: childText(one, 'LastModifiedTime'),
        size: childText(one, 'Size'),
      },
    }));
    if (objects.length === 0 || objects.length > DELETIONS_MAX)
      throw new S3Error('MalformedXML', `A request deletes 1 to ${DELETIONS_MAX} objects`);
    const results: { readonly Deleted?: XmlElements; readonly Error?: XmlElements }[] = new Array(
      objects.length,
    );
    const removal = removerOf(call);
    const places = objects.keys();
    const work = async (): Promise<void> => {
      for (const place of places) {
        const { key, version, texts } = objects[place] as (typeof objects)[number];
        const remove = async (): Promise<void> => {
          refuseVersion(version);
          await this.#parts.objects.remove(bucket, key, removalConditions(texts), removal);
        };
        results[place] = await remove().then(
          () => ({ Deleted: { Key: key, VersionId: version } }),
          (error: unknown) => {
            if (!(error instanceof ServiceError)) throw error;
            const { s3: Code, message: Message } = s3ErrorOf(error);
            return { Error: { Key: key, VersionId: version, Code, Message } };
          },
        );
      }
    };
    await Promise.all(Array.from({ length: DELETIONS_PARALLEL }, work));
    const isQuiet = childText(document, 'Quiet')?.trim() === 'true';
    return sendXml(call, 'DeleteResult', {
      Deleted: isQuiet
        ? []
        : results.flatMap((result) => (result.Deleted === undefined ? [] : [result.Deleted])),
      Error: results.flatMap((result) => (result.Error === undefined ? [] : [result.Error])),
    });
  }

  async getCors(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const rules = await this.corsOf(bucket);
    if (rules.length > 0) return sendXml(call, 'CORSConfiguration', corsXml(rules));
    throw new S3Error('NoSuchCORSConfiguration', `The bucket "${bucket.name}" has no configuration of CORS`);
  }

  async putCors(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const rules = corsOfXml(xmlParse(await readBody(call, DOCUMENT_BYTES_MAX), 'CORSConfiguration'));
    const { inode } = await this.#parts.buckets.directoryOf(bucket);
    const command = {
      kind: 'set-xattr',
      inode,
      name: CORS_XATTR,
      value: encodeCors(rules),
      mode: 'set',
    } as const;
    await this.#parts.gateway.durably(command);
    return call.reply.send();
  }

  async deleteCors(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const { inode } = await this.#parts.buckets.directoryOf(bucket);
    await this.#parts.gateway
      .durably({ kind: 'remove-xattr', inode, name: CORS_XATTR })
      .catch((error: unknown) => {
        if (!(error instanceof ServiceError) || error.code !== 'no-attribute') throw error;
      });
    return call.reply.code(204).send();
  }

  async corsOf(bucket: Bucket): Promise<CorsRule[]> {
    const { buckets, gateway } = this.#parts;
    const value = await xattrOf(gateway, await buckets.directoryOf(bucket), CORS_XATTR);
    return value === undefined ? [] : decodeCors(value);
  }

  async getTags(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const { tags } = await this.#parts.objects.recordOf(await this.#parts.buckets.directoryOf(bucket));
    if (tags !== undefined) return sendXml(call, 'Tagging', tagsXml(tags));
    throw new S3Error('NoSuchTagSet', `The bucket "${bucket.name}" has no tags`);
  }

  async putTags(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const document = xmlParse(await readBody(call, DOCUMENT_BYTES_MAX), 'Tagging');
    const directory = await this.#parts.buckets.directoryOf(bucket);
    const record = await this.#parts.objects.recordOf(directory);
    await this.#parts.objects.setRecord(directory.inode, {
      ...record,
      tags: tagsOfXml(document, BUCKET_TAGS_MAX),
    });
    return call.reply.code(204).send();
  }

  async deleteTags(call: S3Call, bucket: Bucket): Promise<FastifyReply> {
    const directory = await this.#parts.buckets.directoryOf(bucket);
    const { tags: _, ...record } = await this.#parts.objects.recordOf(directory);
    await this.#parts.objects.setRecord(directory.inode, record);
    return call.reply.code(204).send();
  }

  /** The only access control list that there is: the owner has full control, and no other grant exists. */
  async acl(call: S3Call, check: () => Promise<unknown>): Promise<FastifyReply> {
    await check();
    const xmlns = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"';
    return sendXml(call, 'AccessControlPolicy', {
      Owner: OWNER,
      AccessControlList: { Grant: { Grantee: new XmlAttributed(xmlns, OWNER), Permission: 'FULL_CONTROL' } },
    });
  }

  /** Sets the only access control list that there is. @throws S3Error `NotImplemented` for others */
  async putAcl(call: S3Call, check: () => Promise<unknown>): Promise<FastifyReply> {
    refuseAcl((name) => header(call, name));
    const document = await readBody(call, DOCUMENT_BYTES_MAX);
    await check();
    if (document.length === 0) return call.reply.send();
    const lists = childrenOf(xmlParse(document, 'AccessControlPolicy'), 'AccessControlList');
    const isPrivate = lists
      .flatMap((list) => childrenOf(list, 'Grant'))
      .every((grant) => {
        const ids = childrenOf(grant, 'Grantee').map((grantee) => childText(grantee, 'ID'));
        return childText(grant, 'Permission') === 'FULL_CONTROL' && ids.every((id) => id === OWNER.ID);
      });
    if (isPrivate && lists.length > 0) return call.reply.send();
    throw new S3Error('NotImplemented', 'Access control lists other than "private" are not implemented');
  }
}

export function countOf(text: string | undefined, name: string, most: number): number {
  if (text === undefined || text === '') return most;
  if (!/^\d{1,9}$/.test(text)) throw new S3Error('InvalidArgument', `${name} is no number from 0 on`);
  return Math.min(Number(text), most);
}

export function sendXml(
  { reply, request }: S3Call,
  root: string,
  contents: Parameters<typeof xmlDocument>[1],
): FastifyReply {
  const document = request.method === 'HEAD' ? '' : xmlDocument(root, contents);
  return reply.type('application/xml').send(Buffer.from(document));
}
