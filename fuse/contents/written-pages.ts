import { totalmem } from 'node:os';
import { RecentMap } from '../../base/recent-map.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { ContentVersion } from '../backend.ts';

/** The kernel asks for whole pages of this size. */
const PAGE_BYTES = 4096;
/** Memory is taken in pieces of so many pages, and kept. */
const SLAB_PAGES = 64;
/** Of a longer file only small writes behind this are kept, for databases read them again; what passes in large pieces is copied for nothing. */
const WHOLE_BYTES_MAX = 1024 * 1024;
const SMALL_WRITE_BYTES_MAX = 16 * 1024;

const ZEROS = new Uint8Array(16 * PAGE_BYTES);

/** Of the memory that there is for the process, within these bounds. */
const MEMORY_SHARE = 1 / 64;
export const WRITTEN_BYTES_LEAST = 8 * 1024 * 1024;
const BYTES_MOST = 128 * 1024 * 1024;

/** @returns for how many bytes there is room in pages */
export function writtenBytesMax(): number {
  const constrained = process.constrainedMemory();
  const bytes = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return Math.min(BYTES_MOST, Math.max(WRITTEN_BYTES_LEAST, Math.floor(bytes * MEMORY_SHARE)));
}

/** The first `endBytes` of a page, and where they are. */
interface Page {
  readonly memory: Uint8Array;
  endBytes: number;
}

/** Memory for the pages of all files: the ones that were used longest ago give way. */
export class WrittenPages {
  readonly #pagesMax: number;
  readonly #free: Uint8Array[] = [];
  #pageCount = 0;
  /** Those with pages, by their last use. */
  readonly #files = new RecentMap<number, PagesOfFile>();

  constructor(bytesMax: number) {
    this.#pagesMax = Math.floor(bytesMax / PAGE_BYTES);
  }

  /** @returns the pages of a file that is opened while it has these contents */
  of(inode: number, contents: ContentVersion): PagesOfFile {
    const kept = this.#files.get(inode);
    if (kept?.isOf(contents) === true) return kept;
    kept?.clear();
    return new PagesOfFile(inode, this);
  }

  /** @returns memory of one page; null where there is none at all */
  take(): Uint8Array | null {
    if (this.#free.length === 0 && this.#pageCount < this.#pagesMax) this.#grow();
    while (this.#free.length === 0) {
      const { oldest } = this.#files;
      if (oldest === undefined) return null;
      oldest[1].dropOldest();
    }
    return this.#free.pop() ?? null;
  }

  giveBack(memory: Uint8Array): void {
    this.#free.push(memory);
  }

  /** The file has pages, and was used. */
  used(file: PagesOfFile): void {
    this.#files.set(file.inode, file);
  }

  emptied(file: PagesOfFile): void {
    if (this.#files.get(file.inode) === file) this.#files.delete(file.inode);
  }

  #grow(): void {
    const count = Math.min(SLAB_PAGES, this.#pagesMax - this.#pageCount);
    const slab = Buffer.allocUnsafeSlow(count * PAGE_BYTES);
    for (let page = 0; page < count; page++) {
      this.#free.push(slab.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES));
    }
    this.#pageCount += count;
  }
}

/**
 * What programs here have written to one file, as far as it is in whole pages from their beginning on. It knows nothing of what others write: whoever
 * reads it has to know that nobody has.
 */
export class PagesOfFile {
  readonly inode: number;
  readonly #all: WrittenPages;
  /** By their number in the file, those written first at the beginning. */
  readonly #pages = new Map<number, Page>();
  /** Of a file that is closed, the contents of which they are; null where that is not certain, or while it is open. */
  #closedWith: ContentVersion | null = null;

  constructor(inode: number, all: WrittenPages) {
    this.inode = inode;
    this.#all = all;
  }

  isOf(contents: ContentVersion): boolean {
    return this.#closedWith !== null && contentVersionCompare(this.#closedWith, contents) === 0;
  }

  opened(): void {
    this.#closedWith = null;
  }

  /** @param contents of which the pages are; null where that is not certain */
  closed(contents: ContentVersion | null): void {
    this.#closedWith = contents;
    if (contents === null) this.clear();
  }

  /** Takes a copy of what is about to be written. */
  put(offset: number, bytes: Uint8Array): void {
    const isKept = offset + bytes.length <= WHOLE_BYTES_MAX || bytes.length <= SMALL_WRITE_BYTES_MAX;
    if (!isKept && this.#pages.size === 0) return;
    for (let done = 0; done < bytes.length; ) {
      const index = Math.floor((offset + done) / PAGE_BYTES);
      const from = (offset + done) % PAGE_BYTES;
      const part = bytes.subarray(done, done + PAGE_BYTES - from);
      if (isKept) this.#put(index, from, part);
      else this.#drop(index);
      done += part.length;
    }
    if (this.#pages.size > 0) this.#all.used(this);
  }

  /** As `put`, of zeros: what is behind the end of a file that is made longer. */
  putZeros(from: number, to: number): void {
    const end = Math.min(to, WHOLE_BYTES_MAX);
    for (let at = from; at < end; at += ZEROS.length) this.put(at, ZEROS.subarray(0, end - at));
  }

  /** Pages in which there is something from `from` to before `to` are known no more. */
  drop(from: number, to = Number.POSITIVE_INFINITY): void {
    for (const index of [...this.#pages.keys()]) {
      if ((index + 1) * PAGE_BYTES > from && index * PAGE_BYTES < to) this.#drop(index);
    }
  }

  dropOldest(): void {
    for (const index of this.#pages.keys()) {
      this.#drop(index);
      return;
    }
  }

  clear(): void {
    this.drop(0);
  }

  /**
   * @param sizeBytes of the file, beyond which there is nothing to be read
   * @returns the bytes there are, fewer than `length` only at the end of the file; null where not all of them are known
   */
  read(offset: number, length: number, sizeBytes: number): Uint8Array | null {
    const end = Math.min(offset + length, sizeBytes);
    if (offset >= end || !this.#has(offset, end)) return null;
    const bytes = Buffer.allocUnsafe(end - offset);
    for (let at = offset; at < end; ) {
      const from = at % PAGE_BYTES;
      const page = this.#pages.get(Math.floor(at / PAGE_BYTES));
      const part = page?.memory.subarray(from, Math.min(PAGE_BYTES, from + end - at));
      if (part === undefined) return null;
      bytes.set(part, at - offset);
      at += part.length;
    }
    this.#all.used(this);
    return bytes;
  }

  #has(offset: number, end: number): boolean {
    for (let index = Math.floor(offset / PAGE_BYTES); index * PAGE_BYTES < end; index++) {
      const page = this.#pages.get(index);
      if (page === undefined || page.endBytes < Math.min(PAGE_BYTES, end - index * PAGE_BYTES)) return false;
    }
    return true;
  }

  #put(index: number, from: number, part: Uint8Array): void {
    const known = this.#pages.get(index);
    if (from > (known?.endBytes ?? 0)) {
      // What is before it is not known.
      this.#drop(index);
      return;
    }
    const page = known ?? this.#add(index);
    if (page === null) return;
    page.memory.set(part, from);
    page.endBytes = Math.max(page.endBytes, from + part.length);
  }

  #add(index: number): Page | null {
    const memory = this.#all.take();
    if (memory === null) return null;
    const page = { memory, endBytes: 0 };
    this.#pages.set(index, page);
    return page;
  }

  #drop(index: number): void {
    const page = this.#pages.get(index);
    if (page === undefined) return;
    this.#pages.delete(index);
    this.#all.giveBack(page.memory);
    if (this.#pages.size === 0) this.#all.emptied(this);
  }
}
