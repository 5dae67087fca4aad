import { ServiceError } from '../base/errors.ts';

/** Bytes of UTF-8 in a name at the most, as in other file systems. */
export const NAME_BYTES_MAX = 255;
/** Bytes in the target of a symbolic link: PATH_MAX without its final zero. */
export const TARGET_BYTES_MAX = 4095;
/** Symbolic links that are followed on one way, as in Linux. */
export const SYMLINKS_MAX = 40;

/** UTF-8 spends at most three bytes on a UTF-16 code unit, so most texts need no counting. */
function longerThan(text: string, bytesMax: number): boolean {
  return text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax;
}

/**
 * Refuses a text that does not survive encoding as UTF-8, or whose name C programs could not use: NUL ends names in C.
 * U+FFFD is a character like any other: whether bytes are UTF-8 is judged where bytes become text (base/utf8.ts).
 */
function assertClean(text: string, what: string): void {
  if (text.includes('\0')) throw new ServiceError('bad-request', `${what} contains a zero byte`);
  if (!text.isWellFormed()) {
    throw new ServiceError('bad-request', `${what} is not valid UTF-8`);
  }
}

/** Refuses what cannot be a name in a directory. */
export function nameCheck(name: string): void {
  if (name === '' || name === '.' || name === '..' || name.includes('/')) {
    throw new ServiceError(
      'bad-request',
      `${JSON.stringify(name)} cannot be the name of a directory's entry`,
    );
  }
  assertClean(name, 'A name');
  if (longerThan(name, NAME_BYTES_MAX)) {
    throw new ServiceError('name-too-long', `A name is longer than ${NAME_BYTES_MAX} bytes`);
  }
}

/**
 * @param path from a user: leading slashes, empty components and `.` mean nothing
 * @returns its names; none for the volume's root
 * @throws ServiceError `bad-request` for `..`: there is no way out of a volume
 */
export function pathNames(path: string): string[] {
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      throw new ServiceError('bad-request', `${JSON.stringify(path)} is a path outside the volume`);
    }
    nameCheck(name);
    names.push(name);
  }
  return names;
}

/** Refuses what cannot be the target of a symbolic link. Whether anything is there does not matter. */
export function targetCheck(target: string): void {
  assertClean(target, 'The target of a symbolic link');
  if (target === '') throw new ServiceError('bad-request', 'The target of a symbolic link is empty');
  if (longerThan(target, TARGET_BYTES_MAX)) {
    throw new ServiceError('name-too-long', `A target is longer than ${TARGET_BYTES_MAX} bytes`);
  }
}

/** Names of a symbolic link's target, in which `..` has a meaning. */
export function targetNames(target: string): string[] {
  const names = target.split('/').filter((name) => name !== '' && name !== '.');
  for (const name of names) if (name !== '..') nameCheck(name);
  return names;
}

const TIME_NS = /^-?[0-9]{1,20}$/;
const TIME_NS_LIMIT = 1n << 63n;

/** @returns `text` in its canonical form, if it is a time in nanoseconds that 64 bits hold */
export function timeCheck(text: string): string {
  if (TIME_NS.test(text)) {
    const timeNs = BigInt(text);
    if (timeNs >= -TIME_NS_LIMIT && timeNs < TIME_NS_LIMIT) return timeNs.toString();
  }
  throw new ServiceError('bad-request', `${JSON.stringify(text)} is no time in nanoseconds`);
}
