import { ServiceError } from '../base/errors.ts';

/** Longest name in bytes of UTF-8, as in other file systems. */
export const NAME_BYTES_MAX = 255;
/** Bytes of a symbolic link's target: PATH_MAX without its final zero. */
export const TARGET_BYTES_MAX = 4095;
/** Symbolic links followed on one path, as in Linux. */
export const SYMLINKS_MAX = 40;

/** UTF-8 needs at most three bytes per UTF-16 code unit, so most texts need no count. */
function longerThan(text: string, bytesMax: number): boolean {
  return text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax;
}

/** Refuses text that UTF-8 cannot encode, and NUL (C's end of text). U+FFFD is allowed: base/utf8.ts judges bytes. */
function assertUtf8WithoutNul(text: string, what: string): void {
  if (text.includes('\0')) throw new ServiceError('bad-request', `${what} contains a zero byte`);
  if (!text.isWellFormed()) {
    throw new ServiceError('bad-request', `${what} is not valid UTF-8`);
  }
}

export function nameCheck(name: string): void {
  if (name === '' || name === '.' || name === '..' || name.includes('/')) {
    throw new ServiceError(
      'bad-request',
      `${JSON.stringify(name)} cannot be the name of a directory's entry`,
    );
  }
  assertUtf8WithoutNul(name, 'A name');
  if (longerThan(name, NAME_BYTES_MAX)) {
    throw new ServiceError('name-too-long', `A name is longer than ${NAME_BYTES_MAX} bytes`);
  }
}

/**
 * @param path with leading slashes, empty components and `.` ignored
 * @returns its names; empty for the volume's root
 * @throws ServiceError `bad-request` for `..`: no path leaves a volume
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

export function targetCheck(target: string): void {
  assertUtf8WithoutNul(target, 'The target of a symbolic link');
  if (target === '') throw new ServiceError('bad-request', 'The target of a symbolic link is empty');
  if (longerThan(target, TARGET_BYTES_MAX)) {
    throw new ServiceError('name-too-long', `A target is longer than ${TARGET_BYTES_MAX} bytes`);
  }
}

/** Names of a symbolic link's target, in which `..` is allowed. */
export function targetNames(target: string): string[] {
  const names = target.split('/').filter((name) => name !== '' && name !== '.');
  for (const name of names) if (name !== '..') nameCheck(name);
  return names;
}

const TIME_NS = /^-?[0-9]{1,20}$/;
const TIME_NS_LIMIT = 1n << 63n;

/** @returns the canonical form of a time in nanoseconds that fits 64 bits */
export function timeCheck(text: string): string {
  if (TIME_NS.test(text)) {
    const timeNs = BigInt(text);
    if (timeNs >= -TIME_NS_LIMIT && timeNs < TIME_NS_LIMIT) return timeNs.toString();
  }
  throw new ServiceError('bad-request', `${JSON.stringify(text)} is no time in nanoseconds`);
}
