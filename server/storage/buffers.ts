/** @returns views of bytes `from` to before `to` of consecutive buffers, without a copy */
export function sliceBuffers(buffers: readonly Uint8Array[], from: number, to: number): Uint8Array[] {
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

/** @returns one view of consecutive buffers if they are adjacent in one memory; else null */
export function joinedInPlace(buffers: readonly Uint8Array[]): Uint8Array | null {
  const [first] = buffers;
  if (first === undefined) return null;
  let end = first.byteOffset;
  for (const { buffer, byteOffset, length } of buffers) {
    if (buffer !== first.buffer || byteOffset !== end) return null;
    end += length;
  }
  return new Uint8Array(first.buffer, first.byteOffset, end - first.byteOffset);
}
