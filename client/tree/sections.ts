import { createHash } from 'node:crypto';

export const FILES_AT_ONCE = 8;
/**
 * A file larger than a section is copied in sections, each of which survives power loss before the next one begins. A
 * part that an interrupted copy has left is therefore valid up to its last whole section, and the copy resumes there.
 */
export const SECTION_BYTES = 16 * 1024 * 1024;
/** Bytes of one transfer: large enough to hide its round trip, small enough to keep a few in memory. */
const PIECE_BYTES = 1024 * 1024;
export const PIECES_AT_ONCE = 4;
const NAME_BYTES_MAX = 200;

export interface Piece {
  readonly offset: number;
  readonly length: number;
}

/** @returns where to resume the copy of a file of which a part exists */
export function resumeOffset(partBytes: number, sizeBytes: number): number {
  return Math.floor(Math.min(partBytes, sizeBytes) / SECTION_BYTES) * SECTION_BYTES;
}

/** @returns the sections of a file from `from` on, each as the pieces of its transfer */
export function* sectionsOf(from: number, sizeBytes: number): Generator<Piece[], void, undefined> {
  for (let begin = from; begin < sizeBytes; begin += SECTION_BYTES) {
    const end = Math.min(sizeBytes, begin + SECTION_BYTES);
    const pieces: Piece[] = [];
    for (let offset = begin; offset < end; offset += PIECE_BYTES)
      pieces.push({ offset, length: Math.min(PIECE_BYTES, end - offset) });
    yield pieces;
  }
}

/** @param of identifies the contents: other contents have another part */
export function partName(name: string, of: string): string {
  const digest = createHash('sha256').update(of).digest('hex').slice(0, 16);
  return Buffer.byteLength(name) > NAME_BYTES_MAX ? `.${digest}.part` : `.${name}.${digest}.part`;
}
