/** Keeps a leading U+FEFF: in a name it is like any other character. */
const DECODER = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Decodes bytes so that they encode to the same bytes. `Buffer.toString` turns invalid bytes into U+FFFD, which is
 * also valid in names. @returns null if not UTF-8
 */
export function utf8Text(bytes: Uint8Array): string | null {
  try {
    return DECODER.decode(bytes);
  } catch {
    return null;
  }
}

/** Bytes for people: all but printable ASCII as `\xff`. */
export function escapedBytes(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) {
    const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x5c;
    text += isPlain ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`;
  }
  return text;
}
