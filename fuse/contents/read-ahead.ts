import { BoundedMap } from '../../base/bounded-map.ts';
import { releaseMemory } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import { ReadAround } from './read-around.ts';
import type { ReadSource } from './read-source.ts';

/** Sequential reads use aligned blocks of this size. */
export const BLOCK_BYTES = 1024 * 1024;
const BLOCKS_AHEAD = 2;
/** A read of at least this size comes from a kernel that reads ahead itself. */
const LARGE_READ_BYTES = 128 * 1024;
/** The most by which the kernel's parallel requests arrive out of order. */
const DISORDER_BYTES_MAX = 8 * BLOCK_BYTES;
/** How long a block is served; longer caching is the kernel's, which checks the version. */
const BLOCK_AGE_MAX_MS = 1000;

/** A reader's position in a file, which distinguishes sequential from random reads. */
export class ReadPosition {
  #next = 0;
  #streak = 0;

  /** Records a read. @returns whether it continues a sequential one */
  advance(offset: number, length: number): boolean {
    const inOrder = offset === this.#next;
    const nearby = length >= LARGE_READ_BYTES && Math.abs(offset - this.#next) <= DISORDER_BYTES_MAX;
    this.#streak = inOrder ? this.#streak + 1 : nearby ? Math.max(this.#streak, 1) : 0;
    this.#next = inOrder || !nearby ? offset + length : Math.max(this.#next, offset + length);
    return this.#streak >= 2 || (length >= LARGE_READ_BYTES && this.#streak >= 1);
  }
}

interface Block {
  readonly key: string;
  readonly bytes: Promise<Uint8Array>;
  /** Infinity while it is being fetched. */
  expiresMs: number;
  readBytes: number;
  /** The kernel may get it: no read bypassed it since its fetch began, which could have newer bytes. */
  mayBeStored: boolean;
  /** Reads that use it, until they end or their part of it is released. */
  userCount: number;
}

/**
 * Blocks of files, fetched for sequential reads or for the kernel's page cache. A block that was read completely is
 * dropped, as the kernel has its bytes; for space, the least recently used one is, but not for a block that no read
 * waits for.
 */
export class ReadAhead {
  readonly #world: World;
  readonly #blocks: BoundedMap<string, Block>;
  readonly #blocksMax: number;
  readonly #around = new ReadAround();
  readonly #returnedParts = new WeakMap<Uint8Array, Block>();

  constructor(world: World, bytesMax: number) {
    this.#world = world;
    this.#blocksMax = Math.max(1, Math.floor(bytesMax / BLOCK_BYTES));
    this.#blocks = new BoundedMap(this.#blocksMax);
  }

  /**
   * Reads from blocks if the read is sequential or its first block is here; else only the requested bytes.
   * @param isCurrent called before bytes fetched earlier are used; changes the source's generation if the contents
   *   differ. If it returns false, no block is used.
   * @returns fewer than `length` bytes only at the end of the file
   */
  async read(
    source: ReadSource,
    position: ReadPosition,
    offset: number,
    length: number,
    isCurrent: () => boolean | Promise<boolean> = () => true,
  ): Promise<Uint8Array> {
    const inSequence = position.advance(offset, length);
    const first = Math.floor(offset / BLOCK_BYTES);
    const last = Math.floor((offset + length - 1) / BLOCK_BYTES);
    if (inSequence || this.#has(source, first)) {
      const answer = isCurrent();
      if (answer !== true && !(await answer)) return this.#readWithoutBlock(source, offset, length);
    }
    if (!inSequence && !this.#has(source, first)) {
      const isWithin = first === last && source.mayStorePages;
      if (!isWithin || !this.#around.countMiss(blockKey(source, first))) {
        return this.#readWithoutBlock(source, offset, length);
      }
      this.#fetchAround(source, first);
    }
    const blocks: Block[] = [];
    for (let index = first; index <= last; index++) blocks.push(this.#useBlock(source, index, inSequence));
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
    const [only] = parts;
    if (parts.length === 1 && only !== undefined) {
      // Only the first block has bytes.
      for (const block of blocks.slice(1)) await this.#endUse(block);
      this.#returnedParts.set(only, blocks[0] as Block);
      return only;
    }
    const all = Buffer.concat(parts);
    for (const block of blocks) await this.#endUse(block);
    return all;
  }

  /** Called when the transport no longer uses the bytes of a `read`: ends their use of the block's memory. */
  release(bytes: Uint8Array): void {
    const block = this.#returnedParts.get(bytes);
    if (block === undefined) return;
    this.#returnedParts.delete(bytes);
    void this.#endUse(block);
  }

  #useBlock(source: ReadSource, index: number, inSequence: boolean): Block {
    const block = this.#block(source, index, inSequence);
    block.userCount++;
    return block;
  }

  /** Ends one use of a block. After the last, its memory is used again if all of it was read. */
  async #endUse(block: Block): Promise<void> {
    block.userCount--;
    const bytes = await block.bytes;
    if (block.userCount === 0 && block.readBytes >= bytes.length) releaseMemory(bytes);
  }

  async #readWithoutBlock(source: ReadSource, offset: number, length: number): Promise<Uint8Array> {
    const beganMs = this.#world.nowMs();
    const { bytes } = await source.fetchAlone(offset, length);
    if (length < LARGE_READ_BYTES) this.#around.singleTook(this.#world.nowMs() - beganMs);
    // The kernel gets these bytes, and those of a block being fetched may be older.
    const last = Math.floor((offset + length - 1) / BLOCK_BYTES);
    for (let index = Math.floor(offset / BLOCK_BYTES); index <= last; index++) {
      const block = this.#blocks.get(blockKey(source, index));
      if (block !== undefined) block.mayBeStored = false;
    }
    return bytes;
  }

  /** Fetches a block for the kernel's page cache, which then answers reads of its neighbourhood. */
  #fetchAround(source: ReadSource, index: number): void {
    const { generation } = source;
    const beganMs = this.#world.nowMs();
    // Never released: both the kernel and readers get the memory, which is left to garbage collection.
    const block = this.#useBlock(source, index, false);
    block.bytes
      .then(async (bytes) => {
        this.#around.blockTook(this.#world.nowMs() - beganMs);
        if (!block.mayBeStored || this.#blocks.get(block.key) !== block) return;
        if (!(await source.storePages(generation, index * BLOCK_BYTES, bytes))) return;
        this.#around.storedInKernel(block.key);
        if (this.#blocks.get(block.key) === block) this.#blocks.delete(block.key);
      })
      // Reads that wait for the block get the failure.
      .catch(() => undefined);
  }

  #has(source: ReadSource, index: number): boolean {
    const block = this.#blocks.get(blockKey(source, index));
    return block !== undefined && block.expiresMs > this.#world.nowMs();
  }

  /** Fetches blocks from `first` before they are read, as far as there is space. */
  #fetchAhead(source: ReadSource, first: number): void {
    for (let index = first; index < first + BLOCKS_AHEAD; index++) {
      if (index * BLOCK_BYTES >= source.sizeBytes()) return;
      // Other readers still need the blocks that would be dropped.
      if (!this.#has(source, index) && !this.#hasSpace()) return;
      // Only a read that uses the block gets the failure.
      this.#block(source, index, true).bytes.catch(() => undefined);
    }
  }

  #hasSpace(): boolean {
    if (this.#blocks.size < this.#blocksMax) return true;
    const nowMs = this.#world.nowMs();
    for (const [key, block] of this.#blocks.entries()) {
      if (block.expiresMs <= nowMs) this.#blocks.delete(key);
    }
    return this.#blocks.size < this.#blocksMax;
  }

  #block(source: ReadSource, index: number, inSequence: boolean): Block {
    const key = blockKey(source, index);
    const present = this.#blocks.get(key);
    if (present !== undefined && present.expiresMs > this.#world.nowMs()) {
      this.#blocks.set(key, present);
      return present;
    }
    const fetched = inSequence
      ? source.fetch(index * BLOCK_BYTES, BLOCK_BYTES)
      : source.fetchAlone(index * BLOCK_BYTES, BLOCK_BYTES);
    const bytes = fetched.then((one) => one.bytes);
    const block: Block = {
      key,
      bytes,
      expiresMs: Number.POSITIVE_INFINITY,
      readBytes: 0,
      mayBeStored: true,
      userCount: 0,
    };
    this.#blocks.set(key, block);
    fetched.then(
      ({ sinceMs }) => {
        block.expiresMs = sinceMs + BLOCK_AGE_MAX_MS;
      },
      () => {
        if (this.#blocks.get(key) === block) this.#blocks.delete(key);
      },
    );
    return block;
  }
}

function blockKey(source: ReadSource, index: number): string {
  return `${source.generation}/${index}`;
}
