import { assert } from '../../base/assert.ts';

/** A chunk never crosses a multiple of this, so that chunks and objects stay aligned. */
export const CHUNK_BYTES_MAX = 4 * 1024 * 1024;

/** Consecutive bytes of a file, on their way to the cluster. */
export interface Chunk {
  offset: number;
  length: number;
  buffers: Uint8Array[];
  /** `open`: the newest, may grow at its end; `queued`: complete, not sent. */
  state: 'open' | 'queued' | 'in-flight';
  /** Resolves when the chunk is acknowledged or dropped; never rejects. */
  readonly done: Promise<void>;
  readonly finish: () => void;
}

/** The chunks of one file in the order of their writes. Indexed by position, since random writes can make thousands. */
export class Chunks {
  readonly #all = new Set<Chunk>();
  /** By multiple of `CHUNK_BYTES_MAX`, the oldest first. */
  readonly #byBlock = new Map<number, Chunk[]>();
  #newest: Chunk | undefined;

  get count(): number {
    return this.#all.size;
  }

  get newest(): Chunk | undefined {
    return this.#newest;
  }

  /** The end of the last byte; 0 without chunks. */
  get end(): number {
    let end = 0;
    for (const chunk of this.#all) end = Math.max(end, chunk.offset + chunk.length);
    return end;
  }

  [Symbol.iterator](): IterableIterator<Chunk> {
    return this.#all.values();
  }

  add(chunk: Chunk): void {
    this.#all.add(chunk);
    this.#newest = chunk;
    const block = this.#byBlock.get(blockOf(chunk.offset));
    if (block === undefined) this.#byBlock.set(blockOf(chunk.offset), [chunk]);
    else block.push(chunk);
  }

  remove(chunk: Chunk): void {
    assert(this.#all.delete(chunk), 'A chunk is removed once');
    if (this.#newest === chunk) this.#newest = undefined;
    const block = this.around(chunk.offset);
    if (block.length === 1) this.#byBlock.delete(blockOf(chunk.offset));
    else block.splice(block.indexOf(chunk), 1);
  }

  /** The chunks in the block of `offset`, the oldest first; the caller must not modify the result. */
  around(offset: number): Chunk[] {
    return this.#byBlock.get(blockOf(offset)) ?? [];
  }

  overlaps(offset: number, length: number): boolean {
    for (let block = blockOf(offset); block <= blockOf(offset + length - 1); block++) {
      if (this.#byBlock.get(block)?.some((chunk) => chunkOverlaps(chunk, offset, length))) return true;
    }
    return false;
  }

  /** Whether an older chunk overlaps, which must arrive first. @param passed chunks to ignore */
  isBlocked(chunk: Chunk, passed?: ReadonlySet<Chunk>): boolean {
    for (const older of this.around(chunk.offset)) {
      if (older === chunk) return false;
      if (chunkOverlaps(older, chunk.offset, chunk.length) && passed?.has(older) !== true) return true;
    }
    return false;
  }

  /** An unsent chunk that the bytes extend, in its block; none if a younger one overlaps them, which is sent later. */
  neighbour(offset: number, length: number): Chunk | undefined {
    const block = this.around(offset);
    for (let index = block.length - 1; index >= 0; index--) {
      const chunk = block[index] as Chunk;
      const touches = chunk.offset + chunk.length === offset || offset + length === chunk.offset;
      if (touches && chunk.state !== 'in-flight') return chunk;
      if (chunkOverlaps(chunk, offset, length)) return undefined;
    }
    return undefined;
  }
}

function blockOf(offset: number): number {
  return Math.floor(offset / CHUNK_BYTES_MAX);
}

function chunkOverlaps(chunk: Chunk, offset: number, length: number): boolean {
  return chunk.offset < offset + length && offset < chunk.offset + chunk.length;
}
