import { header, type S3Call } from './call.ts';
import { S3Error } from './s3-error.ts';

const GRANTS = ['read', 'write', 'read-acp', 'write-acp', 'full-control'].map(
  (name) => `x-amz-grant-${name}`,
);
const PRIVATE_ACLS: ReadonlySet<string> = new Set([
  'private',
  'bucket-owner-full-control',
  'bucket-owner-read',
]);

/** @throws S3Error `NotImplemented` */
export function refuseHeaders(call: S3Call, names: readonly string[]): void {
  const found = names.find((name) => header(call, name) !== undefined);
  if (found !== undefined) throw new S3Error('NotImplemented', `The header ${found} is not implemented`);
}

/** @throws S3Error `NotImplemented` for access control lists that allow others anything */
export function refuseAcl(call: S3Call): void {
  refuseHeaders(call, GRANTS);
  const acl = header(call, 'x-amz-acl');
  if (acl !== undefined && !PRIVATE_ACLS.has(acl))
    throw new S3Error(
      'NotImplemented',
      `Access control lists other than "private" are not implemented: "${acl}"`,
    );
}

/** @throws S3Error `NotImplemented` for settings of a new bucket that would be forgotten */
export function refuseUnknownOfBucket(call: S3Call): void {
  refuseAcl(call);
  if (header(call, 'x-amz-bucket-object-lock-enabled')?.toLowerCase() === 'true')
    throw new S3Error('NotImplemented', 'Object lock is not implemented');
  const ownership = header(call, 'x-amz-object-ownership');
  if (ownership !== undefined && ownership !== 'BucketOwnerEnforced')
    throw new S3Error(
      'NotImplemented',
      `The ownership of objects is BucketOwnerEnforced, not "${ownership}"`,
    );
}
