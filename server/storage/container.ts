import fs from 'node:fs';
import path from 'node:path';
import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import { isPageAligned, pageMemory, releasePages } from '../../base/page-memory.ts';
import { containerName } from '../../wire/locations.ts';
import { joinedInPlace, sliceBuffers } from './buffers.ts';
import type { DirectWrites } from './direct-writes.ts';
import { errorCode } from './failures.ts';
import { type FileOps, readFully, writeFully } from './file-ops.ts';
import { SharedFlush } from './shared-flush.ts';
import { SynchronousWrites } from './synchronous-writes.ts';

/** Bytes in one system call: enough to be cheap, and few enough not to occupy a thread for long. */
const RUN_BYTES_MAX = 4 * 1024 * 1024;
/** Buffers in one system call (IOV_MAX is 1024). */
const RUN_BUFFERS_MAX = 512;
const CONTAINERS_OPEN_MAX = 256;

export interface Chunk {
  readonly position: number;
  readonly buffers: readonly Uint8Array[];
  readonly byteCount: number;
}

/** The file with one replica's contents, open; each object is in a slot of it. */
export class Container {
  readonly file: FileId;
  readonly #path: string;
  readonly #ops: FileOps;
  readonly #fd: number;
  readonly #direct: DirectWrites;
  #directFd: Promise<number> | null = null;
  readonly #directoryFlush: SharedFlush;
  readonly #flush: SharedFlush;
  references = 0;
  /** Unsynced bytes were written through this descriptor. */
  #written = false;
  /** The directory entry, which an earlier process may have created, is known to be synced. */
  #isEntrySynced = false;
  #sizeBytes: number;

  constructor(
    file: FileId,
    containerPath: string,
    ops: FileOps,
    fd: number,
    sizeBytes: number,
    direct: DirectWrites,
    directory: SharedFlush,
  ) {
    this.file = file;
    this.#path = containerPath;
    this.#ops = ops;
    this.#fd = fd;
    this.#sizeBytes = sizeBytes;
    this.#direct = direct;
    this.#directoryFlush = directory;
    this.#flush = new SharedFlush(() => this.#datasync());
  }

  get path(): string {
    return this.#path;
  }

  get hasUnsyncedBytes(): boolean {
    return this.#written;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Writes adjacent chunks in one call. The caller leaves the buffers unchanged meanwhile: they are not copied. */
  async write(chunks: readonly Chunk[]): Promise<void> {
    this.#written = true;
    const runs = adjacentRuns(chunks);
    for (const run of runs) {
      this.#sizeBytes = Math.max(this.#sizeBytes, run.position + run.byteCount);
    }
    await waitForAll(runs.map((run) => this.#writeRun(run)));
  }

  /** Writes a run: its whole pages past the page cache if `DirectWrites` selects them, all else through the cache. */
  #writeRun({ position, buffers, byteCount }: Chunk): Promise<void> {
    const part = this.#direct.partOf(position, byteCount);
    if (part === null) return writeFully(this.#ops, this.#fd, buffers, position);
    const { from, to } = part;
    return waitForAll([
      writeFully(this.#ops, this.#fd, sliceBuffers(buffers, 0, from), position),
      this.#writeDirect(sliceBuffers(buffers, from, to), to - from, position + from),
      writeFully(this.#ops, this.#fd, sliceBuffers(buffers, to, byteCount), position + to),
    ]);
  }

  /** Writes whole pages past the page cache: from `buffers` if they are adjacent and page-aligned, else from a copy. */
  async #writeDirect(buffers: readonly Uint8Array[], byteCount: number, position: number): Promise<void> {
    const adjacent = joinedInPlace(buffers);
    const isInPlace = adjacent !== null && isPageAligned(adjacent);
    const pages = isInPlace ? adjacent : copiedToPages(buffers, byteCount);
    try {
      const count = await this.#direct.tryWrite(async () =>
        this.#ops.write(await this.#openDirect(), [pages], position),
      );
      // The disk wrote only a part, or the file system does not support direct writes.
      await writeFully(this.#ops, this.#fd, sliceBuffers(buffers, count, byteCount), position + count);
    } finally {
      if (!isInPlace) releasePages(pages);
    }
  }

  #openDirect(): Promise<number> {
    this.#directFd ??= this.#ops.open(this.#path, fs.constants.O_WRONLY | fs.constants.O_DIRECT);
    return this.#directFd;
  }

  read(buffer: Uint8Array, position: number): Promise<number> {
    return readFully(this.#ops, this.#fd, buffer, position);
  }

  /** Resolves when everything written before the call, by any process, survives loss of power. */
  flush(): Promise<void> {
    return this.#flush.request();
  }

  async truncate(sizeBytes: number): Promise<void> {
    this.#written = true;
    await this.#ops.truncate(this.#fd, sizeBytes);
    this.#sizeBytes = sizeBytes;
  }

  async close(): Promise<void> {
    const direct = await this.#directFd?.catch(() => null);
    await waitForAll([this.#ops.close(this.#fd), ...(direct == null ? [] : [this.#ops.close(direct)])]);
  }

  async #datasync(): Promise<void> {
    this.#written = false;
    await this.#ops.datasync(this.#fd);
    if (!this.#isEntrySynced) {
      await this.#directoryFlush.request();
      this.#isEntrySynced = true;
    }
  }
}

/** Waits for all of them even if one fails, so that nothing still writes when the caller handles the failure. */
export async function waitForAll(works: readonly Promise<unknown>[]): Promise<void> {
  if (works.length === 1) {
    await works[0];
    return;
  }
  for (const outcome of await Promise.allSettled(works)) {
    if (outcome.status === 'rejected') throw outcome.reason;
  }
}

function copiedToPages(buffers: readonly Uint8Array[], byteCount: number): Uint8Array {
  const pages = pageMemory(byteCount);
  let at = 0;
  for (const buffer of buffers) {
    pages.set(buffer, at);
    at += buffer.length;
  }
  return pages;
}

function adjacentRuns(chunks: readonly Chunk[]): Chunk[] {
  const sorted = chunks.toSorted((a, b) => a.position - b.position);
  const runs: { position: number; buffers: Uint8Array[]; byteCount: number }[] = [];
  for (const chunk of sorted) {
    const last = runs.at(-1);
    if (
      last !== undefined &&
      last.position + last.byteCount === chunk.position &&
      last.byteCount + chunk.byteCount <= RUN_BYTES_MAX &&
      last.buffers.length + chunk.buffers.length <= RUN_BUFFERS_MAX
    ) {
      last.buffers.push(...chunk.buffers);
      last.byteCount += chunk.byteCount;
    } else {
      runs.push({ position: chunk.position, buffers: [...chunk.buffers], byteCount: chunk.byteCount });
    }
  }
  return runs;
}

interface Entry {
  readonly opening: Promise<Container | null>;
  container: Container | null;
  closing: Promise<void> | null;
}

interface OpenEntry extends Entry {
  container: Container;
}

/** The open containers; the least recently used is closed first, after a sync if it was written. */
export class Containers {
  readonly #folder: string;
  readonly #ops: FileOps;
  readonly #direct: DirectWrites;
  readonly #synchronousWrites: SynchronousWrites;
  readonly #entries = new Map<FileId, Entry>();
  /** Neither used nor being closed, the least recently used first: thousands may be in use or closing. */
  readonly #idle = new Map<FileId, Entry>();
  readonly #directories = new Map<string, SharedFlush>();
  readonly #closings = new Set<Promise<void>>();
  readonly #onFailure: (error: unknown) => void;

  constructor(
    nowMs: () => number,
    folder: string,
    ops: FileOps,
    direct: DirectWrites,
    onFailure: (error: unknown) => void,
  ) {
    this.#folder = folder;
    this.#ops = ops;
    this.#direct = direct;
    this.#synchronousWrites = new SynchronousWrites(ops, nowMs);
    this.#onFailure = onFailure;
  }

  /** Runs `work` while the container is open. @param make creates a missing one @returns null if there is none */
  async use<Result>(
    file: FileId,
    make: boolean,
    work: (container: Container) => Promise<Result>,
  ): Promise<Result | null> {
    const entry = await this.#acquire(file, make);
    if (entry === null) return null;
    const { container } = entry;
    try {
      return await work(container);
    } finally {
      container.references--;
      if (container.references === 0 && entry.closing === null) this.#idle.set(file, entry);
      this.#evict();
    }
  }

  /**
   * Writes a new container and closes it, unsynced: thousands of small new files would otherwise evict the other
   * containers, and cost a sync of file and directory each. The index records this, so a start after a loss of power
   * checks the contents. If the disk fails to write them, a sync of the file reports it; else it is damage that
   * checksums find and other replicas repair.
   */
  async writeOnce(file: FileId, chunks: readonly Chunk[]): Promise<void> {
    if (this.#synchronousWrites.tryWrite(this.#pathOf(file), adjacentRuns(chunks))) return;
    const container = await this.#open(file, true);
    assert(container !== null, 'The container was created');
    try {
      await container.write(chunks);
    } finally {
      await container.close();
    }
  }

  async flush(file: FileId): Promise<void> {
    await this.use(file, false, (container) => container.flush());
  }

  /** Removes the container, which is not in use, from the disk. Concurrent calls may remove it, too. */
  async unlink(file: FileId): Promise<void> {
    const entry = this.#entries.get(file);
    if (entry !== undefined) {
      const container = await entry.opening;
      if (container !== null) {
        assert(container.references === 0, 'A container in use is not removed');
        // A descriptor is closed once: its number may belong to another file by then.
        if (entry.closing === null && this.#entries.get(file) === entry) {
          this.#entries.delete(file);
          this.#idle.delete(file);
          await container.close();
        }
      }
    }
    try {
      await this.#ops.unlink(this.#pathOf(file));
    } catch (error) {
      if (errorCode(error) !== 'ENOENT') throw error;
    }
  }

  async close(): Promise<void> {
    for (const [file, entry] of [...this.#entries]) {
      const container = await entry.opening;
      if (container !== null && entry.closing === null) this.#startClosing(file, entry, container);
    }
    await Promise.all([...this.#closings]);
  }

  /** Opens the container, or shares the open one, and counts a reference. One that is being closed is reopened. */
  async #acquire(file: FileId, make: boolean): Promise<OpenEntry | null> {
    for (;;) {
      let entry = this.#entries.get(file);
      if (entry === undefined) {
        entry = { opening: this.#open(file, make), container: null, closing: null };
        this.#entries.set(file, entry);
      }
      let container: Container | null;
      try {
        container = entry.container ?? (await entry.opening);
      } catch (error) {
        if (this.#entries.get(file) === entry) this.#entries.delete(file);
        throw error;
      }
      if (this.#entries.get(file) !== entry) continue;
      if (container === null) {
        this.#entries.delete(file);
        if (make) continue;
        return null;
      }
      if (entry.closing !== null) {
        await entry.closing;
        continue;
      }
      container.references++;
      this.#idle.delete(file);
      return Object.assign(entry, { container });
    }
  }

  async #open(file: FileId, make: boolean): Promise<Container | null> {
    const containerPath = this.#pathOf(file);
    const flags = fs.constants.O_RDWR | (make ? fs.constants.O_CREAT : 0);
    let fd: number;
    try {
      fd = await this.#ops.open(containerPath, flags);
    } catch (error) {
      if (!make && errorCode(error) === 'ENOENT') return null;
      throw error;
    }
    const sizeBytes = fs.fstatSync(fd).size;
    const directory = this.#directoryOf(containerPath);
    return new Container(file, containerPath, this.#ops, fd, sizeBytes, this.#direct, directory);
  }

  #evict(): void {
    if (this.#entries.size <= CONTAINERS_OPEN_MAX) return;
    const [oldest] = this.#idle;
    if (oldest === undefined) return;
    const [file, entry] = oldest;
    if (entry.container !== null) this.#startClosing(file, entry, entry.container);
  }

  /** Syncs a written container first: only its descriptor is sure to report that its bytes failed to be written. */
  #startClosing(file: FileId, entry: Entry, container: Container): void {
    this.#idle.delete(file);
    const closing = (async () => {
      try {
        if (container.hasUnsyncedBytes) await container.flush();
      } catch (error) {
        this.#onFailure(error);
      }
      await container.close();
    })()
      // A failure to close loses nothing that a sync has not reported.
      .catch((error) => this.#onFailure(error))
      .finally(() => {
        this.#closings.delete(closing);
        if (this.#entries.get(file) === entry) this.#entries.delete(file);
      });
    entry.closing = closing;
    this.#closings.add(closing);
  }

  #pathOf(file: FileId): string {
    return path.join(this.#folder, containerName(file));
  }

  #directoryOf(containerPath: string): SharedFlush {
    const directory = path.dirname(containerPath);
    let flush = this.#directories.get(directory);
    if (flush === undefined) {
      flush = new SharedFlush(() => this.#ops.flushDirectory(directory));
      this.#directories.set(directory, flush);
    }
    return flush;
  }
}
