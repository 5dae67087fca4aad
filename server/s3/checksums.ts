import { createHash, type Hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from '../../platform/crc32.ts';
import { crc32c } from '../../platform/crc32c.ts';
import type { BodyCheck } from '../http/digests.ts';
import { Crc64Nvme } from './crc64nvme.ts';
import { S3Error } from './s3-error.ts';

export const ALGORITHMS = ['CRC32', 'CRC32C', 'CRC64NVME', 'SHA1', 'SHA256'] as const;
export type ChecksumAlgorithm = (typeof ALGORITHMS)[number];

/** Of the whole object, or of the checksums of its parts, one after the other. */
export const CHECKSUM_TYPES = ['FULL_OBJECT', 'COMPOSITE'] as const;
export type ChecksumType = (typeof CHECKSUM_TYPES)[number];

export interface Checksum {
  readonly algorithm: ChecksumAlgorithm;
  /** In base64; of a composite one with "-" and the number of parts. */
  readonly value: string;
  readonly type: ChecksumType;
}

interface Running {
  update(bytes: Uint8Array): unknown;
  digest(): Buffer;
}

type Crc = (bytes: Uint8Array, before?: number) => number;

class RunningCrc {
  readonly #crc: Crc;
  #value = 0;

  constructor(crc: Crc) {
    this.#crc = crc;
  }

  update(bytes: Uint8Array): void {
    this.#value = this.#crc(bytes, this.#value);
  }

  digest(): Buffer {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(this.#value >>> 0);
    return bytes;
  }
}

const NEW: Readonly<Record<ChecksumAlgorithm, () => Running>> = {
  CRC32: () => new RunningCrc(crc32),
  CRC32C: () => new RunningCrc(crc32c),
  CRC64NVME: () => new Crc64Nvme(),
  SHA1: () => createHash('sha1'),
  SHA256: () => createHash('sha256'),
};

/** Of headers, trailers and fields. */
export const CHECKSUM_PREFIX = 'x-amz-checksum-';
const SIZES: Readonly<Record<ChecksumAlgorithm, number>> = {
  CRC32: 4,
  CRC32C: 4,
  CRC64NVME: 8,
  SHA1: 20,
  SHA256: 32,
};

export function checksumHeader(algorithm: ChecksumAlgorithm): string {
  return CHECKSUM_PREFIX + algorithm.toLowerCase();
}

/** The element of an answer. */
export function checksumElement(algorithm: ChecksumAlgorithm): string {
  return `Checksum${algorithm}`;
}

export function checksumOf(algorithm: ChecksumAlgorithm, bytes: Uint8Array): string {
  const running = NEW[algorithm]();
  running.update(bytes);
  return running.digest().toString('base64');
}

/** @throws S3Error `InvalidRequest` for an unknown one */
export function algorithmOf(text: string | undefined): ChecksumAlgorithm | null {
  if (text === undefined) return null;
  const found = ALGORITHMS.find((one) => one === text.toUpperCase());
  if (found !== undefined) return found;
  throw new S3Error('InvalidRequest', `The checksum algorithm "${text}" is none of ${ALGORITHMS.join(', ')}`);
}

/** @throws S3Error `InvalidRequest` for an unknown one */
export function checksumTypeOf(text: string | undefined): ChecksumType | null {
  if (text === undefined) return null;
  const found = CHECKSUM_TYPES.find((one) => one === text.toUpperCase());
  if (found !== undefined) return found;
  throw new S3Error('InvalidRequest', `The checksum type "${text}" is none of ${CHECKSUM_TYPES.join(', ')}`);
}

/** Of uploads in parts. A CRC-64 is always of the whole object. */
export function defaultChecksumType(algorithm: ChecksumAlgorithm): ChecksumType {
  return algorithm === 'CRC64NVME' ? 'FULL_OBJECT' : 'COMPOSITE';
}

/** The checksum in headers, trailers or fields. @throws S3Error `InvalidRequest` for several, `BadDigest` for none */
export function claimedChecksum(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): Pick<Checksum, 'algorithm' | 'value'> | null {
  const claims = ALGORITHMS.flatMap((algorithm) => {
    const value = headers[checksumHeader(algorithm)];
    return typeof value === 'string' ? [{ algorithm, value: value.trim() }] : [];
  });
  const [first, second] = claims;
  if (second !== undefined) throw new S3Error('InvalidRequest', 'Send one checksum only');
  if (first === undefined) return null;
  if (!isBase64Of(first.value, SIZES[first.algorithm]))
    throw new S3Error(
      'BadDigest',
      `The value of ${checksumHeader(first.algorithm)} is no such checksum in base64`,
    );
  return first;
}

/** The checksums one after the other in a text, which others may have written: none unless there are `count`. */
export function splitChecksums(text: string, algorithm: ChecksumAlgorithm, count: number): string[] {
  const size = SIZES[algorithm];
  if (!isBase64Of(text, size * count)) return [];
  const bytes = Buffer.from(text, 'base64');
  return Array.from({ length: count }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size).toString('base64'),
  );
}

function isBase64Of(text: string, size: number): boolean {
  const bytes = Buffer.from(text, 'base64');
  return bytes.length === size && bytes.toString('base64') === text;
}

/** @throws S3Error `InvalidDigest` unless it is 16 bytes in base64 */
export function claimedMd5({ 'content-md5': text }: IncomingHttpHeaders): Buffer | null {
  if (text === undefined) return null;
  const given = String(text).trim();
  if (isBase64Of(given, 16)) return Buffer.from(given, 'base64');
  throw new S3Error('InvalidDigest', 'Content-MD5 is not 16 bytes in base64');
}

export interface ExpectedDigests {
  readonly md5: Buffer | null;
  /** Of the payload, by the signature. */
  readonly sha256: Buffer | null;
  /** To compute, also without a claim; null: none. */
  readonly algorithm: ChecksumAlgorithm | null;
  /** Called after the body, whose trailers may claim it. */
  readonly claimed: () => Pick<Checksum, 'algorithm' | 'value'> | null;
}

/** Computes and checks the digests of a body. */
export class PayloadCheck implements BodyCheck {
  readonly #expected: ExpectedDigests;
  readonly #md5 = createHash('md5');
  readonly #sha256: Hash | null;
  readonly #running: Running | null;
  #digests: { readonly md5: Buffer; readonly checksum: Checksum | null } | null = null;

  constructor(expected: ExpectedDigests) {
    this.#expected = expected;
    this.#sha256 = expected.sha256 === null ? null : createHash('sha256');
    this.#running = expected.algorithm === null ? null : NEW[expected.algorithm]();
  }

  /** Null: none is computed. */
  get algorithm(): ChecksumAlgorithm | null {
    return this.#expected.algorithm;
  }

  update(bytes: Uint8Array): void {
    this.#md5.update(bytes);
    this.#sha256?.update(bytes);
    this.#running?.update(bytes);
  }

  check(): void {
    const { md5, sha256, algorithm, claimed } = this.#expected;
    const found = this.#md5.digest();
    if (md5 !== null && !md5.equals(found))
      throw new S3Error(
        'BadDigest',
        `Content-MD5 is ${md5.toString('base64')}, but the body has ${found.toString('base64')}`,
      );
    const foundSha256 = this.#sha256?.digest();
    if (sha256 !== null && foundSha256 !== undefined && !timingSafeEqual(sha256, foundSha256))
      throw new S3Error(
        'XAmzContentSHA256Mismatch',
        'The body does not have the digest of x-amz-content-sha256',
      );
    const value = this.#running?.digest().toString('base64');
    const claim = claimed();
    if (claim !== null && (claim.algorithm !== algorithm || claim.value !== value))
      throw new S3Error(
        'BadDigest',
        `The ${claim.algorithm} of the request is ${claim.value}, but the body has ${value ?? 'another algorithm'}`,
      );
    const checksum =
      algorithm === null || value === undefined ? null : ({ algorithm, value, type: 'FULL_OBJECT' } as const);
    this.#digests = { md5: found, checksum };
  }

  /** After `check`. */
  get digests(): { readonly md5: Buffer; readonly checksum: Checksum | null } {
    if (this.#digests === null) throw new S3Error('IncompleteBody', 'The body has not arrived as a whole');
    return this.#digests;
  }
}
