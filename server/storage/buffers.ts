/** @returns bytes `from` to before `to` of buffers that follow each other, where they are */
export function rangeOf(buffers: readonly Uint8Array[], from: number, to: number): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const buffer of buffers) {
    const begin = Math.max(from - at, 0);
    const end = Math.min(to - at, buffer.length);
    if (begin < end) parts.push(buffer.subarray(begin, end));
    at += buffer.length;
  }
  return parts;
}
