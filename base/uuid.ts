export const UUID_BYTES = 16;

/** @returns a version 4 UUID (RFC 9562) from 16 random bytes */
export function uuidOf(random: Uint8Array): string {
  const digits = Array.from(random, (byte, index) => {
    if (index === 6) return (byte & 0x0f) | 0x40;
    return index === 8 ? (byte & 0x3f) | 0x80 : byte;
  }).map((byte) => byte.toString(16).padStart(2, '0'));
  return digits.join('').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
