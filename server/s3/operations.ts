import type { FastifyReply } from 'fastify';
import type { Role } from '../../wire/access.ts';
import type { BucketOperations } from './bucket-operations.ts';
import type { Bucket, Buckets } from './buckets.ts';
import { header, refuseVersion, type S3Call } from './call.ts';
import type { MultipartOperations } from './multipart-operations.ts';
import type { ObjectOperations } from './object-operations.ts';
import type { ObjectStore } from './object-store.ts';
import { type S3Code, S3Error } from './s3-error.ts';

export interface Operation {
  /** As in the documentation of S3. */
  readonly name: string;
  readonly role: Role;
  run(call: S3Call): Promise<FastifyReply>;
}

export interface OperationParts {
  readonly buckets: Buckets;
  readonly objects: ObjectStore;
  readonly ofBuckets: BucketOperations;
  readonly ofObjects: ObjectOperations;
  readonly ofUploads: MultipartOperations;
}

/** Parameters that make a request one about something else than the bucket or object itself. */
const SUBRESOURCES = [
  ...['accelerate', 'acl', 'analytics', 'attributes', 'cors', 'delete', 'encryption', 'intelligent-tiering'],
  ...[
    'inventory',
    'legal-hold',
    'lifecycle',
    'location',
    'logging',
    'metadataTable',
    'metrics',
    'notification',
  ],
  ...['object-lock', 'ownershipControls', 'policy', 'policyStatus', 'publicAccessBlock', 'renameObject'],
  ...['replication', 'requestPayment', 'restore', 'retention', 'select', 'session', 'tagging', 'torrent'],
  ...['uploadId', 'uploads', 'versioning', 'versions', 'website'],
] as const;
type Subresource = (typeof SUBRESOURCES)[number];

type OfBucket = (call: S3Call, bucket: Bucket) => Promise<FastifyReply>;
type OfObject = (call: S3Call, bucket: Bucket, key: string) => Promise<FastifyReply>;

interface Row<Run> {
  readonly name: string;
  readonly role: Role;
  readonly run: Run;
}

/** The operations of S3 that there are, by method and subresource; all others are `NotImplemented`. */
export class Operations {
  readonly #parts: OperationParts;
  readonly #ofBucket: ReadonlyMap<string, Row<OfBucket>>;
  readonly #ofObject: ReadonlyMap<string, Row<OfObject>>;

  constructor(parts: OperationParts) {
    this.#parts = parts;
    this.#ofBucket = bucketRows(parts);
    this.#ofObject = objectRows(parts);
  }

  /** Names of all operations. */
  get names(): string[] {
    return [
      'ListBuckets',
      ...[...this.#ofBucket.values(), ...this.#ofObject.values()].map(({ name }) => name),
    ];
  }

  /** @throws S3Error `NotImplemented`, `MethodNotAllowed` */
  find(call: S3Call): Operation {
    const { request, bucket: name, key, query } = call;
    const { method } = request;
    const { ofBuckets, buckets } = this.#parts;
    if (name === null) {
      if (method === 'GET')
        return { name: 'ListBuckets', role: 'read', run: () => ofBuckets.listBuckets(call) };
      throw new S3Error('MethodNotAllowed', `${method} is not allowed without a bucket`);
    }
    const subresource = SUBRESOURCES.find((one) => query.has(one));
    const rows: ReadonlyMap<string, Row<OfBucket | OfObject>> = key === null
      ? this.#ofBucket
      : this.#ofObject;
    const isCopy = method === 'PUT' && header(call, 'x-amz-copy-source') !== undefined && key !== null;
    const row = rows.get(rowKey(isCopy ? 'COPY' : method, subresource));
    if (row === undefined && subresource === undefined)
      throw new S3Error('MethodNotAllowed', `${method} is not allowed here`);
    if (row === undefined) {
      const what = subresource === undefined ? method : `${method} ?${subresource}`;
      throw new S3Error(
        'NotImplemented',
        `${what} of ${key === null ? 'a bucket' : 'an object'} is not implemented`,
      );
    }
    const isNew = method === 'PUT' && key === null && subresource === undefined;
    // The name of a new one is checked when it is created.
    const bucket = isNew ? { name, volume: buckets.volumeOf(name), names: [] } : buckets.named(name);
    return {
      name: row.name,
      role: row.role,
      run: async () => {
        if (key !== null) refuseVersion(query.get('versionId'));
        return row.run(call, bucket, key ?? '');
      },
    };
  }
}

function rowKey(method: string, subresource: string | undefined): string {
  return `${method} ${subresource ?? ''}`;
}

function bucketRows({
  ofBuckets: of,
  ofUploads,
  buckets,
}: OperationParts): ReadonlyMap<string, Row<OfBucket>> {
  const rows = new Map<string, Row<OfBucket>>();
  const add = (
    method: string,
    subresource: Subresource | '',
    name: string,
    role: Role,
    run: OfBucket,
  ): void => {
    rows.set(rowKey(method, subresource), { name, role, run });
  };
  const owner: Role = buckets.areVolumes ? 'admin' : 'write';
  add('GET', '', 'ListObjects', 'read', (call, bucket) => of.listObjects(call, bucket));
  add('HEAD', '', 'HeadBucket', 'read', (call, bucket) => of.headBucket(call, bucket));
  add('PUT', '', 'CreateBucket', owner, (call, bucket) => of.createBucket(call, bucket));
  add('DELETE', '', 'DeleteBucket', owner, (call, bucket) => of.deleteBucket(call, bucket));
  add('POST', 'delete', 'DeleteObjects', 'write', (call, bucket) => of.deleteObjects(call, bucket));
  add('GET', 'location', 'GetBucketLocation', 'read', (call, bucket) => of.location(call, bucket));
  add('GET', 'cors', 'GetBucketCors', 'read', (call, bucket) => of.getCors(call, bucket));
  add('PUT', 'cors', 'PutBucketCors', owner, (call, bucket) => of.putCors(call, bucket));
  add('DELETE', 'cors', 'DeleteBucketCors', owner, (call, bucket) => of.deleteCors(call, bucket));
  add('GET', 'tagging', 'GetBucketTagging', 'read', (call, bucket) => of.getTags(call, bucket));
  add('PUT', 'tagging', 'PutBucketTagging', owner, (call, bucket) => of.putTags(call, bucket));
  add('DELETE', 'tagging', 'DeleteBucketTagging', owner, (call, bucket) => of.deleteTags(call, bucket));
  add('GET', 'uploads', 'ListMultipartUploads', 'read', (call, bucket) =>
    ofUploads.listUploads(call, bucket),
  );
  add('GET', 'acl', 'GetBucketAcl', 'read', (call, bucket) =>
    of.acl(call, () => buckets.directoryOf(bucket)),
  );
  add('PUT', 'acl', 'PutBucketAcl', owner, (call, bucket) =>
    of.putAcl(call, () => buckets.directoryOf(bucket)),
  );
  add('GET', 'versions', 'ListObjectVersions', 'read', (call, bucket) => of.listVersions(call, bucket));
  const fixed = (
    subresource: Subresource,
    name: string,
    root: string,
    contents: Record<string, string> = {},
  ): void => add('GET', subresource, name, 'read', (call, bucket) => of.fixed(call, bucket, root, contents));
  fixed('versioning', 'GetBucketVersioning', 'VersioningConfiguration');
  fixed('requestPayment', 'GetBucketRequestPayment', 'RequestPaymentConfiguration', { Payer: 'BucketOwner' });
  fixed('accelerate', 'GetBucketAccelerateConfiguration', 'AccelerateConfiguration');
  fixed('logging', 'GetBucketLogging', 'BucketLoggingStatus');
  fixed('notification', 'GetBucketNotificationConfiguration', 'NotificationConfiguration');
  const missing = (subresource: Subresource, name: string, code: S3Code): void =>
    add('GET', subresource, name, 'read', (_call, bucket) =>
      of.missing(bucket, new S3Error(code, `The bucket "${bucket.name}" has no such configuration`)),
    );
  missing('policy', 'GetBucketPolicy', 'NoSuchBucketPolicy');
  missing('policyStatus', 'GetBucketPolicyStatus', 'NoSuchBucketPolicy');
  missing('lifecycle', 'GetBucketLifecycleConfiguration', 'NoSuchLifecycleConfiguration');
  missing('website', 'GetBucketWebsite', 'NoSuchWebsiteConfiguration');
  missing('replication', 'GetBucketReplication', 'ReplicationConfigurationNotFoundError');
  missing('encryption', 'GetBucketEncryption', 'ServerSideEncryptionConfigurationNotFoundError');
  missing('object-lock', 'GetObjectLockConfiguration', 'ObjectLockConfigurationNotFoundError');
  missing('ownershipControls', 'GetBucketOwnershipControls', 'OwnershipControlsNotFoundError');
  missing('publicAccessBlock', 'GetPublicAccessBlock', 'NoSuchPublicAccessBlockConfiguration');
  return rows;
}

function objectRows({
  ofObjects: of,
  ofUploads,
  ofBuckets,
  objects,
}: OperationParts): ReadonlyMap<string, Row<OfObject>> {
  const rows = new Map<string, Row<OfObject>>();
  const add = (
    method: string,
    subresource: Subresource | '',
    name: string,
    role: Role,
    run: OfObject,
  ): void => {
    rows.set(rowKey(method, subresource), { name, role, run });
  };
  add('GET', '', 'GetObject', 'read', (call, bucket, key) => of.get(call, bucket, key));
  add('HEAD', '', 'HeadObject', 'read', (call, bucket, key) => of.get(call, bucket, key));
  add('PUT', '', 'PutObject', 'write', (call, bucket, key) => of.put(call, bucket, key));
  add('COPY', '', 'CopyObject', 'write', (call, bucket, key) => of.copy(call, bucket, key));
  add('DELETE', '', 'DeleteObject', 'write', (call, bucket, key) => of.delete(call, bucket, key));
  add('GET', 'attributes', 'GetObjectAttributes', 'read', (call, bucket, key) =>
    of.attributes(call, bucket, key),
  );
  add('GET', 'tagging', 'GetObjectTagging', 'read', (call, bucket, key) => of.getTags(call, bucket, key));
  add('PUT', 'tagging', 'PutObjectTagging', 'write', (call, bucket, key) => of.putTags(call, bucket, key));
  add('DELETE', 'tagging', 'DeleteObjectTagging', 'write', (call, bucket, key) =>
    of.deleteTags(call, bucket, key),
  );
  add('GET', 'acl', 'GetObjectAcl', 'read', (call, bucket, key) =>
    ofBuckets.acl(call, () => objects.find(bucket, key)),
  );
  add('PUT', 'acl', 'PutObjectAcl', 'write', (call, bucket, key) =>
    ofBuckets.putAcl(call, () => objects.find(bucket, key)),
  );
  add('POST', 'uploads', 'CreateMultipartUpload', 'write', (call, bucket, key) =>
    ofUploads.create(call, bucket, key),
  );
  add('PUT', 'uploadId', 'UploadPart', 'write', (call, bucket, key) => ofUploads.putPart(call, bucket, key));
  add('COPY', 'uploadId', 'UploadPartCopy', 'write', (call, bucket, key) =>
    ofUploads.copyPart(call, bucket, key),
  );
  add('POST', 'uploadId', 'CompleteMultipartUpload', 'write', (call, bucket, key) =>
    ofUploads.complete(call, bucket, key),
  );
  add('DELETE', 'uploadId', 'AbortMultipartUpload', 'write', (call, bucket, key) =>
    ofUploads.abort(call, bucket, key),
  );
  add('GET', 'uploadId', 'ListParts', 'read', (call, bucket, key) => ofUploads.listParts(call, bucket, key));
  return rows;
}
