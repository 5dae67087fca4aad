import { constants } from 'node:os';
import type { ErrorCode } from '../base/errors.ts';
import { ServiceError } from '../base/errors.ts';

export type ErrnoName = keyof typeof constants.errno;

/** What a program under the mount is told for each code of the catalogue. */
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
  // By the time these reach the mount, the client library has retried until its time was up.
  'no-majority': 'ETIMEDOUT',
  recovering: 'ETIMEDOUT',
  busy: 'ETIMEDOUT',
  // As these, and besides that it may have happened: so may a call that timed out anywhere else.
  unknown: 'ETIMEDOUT',
  'clock-fault': 'EIO',
  'read-only': 'EROFS',
  'no-space': 'ENOSPC',
  'quota-exceeded': 'EDQUOT',
  integrity: 'EIO',
  storage: 'EIO',
  internal: 'EIO',
} as const satisfies Record<ErrorCode, ErrnoName>;

/** A refusal of the mount itself, named as the kernel names it. */
export class ErrnoError extends Error {
  override readonly name = 'ErrnoError';
  readonly errno: ErrnoName;

  constructor(errno: ErrnoName, message: string) {
    super(message);
    this.errno = errno;
  }
}

/** @returns the name of the error number for `error`; EIO for what nobody foresaw */
export function errnoName(error: unknown): ErrnoName {
  if (error instanceof ErrnoError) return error.errno;
  if (!(error instanceof ServiceError)) return 'EIO';
  // Whether it happened cannot be found out any more, however long anybody waits.
  const { cause } = error;
  if (error.code === 'unknown' && cause instanceof ServiceError && cause.code === 'session-expired')
    return 'EIO';
  return ERRNO[error.code];
}

/** @returns the negative number that FUSE answers with */
export function errnoNumber(error: unknown): number {
  return -constants.errno[errnoName(error)];
}

/** @returns whether `error` was foreseen, so that it is answered and not logged */
export function isForeseen(error: unknown): boolean {
  return error instanceof ErrnoError || error instanceof ServiceError;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** @returns whether the cluster answered that there is no such name or inode */
export function isNotFound(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.code === 'not-found';
}

/** @returns whether a call failed because the lock that it was made under was lost */
export function isLockLoss(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'lease-lost';
}

/** @returns the error of calls under a lock that was lost */
export function lockLost(): ErrnoError {
  return new ErrnoError('EIO', 'A lock on the file was lost, and others may have it');
}
