import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import type { ObjectRow } from './index-database.ts';

interface DraftPiece {
  readonly at: number;
  readonly bytes: Uint8Array;
}

/** What goes to the disk for one object: bytes behind those it has, in place, or all of it in a free slot. */
export interface DraftOutcome {
  readonly kind: 'append' | 'fresh';
  /** For `append` only what is new. */
  readonly buffers: readonly Uint8Array[];
  /** Length of the object with them. */
  readonly length: number;
}

/** The next version of one object: the writes of a batch, put together in memory before the disk sees them. */
export class ObjectDraft {
  readonly index: number;
  readonly base: ObjectRow | null;
  readonly #pieces: DraftPiece[] = [];
  /** The last operation that takes part. */
  seq = 0;

  constructor(index: number, base: ObjectRow | null) {
    this.index = index;
    this.base = base;
  }

  add(at: number, bytes: Uint8Array, seq: number): void {
    this.#pieces.push({ at, bytes });
    this.seq = seq;
  }

  /** Whether the bytes of the base are needed: a piece changes some of them and leaves others. */
  get needsBase(): boolean {
    if (this.base === null) return false;
    let { length } = this.base;
    for (const { at, bytes } of this.#pieces) {
      if (at === 0 && bytes.length >= length) return false;
      if (at < this.base.length) return true;
      length = Math.max(length, at + bytes.length);
    }
    return false;
  }

  /** @param baseBytes the bytes of the base where `needsBase`, else null */
  finish(baseBytes: Uint8Array | null): DraftOutcome {
    assert((baseBytes !== null) === this.needsBase, 'The base is read where it is needed');
    let kind: DraftOutcome['kind'] = this.base === null || baseBytes !== null ? 'fresh' : 'append';
    let length = this.base?.length ?? 0;
    let buffers: Uint8Array[] = baseBytes === null ? [] : [baseBytes];
    for (const { at, bytes } of this.#pieces) {
      const end = at + bytes.length;
      if (at === 0 && end >= length) {
        kind = 'fresh';
        buffers = [bytes];
        length = end;
      } else if (at >= length) {
        // What lies between the end of the object and the piece reads as zeros.
        if (at > length) buffers.push(new Uint8Array(at - length));
        buffers.push(bytes);
        length = end;
      } else {
        const from = kind === 'append' ? (this.base?.length ?? 0) : 0;
        assert(at >= from, 'Bytes of the base are changed only where it was read');
        const image = Buffer.allocUnsafe(Math.max(length, end) - from);
        let filled = 0;
        for (const buffer of buffers) {
          image.set(buffer, filled);
          filled += buffer.length;
        }
        assert(filled === length - from, 'The buffers make up the object');
        image.set(bytes, at - from);
        buffers = [image];
        length = Math.max(length, end);
      }
    }
    return { kind, buffers, length };
  }
}

/** Checksum of buffers that follow each other, beginning with `crc`. */
export function crc32Of(buffers: readonly Uint8Array[], crc = 0): number {
  let value = crc;
  for (const buffer of buffers) value = crc32(buffer, value);
  return value;
}
