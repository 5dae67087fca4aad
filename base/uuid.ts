export const UUID_BYTES = 16;

/** @returns the UUID of version 4 (RFC 9562) of 16 random bytes: all their bits but six, which tell the version */
export function uuidOf(random: Uint8Array): string {
  const digits = Array.from(random, (byte, place) => {
    if (place === 6) return (byte & 0x0f) | 0x40;
    return place === 8 ? (byte & 0x3f) | 0x80 : byte;
  }).map((byte) => byte.toString(16).padStart(2, '0'));
  return digits.join('').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
