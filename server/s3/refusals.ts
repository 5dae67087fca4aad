import { S3Error } from './s3-error.ts';

/** The headers of a request, or the fields of a form. */
export type TextOf = (name: string) => string | undefined;

const NOT_IMPLEMENTED = [
  ...['x-amz-server-side-encryption', 'x-amz-server-side-encryption-customer-algorithm'],
  ...['x-amz-object-lock-mode', 'x-amz-object-lock-retain-until-date', 'x-amz-object-lock-legal-hold'],
  ...['x-amz-website-redirect-location', 'x-amz-write-offset-bytes'],
  ...['x-amz-copy-source-server-side-encryption-customer-algorithm'],
];
const GRANTS = ['read', 'write', 'read-acp', 'write-acp', 'full-control'].map(
  (name) => `x-amz-grant-${name}`,
);
const PRIVATE_ACLS: ReadonlySet<string> = new Set([
  'private',
  'bucket-owner-full-control',
  'bucket-owner-read',
]);
/** Lists that have a name, beside the private ones. */
const OTHER_ACLS: ReadonlySet<string> = new Set([
  ...['public-read', 'public-read-write', 'authenticated-read', 'aws-exec-read', 'log-delivery-write'],
]);

function refuseHeaders(textOf: TextOf, names: readonly string[]): void {
  const found = names.find((name) => textOf(name) !== undefined);
  if (found !== undefined) throw new S3Error('NotImplemented', `The header ${found} is not implemented`);
}

/** @throws S3Error `NotImplemented` for access control lists that allow others anything, `InvalidArgument` for none */
export function refuseAcl(textOf: TextOf): void {
  refuseHeaders(textOf, GRANTS);
  const acl = textOf('x-amz-acl');
  if (acl === undefined || PRIVATE_ACLS.has(acl)) return;
  if (!OTHER_ACLS.has(acl)) throw new S3Error('InvalidArgument', `There is no access control list "${acl}"`);
  throw new S3Error(
    'NotImplemented',
    `Access control lists other than "private" are not implemented: "${acl}"`,
  );
}

/** Refuses settings of an object that would be forgotten. @throws S3Error `NotImplemented`, `InvalidStorageClass` */
export function refuseUnknown(textOf: TextOf): void {
  refuseHeaders(textOf, NOT_IMPLEMENTED);
  refuseAcl(textOf);
  const storage = textOf('x-amz-storage-class');
  if (storage !== undefined && storage !== 'STANDARD')
    throw new S3Error('InvalidStorageClass', `The storage class is STANDARD, not "${storage}"`);
}

/** Refuses settings of a new bucket that would be forgotten. @throws S3Error `NotImplemented` */
export function refuseUnknownOfBucket(textOf: TextOf): void {
  refuseAcl(textOf);
  if (textOf('x-amz-bucket-object-lock-enabled')?.toLowerCase() === 'true')
    throw new S3Error('NotImplemented', 'Object lock is not implemented');
  const ownership = textOf('x-amz-object-ownership');
  if (ownership !== undefined && ownership !== 'BucketOwnerEnforced')
    throw new S3Error(
      'NotImplemented',
      `The ownership of objects is BucketOwnerEnforced, not "${ownership}"`,
    );
}
