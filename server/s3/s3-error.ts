import { type ErrorCode, ServiceError } from '../../base/errors.ts';

/** Error codes of S3 with their HTTP status, and the code of the catalogue that programs of this project know. */
const CODES = {
  AccessDenied: [403, 'forbidden'],
  AuthorizationHeaderMalformed: [400, 'bad-request'],
  AuthorizationQueryParametersError: [400, 'bad-request'],
  BadDigest: [400, 'digest-mismatch'],
  BucketAlreadyExists: [409, 'exists'],
  BucketNotEmpty: [409, 'not-empty'],
  ConflictingKey: [409, 'is-directory'],
  EntityTooLarge: [400, 'too-large'],
  EntityTooSmall: [400, 'bad-request'],
  IncompleteBody: [400, 'bad-request'],
  InsufficientStorage: [507, 'no-space'],
  InternalError: [500, 'internal'],
  InvalidAccessKeyId: [403, 'forbidden'],
  InvalidArgument: [400, 'bad-request'],
  InvalidBucketName: [400, 'bad-request'],
  InvalidDigest: [400, 'bad-request'],
  InvalidLocationConstraint: [400, 'bad-request'],
  InvalidPart: [400, 'bad-request'],
  InvalidPartOrder: [400, 'bad-request'],
  InvalidPolicyDocument: [400, 'bad-request'],
  InvalidRange: [416, 'range-unsatisfiable'],
  InvalidRequest: [400, 'bad-request'],
  InvalidStorageClass: [400, 'bad-request'],
  InvalidTag: [400, 'bad-request'],
  InvalidURI: [400, 'bad-request'],
  KeyTooLongError: [400, 'name-too-long'],
  MalformedPOSTRequest: [400, 'bad-request'],
  MalformedTrailerError: [400, 'bad-request'],
  MalformedXML: [400, 'bad-request'],
  MaxPostPreDataLengthExceeded: [400, 'too-large'],
  MetadataTooLarge: [400, 'too-large'],
  MethodNotAllowed: [405, 'bad-request'],
  MissingContentLength: [411, 'bad-request'],
  NoSuchBucket: [404, 'not-found'],
  NoSuchBucketPolicy: [404, 'not-found'],
  NoSuchCORSConfiguration: [404, 'not-found'],
  NoSuchKey: [404, 'not-found'],
  NoSuchLifecycleConfiguration: [404, 'not-found'],
  NoSuchPublicAccessBlockConfiguration: [404, 'not-found'],
  NoSuchTagSet: [404, 'not-found'],
  NoSuchUpload: [404, 'not-found'],
  NoSuchVersion: [404, 'not-found'],
  NoSuchWebsiteConfiguration: [404, 'not-found'],
  NotImplemented: [501, 'bad-request'],
  ObjectLockConfigurationNotFoundError: [404, 'not-found'],
  OwnershipControlsNotFoundError: [404, 'not-found'],
  PreconditionFailed: [412, 'precondition-failed'],
  QuotaExceeded: [403, 'quota-exceeded'],
  ReplicationConfigurationNotFoundError: [404, 'not-found'],
  RequestTimeTooSkewed: [403, 'forbidden'],
  ServerSideEncryptionConfigurationNotFoundError: [404, 'not-found'],
  ServiceUnavailable: [503, 'no-majority'],
  SignatureDoesNotMatch: [403, 'forbidden'],
  SlowDown: [503, 'busy'],
  XAmzContentChecksumMismatch: [400, 'digest-mismatch'],
  XAmzContentSHA256Mismatch: [400, 'digest-mismatch'],
} as const satisfies Record<string, readonly [number, ErrorCode]>;

export type S3Code = keyof typeof CODES;

/** A failure that an S3 client knows by its code. */
export class S3Error extends ServiceError {
  readonly s3: S3Code;

  constructor(s3: S3Code, message: string, options?: ErrorOptions) {
    super(CODES[s3][1], message, {}, options);
    this.s3 = s3;
  }

  get status(): number {
    return CODES[this.s3][0];
  }
}

/** What an S3 client learns about a failure of the file system. */
const OF_SERVICE: Partial<Record<ErrorCode, S3Code>> = {
  'bad-request': 'InvalidRequest',
  unauthorized: 'AccessDenied',
  forbidden: 'AccessDenied',
  'not-found': 'NoSuchKey',
  exists: 'ConflictingKey',
  'not-directory': 'ConflictingKey',
  'is-directory': 'ConflictingKey',
  'not-empty': 'BucketNotEmpty',
  'precondition-failed': 'PreconditionFailed',
  'range-unsatisfiable': 'InvalidRange',
  'digest-mismatch': 'BadDigest',
  'name-too-long': 'KeyTooLongError',
  'symlink-loop': 'NoSuchKey',
  junction: 'NoSuchKey',
  'too-large': 'EntityTooLarge',
  'read-only': 'AccessDenied',
  protected: 'AccessDenied',
  sealed: 'AccessDenied',
  'no-majority': 'ServiceUnavailable',
  recovering: 'ServiceUnavailable',
  busy: 'SlowDown',
  moving: 'SlowDown',
  unknown: 'ServiceUnavailable',
  'clock-fault': 'ServiceUnavailable',
  'no-space': 'InsufficientStorage',
  'quota-exceeded': 'QuotaExceeded',
};

export function s3ErrorOf(error: ServiceError): S3Error {
  if (error instanceof S3Error) return error;
  // Members of the catalog that run an earlier release: repeated once they are upgraded.
  if (error.details.outdated !== undefined)
    return new S3Error('ServiceUnavailable', error.message, { cause: error });
  return new S3Error(OF_SERVICE[error.code] ?? 'InternalError', error.message, { cause: error });
}
