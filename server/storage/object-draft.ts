import { assert } from '../../base/assert.ts';
import type { WritePart } from '../../wire/file-operation.ts';
import { sliceBuffers } from './buffers.ts';
import { crc32Of, crc32Replaced } from './checksum.ts';
import { writePieces } from './contents.ts';
import type { ObjectRow } from './index-rows.ts';

interface DraftPiece {
  readonly at: number;
  readonly bytes: Uint8Array;
}

export interface DraftOutcome {
  /** `append`: new bytes behind the object's, in its slot; `fresh`: all bytes, for a new slot. */
  readonly kind: 'append' | 'fresh';
  /** For `append` only the new bytes. */
  readonly buffers: readonly Uint8Array[];
  readonly length: number;
}

type Step =
  | { readonly kind: 'append'; readonly bytes: Uint8Array }
  | {
      readonly kind: 'replace';
      readonly before: readonly Uint8Array[];
      readonly bytes: Uint8Array;
      readonly tailBytes: number;
    };

/** Collects writes to one object, which then are one write to the disk. Copies nothing, and reads only what it must. */
export class ObjectDraft {
  readonly index: number;
  readonly base: ObjectRow | null;
  readonly #pieces: DraftPiece[] = [];
  #steps: Step[] = [];
  #startCrc = 0;
  seq = 0;

  constructor(index: number, base: ObjectRow | null) {
    this.index = index;
    this.base = base;
  }

  add(at: number, bytes: Uint8Array, seq: number): void {
    this.#pieces.push({ at, bytes });
    this.seq = seq;
  }

  /** Whether a piece changes some bytes of the base and leaves others. */
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

  /** Combines the pieces. @param baseBytes the object's bytes before the writes if `needsBase`, else null */
  finish(baseBytes: Uint8Array | null): DraftOutcome {
    assert((baseBytes !== null) === this.needsBase, 'The base is read where it is needed');
    let kind: DraftOutcome['kind'] = this.base === null || baseBytes !== null ? 'fresh' : 'append';
    let length = this.base?.length ?? 0;
    let buffers: Uint8Array[] = baseBytes === null ? [] : [baseBytes];
    this.#startCrc = this.base?.crc32 ?? 0;
    this.#steps = [];
    for (const { at, bytes } of this.#pieces) {
      const end = at + bytes.length;
      if (at === 0 && end >= length) {
        kind = 'fresh';
        buffers = [bytes];
        length = end;
        this.#startCrc = 0;
        this.#steps = [{ kind: 'append', bytes }];
        continue;
      }
      if (at < length) {
        const from = kind === 'append' ? (this.base?.length ?? 0) : 0;
        assert(at >= from, 'Bytes of the base are changed only where it was read');
        const inside = bytes.subarray(0, Math.min(end, length) - at);
        const insideEnd = at + inside.length;
        const before = sliceBuffers(buffers, at - from, insideEnd - from);
        this.#steps.push({ kind: 'replace', before, bytes: inside, tailBytes: length - insideEnd });
        const behind = sliceBuffers(buffers, insideEnd - from, length - from);
        buffers = [...sliceBuffers(buffers, 0, at - from), inside, ...behind];
      }
      // The gap between the end of the object and the piece reads as zeros.
      const added = at > length ? [new Uint8Array(at - length), bytes] : [bytes.subarray(length - at)];
      for (const one of end > length ? added : []) {
        this.#steps.push({ kind: 'append', bytes: one });
        buffers.push(one);
      }
      length = Math.max(length, end);
    }
    return { kind, buffers, length };
  }

  checksum(): number {
    let crc = this.#startCrc;
    for (const step of this.#steps) {
      if (step.kind === 'append') crc = crc32Of([step.bytes], crc);
      else crc = crc32Replaced(crc, step.before, step.bytes, step.tailBytes);
    }
    return crc;
  }
}

export class ObjectDrafts {
  readonly #objectBytes: number;
  readonly #baseOf: (index: number) => ObjectRow | null;
  readonly #drafts = new Map<number, ObjectDraft>();
  byteCount = 0;

  constructor(objectBytes: number, baseOf: (index: number) => ObjectRow | null) {
    this.#objectBytes = objectBytes;
    this.#baseOf = baseOf;
  }

  /** Adds the writes of operation `seq`, in order: later bytes overwrite earlier ones. */
  add(written: readonly WritePart[], seq: number): void {
    for (const { offset, bytes } of written) {
      this.byteCount += bytes.length;
      for (const piece of writePieces(offset, bytes, this.#objectBytes)) {
        let draft = this.#drafts.get(piece.index);
        if (draft === undefined) {
          draft = new ObjectDraft(piece.index, this.#baseOf(piece.index));
          this.#drafts.set(piece.index, draft);
        }
        draft.add(piece.at, piece.bytes, seq);
      }
    }
  }

  ordered(): ObjectDraft[] {
    return [...this.#drafts.values()].sort((a, b) => a.index - b.index);
  }
}
