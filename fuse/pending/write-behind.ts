import { assert } from '../../base/assert.ts';
import { makeUnreleasable, releaseMemory } from '../../base/releasable-memory.ts';
import type { Timer, World } from '../../base/world.ts';
import type { FileState } from '../backend.ts';
import { type DeadlineOf, withDeadline } from '../deadline.ts';
import { ErrnoError } from '../errno.ts';
import type { Budget } from './budget.ts';
import { CHUNK_BYTES_MAX, type Chunk, Chunks } from './chunks.ts';
import { SendWindow, WINDOW_BYTES_MAX } from './send-window.ts';

/** If buffers are smaller than this on average, they are copied into one: each buffer costs more than its copy. */
const BUFFER_BYTES_MIN = 32 * 1024;
/** Chunks up to this size share requests, from anywhere in the file: a request costs more than their bytes. */
const SMALL_BYTES_MAX = 64 * 1024;
const BATCH_COUNT_MAX = 256;
const BATCH_BYTES_MAX = 1024 * 1024;
/** Few, so that more small chunks gather meanwhile. */
const BATCHES_IN_FLIGHT_MAX = 4;
/** Has to stay below the limit of a session (64). Large requests are bounded by their bytes. */
const IN_FLIGHT_COUNT_MAX = 48;
/** Bounds one file, to leave space for others: a full window, and what is being gathered. */
export const FILE_DIRTY_BYTES_MAX = WINDOW_BYTES_MAX + 4 * 1024 * 1024;
const NO_BYTES = new Uint8Array(0);
/** A chunk that is not full waits this long for more. */
const PARTIAL_CHUNK_DELAY_MS = 10;

export interface WriteBehindOptions {
  readonly world: World;
  readonly write: (offset: number, parts: readonly Uint8Array[]) => Promise<FileState>;
  /** Bytes at several positions, which become visible atomically, in this order. */
  readonly writeParts: (
    parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[],
  ) => Promise<FileState>;
  /** Called when bytes are accepted, in the order of their writes. The array is valid only during the call. */
  readonly accepted: (offset: number, bytes: Uint8Array) => void;
  readonly acknowledged: (state: FileState) => void;
  /** Called when accepted bytes are dropped, or the outcome of their request is unknown. */
  readonly failed: (error: unknown) => void;
  readonly budget: Budget;
  /** Bounds each write call, and each request. */
  readonly limitMs: number;
  readonly deadlineOf?: DeadlineOf;
}

/**
 * The pending writes of one file. A write is acknowledged once its bytes are in memory; consecutive bytes form chunks
 * of up to 4 MiB. Small chunks share requests, preferably nearby ones, whose objects are then written once. Overlapping
 * chunks are sent in order, so that the last write wins.
 * If a chunk fails, it and all that are not sent are dropped, and `failed` records the error.
 */
export class WriteBehind {
  readonly #options: WriteBehindOptions;
  readonly #chunks = new Chunks();
  readonly #large = new Set<Chunk>();
  readonly #small = new Set<Chunk>();
  readonly #budget: Budget;
  #failure: { readonly error: unknown } | null = null;
  #inFlightCount = 0;
  #inFlightBytes = 0;
  #batchesInFlight = 0;
  readonly #window = new SendWindow();
  #timer: Timer | undefined;

  constructor(options: WriteBehindOptions) {
    this.#options = options;
    this.#budget = options.budget.share({ bytesMax: FILE_DIRTY_BYTES_MAX });
  }

  get dirty(): boolean {
    return this.#chunks.count > 0;
  }

  get dirtyEnd(): number {
    return this.#chunks.end;
  }

  get failure(): { readonly error: unknown } | null {
    return this.#failure;
  }

  overlaps(offset: number, length: number): boolean {
    return this.#chunks.overlaps(offset, length);
  }

  /** Takes ownership of the buffer. Resolves when the bytes are accepted, not when the cluster has them. */
  async write(offset: number, bytes: Uint8Array): Promise<void> {
    await this.#reserve(bytes.length);
    this.#options.accepted(offset, bytes);
    // Memory that several chunks share is not reused: none knows when the others are done.
    const isSplit =
      Math.floor(offset / CHUNK_BYTES_MAX) < Math.floor((offset + bytes.length - 1) / CHUNK_BYTES_MAX);
    if (isSplit) makeUnreleasable(bytes);
    for (let done = 0; done < bytes.length; ) {
      const at = offset + done;
      const boundary = (Math.floor(at / CHUNK_BYTES_MAX) + 1) * CHUNK_BYTES_MAX;
      const part = bytes.subarray(done, done + Math.min(bytes.length - done, boundary - at));
      this.#addToChunk(at, part, at + part.length === boundary);
      done += part.length;
    }
  }

  /** Resolves when all earlier writes are acknowledged or dropped. */
  async drain(): Promise<void> {
    this.#completeChunk();
    await Promise.all([...this.#chunks].map((chunk) => chunk.done));
  }

  async #reserve(bytes: number): Promise<void> {
    if (this.#budget.tryReserve(bytes)) return;
    const before = this.#failure;
    this.#completeChunk();
    await this.#budget.reserve(bytes, this.#options.limitMs, this.#options.deadlineOf);
    // The space came from dropped chunks: bytes that follow them must not be written.
    if (this.#failure !== null && this.#failure !== before) {
      this.#budget.release(bytes);
      throw this.#failure.error;
    }
  }

  #addToChunk(offset: number, part: Uint8Array, full: boolean): void {
    const neighbour = this.#chunks.neighbour(offset, part.length);
    if (neighbour !== undefined) {
      if (neighbour.offset < offset) neighbour.buffers.push(part);
      else neighbour.buffers.unshift(part);
      neighbour.offset = Math.min(neighbour.offset, offset);
      neighbour.length += part.length;
      assert(neighbour.length <= CHUNK_BYTES_MAX, 'A chunk ends at the boundary');
      if (neighbour.state === 'queued') {
        this.#queue(neighbour);
        return;
      }
    } else {
      this.#completeChunk();
      const { promise, resolve } = Promise.withResolvers<void>();
      const state = 'open';
      this.#chunks.add({
        offset,
        length: part.length,
        buffers: [part],
        state,
        done: promise,
        finish: resolve,
      });
    }
    if (full) this.#completeChunk();
    else this.#timer ??= this.#options.world.after(PARTIAL_CHUNK_DELAY_MS, () => this.#completeChunk());
  }

  /** Completes the open chunk, which can only be the newest, and sends what may be sent. */
  #completeChunk(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const { newest } = this.#chunks;
    if (newest?.state === 'open') this.#queue(newest);
    this.#send();
  }

  #queue(chunk: Chunk): void {
    chunk.state = 'queued';
    if (chunk.length <= SMALL_BYTES_MAX) {
      this.#small.add(chunk);
      return;
    }
    this.#small.delete(chunk);
    this.#large.add(chunk);
  }

  #send(): void {
    for (const chunk of this.#large) {
      if (this.#inFlightCount >= IN_FLIGHT_COUNT_MAX || !this.#fits(chunk.length)) break;
      if (!this.#chunks.isBlocked(chunk)) void this.#transmit([chunk]).then(() => this.#send());
    }
    while (this.#small.size > 0 && this.#batchesInFlight < BATCHES_IN_FLIGHT_MAX) {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      this.#batchesInFlight++;
      void this.#transmit(batch).then(() => {
        this.#batchesInFlight--;
        this.#send();
      });
    }
  }

  #fits(bytes: number): boolean {
    return this.#inFlightBytes + bytes <= this.#window.bytesMax;
  }

  /** Small chunks that may be sent: the oldest with all near it, then the next oldest likewise. */
  #nextBatch(): Chunk[] {
    const batch = new Set<Chunk>();
    let bytes = 0;
    for (const oldest of this.#small) {
      if (batch.has(oldest)) continue;
      for (const chunk of this.#chunks.around(oldest.offset)) {
        if (!this.#small.has(chunk) || this.#chunks.isBlocked(chunk, batch)) continue;
        bytes += chunk.length;
        if (batch.size === BATCH_COUNT_MAX || bytes > BATCH_BYTES_MAX || !this.#fits(bytes))
          return [...batch];
        batch.add(chunk);
      }
    }
    return [...batch];
  }

  /** Sends chunks in one request. Resolves when they are acknowledged or dropped. */
  async #transmit(chunks: readonly Chunk[]): Promise<void> {
    const bytes = chunks.reduce((sum, { length }) => sum + length, 0);
    for (const chunk of chunks) {
      chunk.state = 'in-flight';
      this.#small.delete(chunk);
      this.#large.delete(chunk);
    }
    this.#inFlightCount++;
    this.#inFlightBytes += bytes;
    const { world, limitMs, deadlineOf } = this.#options;
    const sentMs = world.nowMs();
    const parts = chunks.flatMap((chunk) => chunk.buffers);
    try {
      const written = this.#requestWrite(chunks);
      this.#options.acknowledged(await withDeadline(world, written, limitMs, 'A write', deadlineOf));
      // Only after success: a failed request may still be reading them.
      for (const part of parts) releaseMemory(part);
    } catch (error) {
      this.abandon(error);
    }
    this.#window.answered(bytes, world.nowMs() - sentMs);
    this.#inFlightCount--;
    this.#inFlightBytes -= bytes;
    for (const chunk of chunks) this.#remove(chunk);
  }

  #requestWrite(chunks: readonly Chunk[]): Promise<FileState> {
    const [first] = chunks;
    if (chunks.length === 1 && first !== undefined)
      return this.#options.write(first.offset, takeBuffers(first));
    return this.#options.writeParts(
      chunks.map((chunk) => {
        const [only = NO_BYTES, ...more] = takeBuffers(chunk);
        return { offset: chunk.offset, bytes: more.length === 0 ? only : Buffer.concat([only, ...more]) };
      }),
    );
  }

  /** Drops what is not sent, and reports the error: later requests would fail too, each after its own time limit. */
  abandon(error: unknown): void {
    this.#failure = { error: error ?? new ErrnoError('EIO', 'A write failed') };
    this.#options.failed(this.#failure.error);
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const chunk of [...this.#chunks].filter(({ state }) => state !== 'in-flight')) this.#remove(chunk);
  }

  #remove(chunk: Chunk): void {
    this.#small.delete(chunk);
    this.#large.delete(chunk);
    this.#chunks.remove(chunk);
    this.#budget.release(chunk.length);
    chunk.finish();
  }
}

function takeBuffers(chunk: Chunk): readonly Uint8Array[] {
  const { buffers, length } = chunk;
  chunk.buffers = [];
  const areSmall = buffers.length > 1 && length < buffers.length * BUFFER_BYTES_MIN;
  return areSmall ? [Buffer.concat(buffers, length)] : buffers;
}
