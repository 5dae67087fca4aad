/** Reads in sequence are served in blocks of this size, aligned to it. */
export const BLOCK_BYTES = 1024 * 1024;
/** Blocks fetched ahead of a reader in sequence. */
const BLOCKS_AHEAD = 2;
/** A read of this size or more comes from a kernel that reads ahead itself. */
const LARGE_READ_BYTES = 128 * 1024;
/** The kernel's parallel requests arrive out of order by this much at the most. */
const DISORDER_BYTES_MAX = 8 * BLOCK_BYTES;
/** How long a block may be served; longer-lived caching is the kernel's, which checks the version. */
const BLOCK_AGE_MAX_MS = 1000;

/** One reader's place in a file, by which reading in sequence is told from reading at random. */
export class ReadPosition {
  #next = 0;
  #streak = 0;

  /** @returns whether this read, and those before it, go through the file from front to back */
  advance(offset: number, length: number): boolean {
    const inOrder = offset === this.#next;
    const nearby = length >= LARGE_READ_BYTES && Math.abs(offset - this.#next) <= DISORDER_BYTES_MAX;
    this.#streak = inOrder ? this.#streak + 1 : nearby ? Math.max(this.#streak, 1) : 0;
    this.#next = inOrder || !nearby ? offset + length : Math.max(this.#next, offset + length);
    return this.#streak >= 2 || (length >= LARGE_READ_BYTES && this.#streak >= 1);
  }
}

/** Contents as the read-ahead sees them, until they change. */
export class ReadSource {
  /** Reads past the cache. */
  readonly read: (offset: number, length: number) => Promise<Uint8Array>;
  /** The size as last heard of; nothing is fetched ahead beyond it. */
  readonly sizeBytes: () => number;
  #generation = ReadSource.#next();

  static #last = 0;

  constructor(read: (offset: number, length: number) => Promise<Uint8Array>, sizeBytes: () => number) {
    this.read = read;
    this.sizeBytes = sizeBytes;
  }

  get generation(): number {
    return this.#generation;
  }

  /** The contents changed: no block that was fetched, or is being fetched, is served any more. */
  changed(): void {
    this.#generation = ReadSource.#next();
  }

  /** Never the same twice, so that a file opened anew does not find what it was before. */
  static #next(): number {
    return ++ReadSource.#last;
  }
}

interface Block {
  readonly key: string;
  readonly bytes: Promise<Uint8Array>;
  /** Infinity while it is being fetched. */
  expiresMs: number;
  /** Bytes of it that were read so far. */
  readBytes: number;
}

/**
 * Blocks of all files of the mount. One that was read as a whole is given up, for the kernel has its bytes now; of the
 * others the one used longest ago, but never for what nobody waits for yet.
 */
export class ReadAhead {
  readonly #blocks = new Map<string, Block>();
  readonly #blocksMax: number;

  constructor(bytesMax: number) {
    this.#blocksMax = Math.max(1, Math.floor(bytesMax / BLOCK_BYTES));
  }

  /** @returns the bytes there are, fewer than `length` only at the end of the file */
  async read(
    source: ReadSource,
    position: ReadPosition,
    offset: number,
    length: number,
  ): Promise<Uint8Array> {
    const inSequence = position.advance(offset, length);
    const first = Math.floor(offset / BLOCK_BYTES);
    const last = Math.floor((offset + length - 1) / BLOCK_BYTES);
    if (!inSequence && !this.#has(source, first)) return source.read(offset, length);
    const blocks: Block[] = [];
    for (let index = first; index <= last; index++) blocks.push(this.#block(source, index));
    if (inSequence) this.#fetchAhead(source, last + 1);
    await Promise.all(blocks.map((block) => block.bytes));
    const parts: Uint8Array[] = [];
    let at = offset;
    let base = first * BLOCK_BYTES;
    for (const block of blocks) {
      const bytes = await block.bytes;
      const part = bytes.subarray(at - base, offset + length - base);
      parts.push(part);
      at += part.length;
      base += BLOCK_BYTES;
      block.readBytes += part.length;
      if (block.readBytes >= bytes.length && this.#blocks.get(block.key) === block) {
        this.#blocks.delete(block.key);
      }
      if (bytes.length < BLOCK_BYTES) break;
    }
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }

  #has(source: ReadSource, index: number): boolean {
    const block = this.#blocks.get(blockKey(source, index));
    return block !== undefined && block.expiresMs > performance.now();
  }

  /** Fetches blocks from `first` on that nobody waits for yet, as far as there is room. */
  #fetchAhead(source: ReadSource, first: number): void {
    for (let index = first; index < first + BLOCKS_AHEAD; index++) {
      if (index * BLOCK_BYTES >= source.sizeBytes()) return;
      // Another reader is about to want what would have to go, and would have it fetched a second time.
      if (!this.#has(source, index) && !this.#hasRoom()) return;
      // Whoever reads it hears of the failure; ahead of the reader it is nobody's.
      this.#block(source, index).bytes.catch(() => undefined);
    }
  }

  #hasRoom(): boolean {
    if (this.#blocks.size < this.#blocksMax) return true;
    const nowMs = performance.now();
    for (const [key, block] of this.#blocks) {
      if (block.expiresMs <= nowMs) this.#blocks.delete(key);
    }
    return this.#blocks.size < this.#blocksMax;
  }

  #block(source: ReadSource, index: number): Block {
    const key = blockKey(source, index);
    const present = this.#blocks.get(key);
    this.#blocks.delete(key);
    if (present !== undefined && present.expiresMs > performance.now()) {
      this.#blocks.set(key, present);
      return present;
    }
    const bytes = source.read(index * BLOCK_BYTES, BLOCK_BYTES);
    const block: Block = { key, bytes, expiresMs: Number.POSITIVE_INFINITY, readBytes: 0 };
    this.#blocks.set(key, block);
    bytes.then(
      () => {
        block.expiresMs = performance.now() + BLOCK_AGE_MAX_MS;
      },
      () => {
        if (this.#blocks.get(key) === block) this.#blocks.delete(key);
      },
    );
    for (const oldest of this.#blocks.keys()) {
      if (this.#blocks.size <= this.#blocksMax) break;
      this.#blocks.delete(oldest);
    }
    return block;
  }
}

function blockKey(source: ReadSource, index: number): string {
  return `${source.generation}/${index}`;
}
