import { crc32 } from '../../platform/crc32.ts';

/** The polynomial of CRC-32, its lowest power in the highest bit. */
const POLYNOMIAL = 0xedb88320;
/** The polynomial 1 in the same order of bits. */
const ONE = 0x80000000;
/** x to the power of 8 × 2^k, modulo the polynomial: what 2^k bytes of zeros do to a checksum. */
const ZERO_BYTES_FACTORS = zeroBytesFactors(32);

export function crc32Of(buffers: readonly Uint8Array[], crc = 0): number {
  let value = crc;
  for (const buffer of buffers) value = crc32(buffer, value);
  return value;
}

/** Checksum once `after` replaced `before`. CRC-32 is linear: no other byte is read. @param tailBytes bytes behind */
export function crc32Replaced(
  crc: number,
  before: readonly Uint8Array[],
  after: Uint8Array,
  tailBytes: number,
): number {
  const difference = crc32Of(before) ^ crc32(after);
  return (crc ^ followedByZeros(difference, tailBytes)) >>> 0;
}

/** Checksum of a concatenation, from the checksums of both parts. @param secondBytes size of the second part */
export function crc32Joined(first: number, second: number, secondBytes: number): number {
  return (followedByZeros(first, secondBytes) ^ second) >>> 0;
}

/** @returns the difference of two checksums once the same `byteCount` bytes follow in both */
function followedByZeros(difference: number, byteCount: number): number {
  let value = difference >>> 0;
  for (let rest = byteCount, k = 0; rest > 0; rest = Math.floor(rest / 2), k++) {
    if (rest % 2 === 1) value = polynomialProduct(value, ZERO_BYTES_FACTORS[k] as number);
  }
  return value;
}

/** Product of two polynomials modulo that of CRC-32. */
function polynomialProduct(a: number, b: number): number {
  let sum = 0;
  let shifted = b;
  for (let bit = ONE; bit !== 0; bit >>>= 1) {
    if ((a & bit) !== 0) sum ^= shifted;
    shifted = (shifted & 1) !== 0 ? (shifted >>> 1) ^ POLYNOMIAL : shifted >>> 1;
  }
  return sum >>> 0;
}

function zeroBytesFactors(count: number): readonly number[] {
  // x^8: the highest bit is x^0.
  const all = [ONE >>> 8];
  for (let last = all[0] as number; all.length < count; all.push(last)) last = polynomialProduct(last, last);
  return all;
}
