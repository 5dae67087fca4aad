import { assert } from '../base/assert.ts';
import type { FileState } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { ErrnoError } from './errno.ts';
import { SendWindow, WINDOW_BYTES_MAX } from './send-window.ts';

/** A chunk never crosses a multiple of this, so that chunks and objects stay aligned to each other. */
export const CHUNK_BYTES_MAX = 2 * 1024 * 1024;
/** Parts that are smaller than this on an average are put together: each costs more than its copy. */
const PART_BYTES_MIN = 32 * 1024;
/**
 * What travels at the same time of one file. Large chunks are bounded by their bytes, in a window; small ones in any order,
 * as a database writes them, by their number, which has to stay below what a session may have under way (64).
 */
const IN_FLIGHT_COUNT_MAX = 48;
/** Dirty bytes of one file, so that one slow file leaves room for the others: a full window, and what is put together. */
export const FILE_DIRTY_BYTES_MAX = WINDOW_BYTES_MAX + 4 * 1024 * 1024;
/** A chunk that is not full waits this long for its neighbour. */
const PARTIAL_CHUNK_DELAY_MS = 10;

/**
 * Bytes accepted from programs and not yet acknowledged by the cluster, over all files of the mount.
 * Whoever would exceed the limit waits in line.
 */
export class DirtyBudget {
  readonly #bytesMax: number;
  readonly #waiting: { readonly bytes: number; readonly admit: () => void }[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** @returns whether the bytes are admitted at once; only if nobody waits already */
  tryReserve(bytes: number): boolean {
    if (this.#waiting.length > 0 || !this.#fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  async reserve(bytes: number, limitMs: number): Promise<void> {
    if (this.tryReserve(bytes)) return;
    let entry: { readonly bytes: number; readonly admit: () => void } | undefined;
    const admitted = new Promise<void>((resolve) => {
      entry = { bytes, admit: resolve };
      this.#waiting.push(entry);
    });
    try {
      await withDeadline(admitted, limitMs, 'Waiting for room in the write buffer');
    } catch (error) {
      assert(entry !== undefined, 'The executor of a promise runs at once');
      const index = this.#waiting.indexOf(entry);
      // Admitted in the same turn in which the time was up: the bytes go back.
      if (index < 0) this.release(bytes);
      else this.#waiting.splice(index, 1);
      this.#admitNext();
      throw error;
    }
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
    assert(this.#bytes >= 0, 'No more is released than was reserved');
    this.#admitNext();
  }

  #admitNext(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.bytes); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#bytes += next.bytes;
      next.admit();
    }
  }

  /** A single write larger than the limit passes when it is alone. */
  #fits(bytes: number): boolean {
    return this.#bytes === 0 || this.#bytes + bytes <= this.#bytesMax;
  }
}

interface Chunk {
  offset: number;
  length: number;
  parts: Uint8Array[];
  state: 'open' | 'queued' | 'in-flight';
  /** Resolves when the chunk is acknowledged or given up; never rejects. */
  readonly done: Promise<void>;
  readonly finish: () => void;
}

export interface WriteBehindOptions {
  readonly write: (offset: number, parts: readonly Uint8Array[]) => Promise<FileState>;
  readonly acknowledged: (state: FileState) => void;
  readonly budget: DirtyBudget;
  /** The longest that one write call may wait, and one chunk may travel. */
  readonly limitMs: number;
}

/**
 * The writes of one file that are under way. A program's write is answered once its bytes are here; they are
 * put together with their neighbours to chunks of up to 2 MiB, of which several travel at a time. Chunks that overlap
 * travel one after the other, in the order of the writes, so that the file ends up as the program wrote it.
 *
 * A chunk that fails is lost, and so is what waits behind it: the error is kept and told by `errorsSince` to
 * every handle that was open, at its next write, fsync or close.
 */
export class WriteBehind {
  readonly #options: WriteBehindOptions;
  /** In the order of the writes. */
  readonly #chunks: Chunk[] = [];
  readonly #fileBudget = new DirtyBudget(FILE_DIRTY_BYTES_MAX);
  #error: unknown;
  #errorCount = 0;
  #inFlightCount = 0;
  #inFlightBytes = 0;
  readonly #window = new SendWindow();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: WriteBehindOptions) {
    this.#options = options;
  }

  get dirty(): boolean {
    return this.#chunks.length > 0;
  }

  /** Where the last dirty byte ends; 0 if none is. */
  get dirtyEnd(): number {
    let end = 0;
    for (const chunk of this.#chunks) end = Math.max(end, chunk.offset + chunk.length);
    return end;
  }

  get errorCount(): number {
    return this.#errorCount;
  }

  /** @returns the latest error, if there was one after the given count of errors */
  errorSince(errorCount: number): unknown {
    return this.#errorCount > errorCount ? this.#error : undefined;
  }

  overlaps(offset: number, length: number): boolean {
    return this.#chunks.some((chunk) => chunkOverlaps(chunk, offset, length));
  }

  /**
   * Takes the bytes over: the buffer belongs to the write-behind from now on.
   * Resolves when they are here, not when the cluster has them.
   */
  async write(offset: number, bytes: Uint8Array): Promise<void> {
    await this.#reserve(bytes.length);
    for (let done = 0; done < bytes.length; ) {
      const at = offset + done;
      const boundary = (Math.floor(at / CHUNK_BYTES_MAX) + 1) * CHUNK_BYTES_MAX;
      const part = bytes.subarray(done, done + Math.min(bytes.length - done, boundary - at));
      this.#take(at, part, at + part.length === boundary);
      done += part.length;
    }
  }

  /** Resolves when all that was written before is acknowledged or given up (see `errorSince`). */
  async drain(): Promise<void> {
    this.#seal();
    await Promise.all(this.#chunks.map((chunk) => chunk.done));
  }

  async #reserve(bytes: number): Promise<void> {
    const { budget, limitMs } = this.#options;
    if (this.#fileBudget.tryReserve(bytes)) {
      if (budget.tryReserve(bytes)) return;
      this.#fileBudget.release(bytes);
    }
    const errorCount = this.#errorCount;
    this.#seal();
    await this.#fileBudget.reserve(bytes, limitMs);
    try {
      await budget.reserve(bytes, limitMs);
    } catch (error) {
      this.#fileBudget.release(bytes);
      throw error;
    }
    // The room came from chunks that were given up: what follows them is not to be written either.
    if (this.#errorCount > errorCount) {
      this.#release(bytes);
      throw this.#error;
    }
  }

  #release(bytes: number): void {
    this.#fileBudget.release(bytes);
    this.#options.budget.release(bytes);
  }

  #take(offset: number, part: Uint8Array, full: boolean): void {
    const neighbour = this.#neighbour(offset, part.length);
    if (neighbour !== undefined) {
      if (neighbour.offset < offset) neighbour.parts.push(part);
      else neighbour.parts.unshift(part);
      neighbour.offset = Math.min(neighbour.offset, offset);
      neighbour.length += part.length;
      assert(neighbour.length <= CHUNK_BYTES_MAX, 'A chunk ends at the boundary');
      // One that waits for its turn has been sealed already.
      if (neighbour.state === 'queued') return;
    } else {
      this.#seal();
      const { promise, resolve } = Promise.withResolvers<void>();
      const state = 'open';
      this.#chunks.push({
        offset,
        length: part.length,
        parts: [part],
        state,
        done: promise,
        finish: resolve,
      });
    }
    if (full) this.#seal();
    else this.#timer ??= setTimeout(() => this.#seal(), PARTIAL_CHUNK_DELAY_MS);
  }

  /**
   * @returns a chunk that has not left yet and that the bytes continue, on either side, without crossing a boundary. None
   *   where a younger chunk has some of these bytes: they would leave before it, and be overwritten with older ones
   */
  #neighbour(offset: number, length: number): Chunk | undefined {
    const block = Math.floor(offset / CHUNK_BYTES_MAX);
    for (let index = this.#chunks.length - 1; index >= 0; index--) {
      const chunk = this.#chunks[index] as Chunk;
      const touches = chunk.offset + chunk.length === offset || offset + length === chunk.offset;
      const isWaiting = chunk.state !== 'in-flight';
      if (touches && isWaiting && Math.floor(chunk.offset / CHUNK_BYTES_MAX) === block) return chunk;
      if (chunkOverlaps(chunk, offset, length)) return undefined;
    }
    return undefined;
  }

  /** The open chunk, if there is one, is complete. Only the last one can be open. */
  #seal(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const last = this.#chunks.at(-1);
    if (last?.state === 'open') last.state = 'queued';
    this.#send();
  }

  #send(): void {
    for (let index = 0; index < this.#chunks.length && this.#inFlightCount < IN_FLIGHT_COUNT_MAX; index++) {
      const chunk = this.#chunks[index];
      if (chunk?.state !== 'queued') continue;
      if (this.#inFlightBytes + chunk.length > this.#window.bytesMax) return;
      // Every chunk before this one is older; the bytes of the younger must arrive last.
      const blocked = this.#chunks
        .slice(0, index)
        .some((older) => chunkOverlaps(older, chunk.offset, chunk.length));
      if (!blocked) void this.#travel(chunk);
    }
  }

  async #travel(chunk: Chunk): Promise<void> {
    chunk.state = 'in-flight';
    this.#inFlightCount++;
    this.#inFlightBytes += chunk.length;
    const isFine = chunk.parts.length > 1 && chunk.length < chunk.parts.length * PART_BYTES_MIN;
    const parts = isFine ? [Buffer.concat(chunk.parts, chunk.length)] : chunk.parts;
    chunk.parts = [];
    const sentMs = performance.now();
    try {
      const written = this.#options.write(chunk.offset, parts);
      this.#options.acknowledged(await withDeadline(written, this.#options.limitMs, 'A write'));
    } catch (error) {
      this.#fail(error);
    }
    this.#window.answered(chunk.length, performance.now() - sentMs);
    this.#inFlightCount--;
    this.#inFlightBytes -= chunk.length;
    this.#remove(chunk);
    this.#send();
  }

  /** After a failure the rest would fail too, each after its own time limit: it is given up now. */
  #fail(error: unknown): void {
    this.#errorCount++;
    this.#error = error ?? new ErrnoError('EIO', 'A write failed');
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const chunk of this.#chunks.filter(({ state }) => state !== 'in-flight')) this.#remove(chunk);
  }

  #remove(chunk: Chunk): void {
    const index = this.#chunks.indexOf(chunk);
    assert(index >= 0, 'A chunk is removed once');
    this.#chunks.splice(index, 1);
    this.#release(chunk.length);
    chunk.finish();
  }
}

function chunkOverlaps(chunk: Chunk, offset: number, length: number): boolean {
  return chunk.offset < offset + length && offset < chunk.offset + chunk.length;
}
