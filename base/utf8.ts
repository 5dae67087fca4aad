/** Keeps a leading U+FEFF, which in a name is three bytes like any others. */
const DECODER = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * The only way from bytes to text whose bytes count: names, link texts, attribute names, messages. The text encodes to the
 * same bytes again. `Buffer.toString` does not promise that: it turns bytes that are not UTF-8 into U+FFFD, which is also a
 * valid character of names.
 *
 * @returns null where the bytes are not UTF-8
 */
export function utf8Text(bytes: Uint8Array): string | null {
  try {
    return DECODER.decode(bytes);
  } catch {
    return null;
  }
}

/** Bytes that are not UTF-8 as people can read them: what is not printable ASCII as `\xff`. */
export function escapedBytes(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) {
    const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x5c;
    text += isPlain ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`;
  }
  return text;
}
