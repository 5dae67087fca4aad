import { createRequire } from 'node:module';

/** @param crc of the preceding bytes */
export type Crc = (bytes: Uint8Array, crc?: number) => number;

/** @returns checksums by the processor's own instructions; null if the library is not installed */
export function crcLibrary(): { readonly crc32: Crc; readonly crc32c: Crc } | null {
  try {
    return createRequire(import.meta.url)('@node-rs/crc32');
  } catch {
    // The package is optional, and has no code for some systems.
    return null;
  }
}
