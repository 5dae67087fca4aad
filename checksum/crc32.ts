import { createRequire } from 'node:module';
import { crc32 as crc32OfZlib } from 'node:zlib';

/**
 * @param crc of what is before the bytes
 * @returns their CRC-32, as zlib computes it
 */
type Crc32 = (bytes: Uint8Array, crc?: number) => number;

/** What the processor has instructions for, where there is a library that uses them; else zlib's (decision 0050). */
export const crc32: Crc32 = trustedCrc32(quickCrc32()) ?? crc32OfZlib;

/** @returns null where the library is not installed, as on systems for which there is none */
function quickCrc32(): Crc32 | null {
  try {
    return (createRequire(import.meta.url)('@node-rs/crc32') as { readonly crc32: Crc32 }).crc32;
  } catch {
    // The package has no code for this system, or is not there: it is optional.
    return null;
  }
}

/** All that is stored depends on it: what computes anything else than zlib is not used. @returns null for such a one */
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
