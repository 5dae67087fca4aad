import { NAME_BYTES_MAX } from '../../catalog/names.ts';
import { S3Error } from './s3-error.ts';

/** Bytes of a key, as in S3. */
const KEY_BYTES_MAX = 1024;

/** The directory of a bucket's unfinished uploads: no key begins with it. */
export const UPLOADS_NAME = '.s3-uploads';

const LONG_PART = `a part of a key between slashes has at most ${NAME_BYTES_MAX} bytes`;

/** A key as a path in its bucket. */
export interface KeyPath {
  readonly names: readonly string[];
  /** The key ends in a slash: it is a directory. */
  readonly directory: boolean;
}

/** @returns the path of a key; why no path has it otherwise */
export function keyPath(key: string): KeyPath | string {
  if (!key.isWellFormed() || key.includes('\0')) return 'a key is UTF-8 without a zero byte';
  const names = key.split('/');
  const directory = names.at(-1) === '';
  if (directory) names.pop();
  if (names.length === 0 || names.some((name) => name === '' || name === '.' || name === '..'))
    return 'a key is a path here: it has no empty part, "." or ".." between its slashes';
  if (names.some((name) => Buffer.byteLength(name) > NAME_BYTES_MAX)) return LONG_PART;
  if (names[0] === UPLOADS_NAME) return `"${UPLOADS_NAME}" has unfinished uploads`;
  return { names, directory };
}

/** The path of a key that is to be created. @throws S3Error `KeyTooLongError`, `InvalidArgument` */
export function newKeyPath(key: string): KeyPath {
  if (Buffer.byteLength(key) > KEY_BYTES_MAX)
    throw new S3Error('KeyTooLongError', `The key is longer than ${KEY_BYTES_MAX} bytes`);
  const path = keyPath(key);
  if (typeof path !== 'string') return path;
  throw new S3Error(
    path === LONG_PART ? 'KeyTooLongError' : 'InvalidArgument',
    `No object can have the key ${JSON.stringify(key)}: ${path}`,
  );
}

export function noSuchKey(key: string): S3Error {
  return new S3Error('NoSuchKey', `There is no object ${JSON.stringify(key)}`);
}

/** Order of keys: by their bytes in UTF-8, which is that of code points. */
export function keyCompare(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const [x, y] = [a.charCodeAt(index), b.charCodeAt(index)];
    if (x === y) continue;
    // A surrogate stands for a code point above all others of one unit.
    const [isHigher, isOtherHigher] = [isSurrogate(x), isSurrogate(y)];
    return isHigher === isOtherHigher ? x - y : isHigher ? 1 : -1;
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}
