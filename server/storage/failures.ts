import { AssertionFailure } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';

/**
 * Out of room: the file system, a quota, the largest file the file system knows, or SQLite's words for it. Of these one sounds like a broken
 * disk: the index of its log, of which it makes a file, cannot grow. That comes where the log itself has room, for it is written over from its beginning.
 */
const NO_SPACE = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE']);

/** @returns the `code` of an error of Node or of SQLite, or '' */
export function errorCode(cause: unknown): string {
  if (typeof cause !== 'object' || cause === null || !('code' in cause)) return '';
  return typeof cause.code === 'string' ? cause.code : '';
}

/** @returns the first error of the chain of causes for which `holds`, or null */
function causeOf(error: unknown, holds: (code: string) => boolean): unknown {
  for (let at = error; at instanceof Error; at = at.cause) if (holds(errorCode(at))) return at;
  return null;
}

/** @returns whether an error, or what caused it, says that a database is damaged */
export function isCorruption(error: unknown): boolean {
  return causeOf(error, (code) => code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') !== null;
}

/** @returns whether an error, or what caused it, says that there is no free space */
export function isNoSpace(error: unknown): boolean {
  return causeOf(error, (code) => NO_SPACE.has(code) || code === 'no-space') !== null;
}

/** @returns whether an object that was read is damaged: bytes that are not those written, or that the disk cannot give */
export function isDamage(cause: unknown): boolean {
  return cause instanceof ServiceError ? cause.code === 'integrity' : errorCode(cause) === 'EIO';
}

/**
 * @param action what was being done, as in `Cannot apply operation 7 of file 12`
 * @returns the same failure in the words of the catalogue; our own errors pass unchanged
 */
export function storageError(action: string, cause: unknown): Error {
  if (cause instanceof ServiceError || cause instanceof AssertionFailure) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  const code = NO_SPACE.has(errorCode(cause)) ? 'no-space' : 'storage';
  return new ServiceError(code, `${action}: ${reason}`, {}, { cause });
}
