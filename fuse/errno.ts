import { constants } from 'node:os';
import type { ErrorCode } from '../base/errors.ts';
import { ServiceError } from '../base/errors.ts';

export type ErrnoName = keyof typeof constants.errno;

export const ERRNO = {
  'bad-request': 'EINVAL',
  unauthorized: 'EACCES',
  forbidden: 'EACCES',
  'not-found': 'ENOENT',
  exists: 'EEXIST',
  'not-directory': 'ENOTDIR',
  'is-directory': 'EISDIR',
  'not-empty': 'ENOTEMPTY',
  'precondition-failed': 'EBUSY',
  'range-unsatisfiable': 'EINVAL',
  'digest-mismatch': 'EIO',
  'name-too-long': 'ENAMETOOLONG',
  'symlink-loop': 'ELOOP',
  'cross-volume': 'EXDEV',
  junction: 'EXDEV',
  attached: 'EBUSY',
  'too-many-links': 'EMLINK',
  'no-attribute': 'ENODATA',
  'too-large': 'EFBIG',
  protected: 'EPERM',
  sealed: 'EROFS',
  'session-expired': 'EIO',
  'lease-taken': 'EBUSY',
  'lease-lost': 'ESTALE',
  'fence-lost': 'EIO',
  locked: 'EAGAIN',
  deadlock: 'EDEADLK',
  'lock-limit': 'ENOLCK',
  'not-primary': 'EIO',
  // The client library has retried these until its time limit.
  'no-majority': 'ETIMEDOUT',
  recovering: 'ETIMEDOUT',
  busy: 'ETIMEDOUT',
  moving: 'ETIMEDOUT',
  // As above, but the operation may have been executed, as after a timeout anywhere else.
  unknown: 'ETIMEDOUT',
  'clock-fault': 'EIO',
  'read-only': 'EROFS',
  'no-space': 'ENOSPC',
  'quota-exceeded': 'EDQUOT',
  integrity: 'EIO',
  storage: 'EIO',
  internal: 'EIO',
} as const satisfies Record<ErrorCode, ErrnoName>;

/** A refusal by the mount itself. */
export class ErrnoError extends Error {
  override readonly name = 'ErrnoError';
  readonly errno: ErrnoName;

  constructor(errno: ErrnoName, message: string) {
    super(message);
    this.errno = errno;
  }
}

/** @returns the name of the error number; EIO for unexpected errors */
export function errnoName(error: unknown): ErrnoName {
  if (error instanceof ErrnoError) return error.errno;
  if (!(error instanceof ServiceError)) return 'EIO';
  // Whether the operation was executed can never be known, so a retry is pointless.
  const { cause } = error;
  if (error.code === 'unknown' && cause instanceof ServiceError && cause.code === 'session-expired')
    return 'EIO';
  return ERRNO[error.code];
}

export function errnoNumber(error: unknown): number {
  return -constants.errno[errnoName(error)];
}

/** Expected errors are answered and not logged. */
export function isForeseen(error: unknown): boolean {
  return error instanceof ErrnoError || error instanceof ServiceError;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function isNotFound(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.code === 'not-found';
}

export function isLockLoss(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'lease-lost';
}

export function lockLost(): ErrnoError {
  return new ErrnoError('EIO', 'A lock on the file was lost, and others may have it');
}
