import { AssertionFailure } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';

/**
 * No space: the file system, a quota, the file system's largest file, or SQLite's codes for it. One of them looks like
 * a broken disk: the file with the index of SQLite's log cannot grow, while the log, which is overwritten from its
 * beginning, has space.
 */
const NO_SPACE = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE']);

/** @returns the `code` of an error of Node or of SQLite, or '' */
export function errorCode(cause: unknown): string {
  if (typeof cause !== 'object' || cause === null || !('code' in cause)) return '';
  return typeof cause.code === 'string' ? cause.code : '';
}

function causeOf(error: unknown, holds: (code: string) => boolean): unknown {
  for (let at = error; at instanceof Error; at = at.cause) if (holds(errorCode(at))) return at;
  return null;
}

/** @returns whether an error, or its cause, reports a damaged database */
export function isCorruption(error: unknown): boolean {
  return causeOf(error, (code) => code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') !== null;
}

/** @returns whether an error, or its cause, reports that there is no free space */
export function isNoSpace(error: unknown): boolean {
  return causeOf(error, (code) => NO_SPACE.has(code) || code === 'no-space') !== null;
}

/** @returns whether an object is damaged: its bytes are not those written, or the disk cannot read them */
export function isDamage(cause: unknown): boolean {
  return cause instanceof ServiceError ? cause.code === 'integrity' : errorCode(cause) === 'EIO';
}

/** Wraps a foreign error as a ServiceError. @param action for its message: `Cannot apply operation 7 of file 12` */
export function storageError(action: string, cause: unknown): Error {
  if (cause instanceof ServiceError || cause instanceof AssertionFailure) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  const code = NO_SPACE.has(errorCode(cause)) ? 'no-space' : 'storage';
  return new ServiceError(code, `${action}: ${reason}`, {}, { cause });
}
