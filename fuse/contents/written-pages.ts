import { totalmem } from 'node:os';
import { RecentMap } from '../../base/recent-map.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { ContentVersion } from '../backend.ts';

const PAGE_BYTES = 4096;
const SLAB_PAGES = 64;
/** Beyond this offset only small writes are kept, as databases read them again. */
const WHOLE_BYTES_MAX = 1024 * 1024;
const SMALL_WRITE_BYTES_MAX = 16 * 1024;

const ZEROS = new Uint8Array(16 * PAGE_BYTES);

/** Of this process's memory, within these bounds. */
const MEMORY_SHARE = 1 / 64;
export const WRITTEN_BYTES_LEAST = 8 * 1024 * 1024;
const BYTES_MOST = 128 * 1024 * 1024;

export function writtenBytesMax(): number {
  const constrained = process.constrainedMemory();
  const bytes = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return Math.min(BYTES_MOST, Math.max(WRITTEN_BYTES_LEAST, Math.floor(bytes * MEMORY_SHARE)));
}

interface Page {
  readonly memory: Uint8Array;
  endBytes: number;
}

/** Memory for pages of all files; the least recently used are dropped. */
export class WrittenPages {
  readonly #pagesMax: number;
  readonly #free: Uint8Array[] = [];
  #pageCount = 0;
  readonly #files = new RecentMap<number, PagesOfFile>();

  constructor(bytesMax: number) {
    this.#pagesMax = Math.floor(bytesMax / PAGE_BYTES);
  }

  /** The kept pages of a file with these contents; empty if there are none. */
  of(inode: number, contents: ContentVersion): PagesOfFile {
    const kept = this.#files.get(inode);
    if (kept?.isOf(contents) === true) return kept;
    kept?.clear();
    return new PagesOfFile(inode, this);
  }

  /** Memory for one page, if necessary from the least recently used file; null if there is none. */
  allocatePage(): Uint8Array | null {
    if (this.#free.length === 0 && this.#pageCount < this.#pagesMax) this.#grow();
    while (this.#free.length === 0) {
      const { oldest } = this.#files;
      if (oldest === undefined) return null;
      oldest[1].dropOldest();
    }
    return this.#free.pop() ?? null;
  }

  freePage(memory: Uint8Array): void {
    this.#free.push(memory);
  }

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

/** What programs here wrote to one file, in pages known from their start; callers exclude other clients' changes. */
export class PagesOfFile {
  readonly inode: number;
  readonly #all: WrittenPages;
  readonly #pages = new Map<number, Page>();
  /** The contents of a closed file that the pages belong to; null if uncertain, or while it is open. */
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

  /** @param contents that the pages belong to; null if uncertain */
  closed(contents: ContentVersion | null): void {
    this.#closedWith = contents;
    if (contents === null) this.clear();
  }

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

  putZeros(from: number, to: number): void {
    const end = Math.min(to, WHOLE_BYTES_MAX);
    for (let at = from; at < end; at += ZEROS.length) this.put(at, ZEROS.subarray(0, end - at));
  }

  /** Drops pages that overlap `from` to before `to`. */
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

  /** @returns fewer bytes than `length` only at the end of the file; null if some are unknown */
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
      // A gap before it is unknown.
      this.#drop(index);
      return;
    }
    const page = known ?? this.#add(index);
    if (page === null) return;
    page.memory.set(part, from);
    page.endBytes = Math.max(page.endBytes, from + part.length);
  }

  #add(index: number): Page | null {
    const memory = this.#all.allocatePage();
    if (memory === null) return null;
    const page = { memory, endBytes: 0 };
    this.#pages.set(index, page);
    return page;
  }

  #drop(index: number): void {
    const page = this.#pages.get(index);
    if (page === undefined) return;
    this.#pages.delete(index);
    this.#all.freePage(page.memory);
    if (this.#pages.size === 0) this.#all.emptied(this);
  }
}
