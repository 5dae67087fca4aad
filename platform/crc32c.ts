import { type Crc, crcLibrary } from './crc-library.ts';

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ 0x82f6_3b78 : crc >>> 1;
  return crc >>> 0;
});

/** CRC-32C (Castagnoli, RFC 3720 12.1). */
export function crc32cOfTable(bytes: Uint8Array, before = 0): number {
  let crc = ~before;
  for (const byte of bytes) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] as number);
  return ~crc >>> 0;
}

/** Uses the processor's instructions if a library for them is installed. */
export const crc32c: Crc = crcLibrary()?.crc32c ?? crc32cOfTable;
