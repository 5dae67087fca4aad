import { createRequire } from 'node:module';

/** CRC-32C (Castagnoli, RFC 3720 12.1). @param crc of the preceding bytes */
type Crc32c = (bytes: Uint8Array, crc?: number) => number;

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ 0x82f6_3b78 : crc >>> 1;
  return crc >>> 0;
});

export function crc32cOfTable(bytes: Uint8Array, before = 0): number {
  let crc = ~before;
  for (const byte of bytes) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] as number);
  return ~crc >>> 0;
}

/** Uses the processor's instructions if a library for them is installed. */
export const crc32c: Crc32c = quickCrc32c() ?? crc32cOfTable;

/** @returns null if the library is not installed */
function quickCrc32c(): Crc32c | null {
  try {
    return (createRequire(import.meta.url)('@node-rs/crc32') as { readonly crc32c: Crc32c }).crc32c;
  } catch {
    // The package is optional, and has no code for some systems.
    return null;
  }
}
