import { crc32 as crc32OfZlib } from 'node:zlib';
import { type Crc, crcLibrary } from './crc-library.ts';

/** CRC-32 as in zlib, with the processor's instructions if a library for them is installed (decision 0050). */
export const crc32: Crc = trustedCrc32(crcLibrary()?.crc32 ?? null) ?? crc32OfZlib;

/** All stored data depends on it: @returns null for a function that differs from zlib's */
export function trustedCrc32(candidate: Crc | null): Crc | null {
  const sample = Uint8Array.from({ length: 5_000 }, (_, at) => (at * 167 + (at >>> 4)) & 0xff);
  const isSame = [0, 1, 15, 16, 127, 128, 1_029, sample.length].every((length) => {
    const bytes = sample.subarray(3, length);
    return (
      candidate?.(bytes) === crc32OfZlib(bytes) &&
      candidate(bytes, 0xfedcba98) === crc32OfZlib(bytes, 0xfedcba98)
    );
  });
  return isSame ? candidate : null;
}
