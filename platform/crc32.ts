import { createRequire } from 'node:module';
import { crc32 as crc32OfZlib } from 'node:zlib';

/** CRC-32 as in zlib. @param crc of the preceding bytes */
type Crc32 = (bytes: Uint8Array, crc?: number) => number;

/** Uses the processor's instructions if a library for them is installed; else zlib's (decision 0050). */
export const crc32: Crc32 = trustedCrc32(quickCrc32()) ?? crc32OfZlib;

/** @returns null if the library is not installed */
function quickCrc32(): Crc32 | null {
  try {
    return (createRequire(import.meta.url)('@node-rs/crc32') as { readonly crc32: Crc32 }).crc32;
  } catch {
    // The package is optional, and has no code for some systems.
    return null;
  }
}

/** All stored data depends on it: @returns null for a function that differs from zlib's */
export function trustedCrc32(candidate: Crc32 | null): Crc32 | null {
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
