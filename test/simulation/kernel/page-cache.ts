import type { Inode } from './inode.ts';
import { KernelError } from './kernel-error.ts';
import { Mutex } from './kernel-locks.ts';

export const PAGE_BYTES = 4096;
/** `max_pages` of INIT, and `max_write`: 1 MiB. */
const REQUEST_PAGES_MAX = 256;

/** A page of a file; `struct folio` of one page. */
export class Page {
  readonly index: number;
  readonly bytes = Buffer.alloc(PAGE_BYTES);
  isUptodate = false;
  isDirty = false;
  /** It was removed from the cache. */
  isGone = false;
  /** PG_readahead: a read of it starts the read of the next pages. */
  startsNext = false;
  readonly lock = new Mutex();
  writeback: Promise<void> | null = null;

  constructor(index: number) {
    this.index = index;
  }
}

/** The read-ahead state of an open file; `struct file_ra_state`. */
export class ReadAheadState {
  start = 0;
  count = 0;
  asyncCount = 0;
  previous = -1;
}

/** The source and target of a file's pages. */
export interface PageSource {
  /** FUSE_READ; @returns fewer bytes than requested at the end of the file */
  read(offset: number, length: number, background: boolean): Promise<Buffer>;
}

export interface PageStore {
  /** FUSE_WRITE of pages that were written through a mapping. */
  write(offset: number, bytes: Buffer): Promise<void>;
}

/** The part of one page in a range of bytes; `done` bytes of the range are before it. */
interface Piece {
  readonly index: number;
  readonly within: number;
  readonly count: number;
  readonly done: number;
}

export function* pieces(offset: number, length: number): Generator<Piece> {
  for (let done = 0; done < length; ) {
    const index = Math.floor((offset + done) / PAGE_BYTES);
    const within = offset + done - index * PAGE_BYTES;
    const count = Math.min(PAGE_BYTES - within, length - done);
    yield { index, within, count, done };
    done += count;
  }
}

/** The pages of one file, as in mm/filemap.c, mm/readahead.c and mm/truncate.c. */
export class PageCache {
  readonly #inode: Inode;
  readonly #pages = new Map<number, Page>();
  readonly #readAheadPages: number;

  constructor(inode: Inode, readAheadBytes: number) {
    this.#inode = inode;
    this.#readAheadPages = Math.floor(readAheadBytes / PAGE_BYTES);
  }

  get size(): number {
    return this.#pages.size;
  }

  /**
   * filemap_read; @returns fewer bytes than requested at the end of the file, or before a page that cannot be read
   */
  async read(source: PageSource, ahead: ReadAheadState, offset: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    const end = offset + length;
    const last = Math.ceil(end / PAGE_BYTES) - 1;
    for (let at = offset; at < end && at < this.#inode.sizeBytes; ) {
      const index = Math.floor(at / PAGE_BYTES);
      let page: Page;
      try {
        page = await this.#pageToRead(source, ahead, index, last - index + 1);
      } catch (error) {
        if (parts.length > 0) break;
        throw error;
      }
      const begin = index * PAGE_BYTES;
      const until = Math.min(end, this.#inode.sizeBytes, begin + PAGE_BYTES);
      if (until <= at) break;
      parts.push(Buffer.from(page.bytes.subarray(at - begin, until - begin)));
      ahead.previous = index;
      at = until;
    }
    return Buffer.concat(parts);
  }

  async #pageToRead(source: PageSource, ahead: ReadAheadState, index: number, count: number): Promise<Page> {
    for (;;) {
      if (!this.#pages.has(index)) this.#readAhead(source, ahead, index, count);
      const page = this.#pages.get(index) ?? this.#add(index);
      if (page.startsNext) this.#readFurther(source, ahead, page);
      if (await this.#makeUptodate(source, page)) return page;
    }
  }

  /** @returns false if the page was removed meanwhile */
  async #makeUptodate(source: PageSource, page: Page): Promise<boolean> {
    if (page.isUptodate) return true;
    await page.lock.lock();
    try {
      if (page.isGone) return false;
      if (page.isUptodate) return true;
      const bytes = await source.read(page.index * PAGE_BYTES, PAGE_BYTES, false);
      fill(page, bytes, 0);
      return true;
    } finally {
      page.lock.unlock();
    }
  }

  /** page_cache_sync_ra */
  #readAhead(source: PageSource, ahead: ReadAheadState, index: number, count: number): void {
    const max = Math.max(this.#readAheadPages, 1);
    const distance = index - ahead.previous;
    ahead.start = index;
    if (index === 0 || count > max || distance === 0 || distance === 1) {
      ahead.count = firstWindow(count, max);
      ahead.asyncCount = ahead.count > count ? ahead.count - count : Math.floor(ahead.count / 2);
    } else {
      ahead.count = Math.min(count, max);
      ahead.asyncCount = 0;
    }
    this.#readWindow(source, ahead);
  }

  /** page_cache_async_ra */
  #readFurther(source: PageSource, ahead: ReadAheadState, page: Page): void {
    page.startsNext = false;
    ahead.start = Math.max(ahead.start + ahead.count, page.index + 1);
    ahead.count = nextWindow(ahead.count, this.#readAheadPages);
    ahead.asyncCount = ahead.count;
    this.#readWindow(source, ahead);
  }

  /** page_cache_ra_unbounded: reads absent pages within the file in the background. */
  #readWindow(source: PageSource, { start, count, asyncCount }: ReadAheadState): void {
    const last = Math.ceil(this.#inode.sizeBytes / PAGE_BYTES) - 1;
    let batch: Page[] = [];
    const send = (): void => {
      if (batch.length > 0) void this.#readBatch(source, batch);
      batch = [];
    };
    for (let index = start; index < start + count && index <= last; index++) {
      if (this.#pages.has(index)) {
        send();
        continue;
      }
      const page = this.#add(index);
      page.lock.tryLock();
      page.startsNext = asyncCount > 0 && index === start + count - asyncCount;
      batch.push(page);
      if (batch.length === REQUEST_PAGES_MAX) send();
    }
    send();
  }

  /** If it fails the pages stay absent, and each reader reads again. */
  async #readBatch(source: PageSource, pages: readonly Page[]): Promise<void> {
    const [first] = pages;
    if (first === undefined) return;
    try {
      const bytes = await source.read(first.index * PAGE_BYTES, pages.length * PAGE_BYTES, true);
      for (const [place, page] of pages.entries()) fill(page, bytes, place * PAGE_BYTES);
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
    } finally {
      for (const page of pages) page.lock.unlock();
    }
  }

  /** filemap_fault; @throws KernelError SIGBUS beyond the end, or if the page cannot be read */
  async fault(source: PageSource, index: number): Promise<Page> {
    for (;;) {
      if (index >= Math.ceil(this.#inode.sizeBytes / PAGE_BYTES)) throw new KernelError('SIGBUS');
      if (!this.#pages.has(index)) {
        const around = new ReadAheadState();
        around.start = Math.max(0, index - Math.floor(this.#readAheadPages / 2));
        around.count = Math.max(1, this.#readAheadPages);
        this.#readWindow(source, around);
      }
      const page = this.#pages.get(index) ?? this.#add(index);
      try {
        if (await this.#makeUptodate(source, page)) return page;
      } catch (error) {
        if (error instanceof KernelError) throw new KernelError('SIGBUS', error.message);
        throw error;
      }
    }
  }

  /** fuse_page_mkwrite: the page is about to be changed through a mapping. */
  async makeWritable(source: PageSource, index: number): Promise<Page> {
    for (;;) {
      const page = await this.fault(source, index);
      await page.lock.lock();
      try {
        if (page.isGone) continue;
        await page.writeback;
        page.isDirty = true;
        return page;
      } finally {
        page.lock.unlock();
      }
    }
  }

  /**
   * fuse_fill_write_pages: copies bytes into pages, up to and including the first one that is neither read nor written
   * completely. That page stays locked until the write is answered.
   */
  async prepareWrite(offset: number, bytes: Uint8Array): Promise<WrittenPages> {
    const pages: Page[] = [];
    let byteCount = 0;
    let locked: Page | null = null;
    for (const { index, within, count, done } of pieces(offset, bytes.length)) {
      if (pages.length >= REQUEST_PAGES_MAX || locked !== null) break;
      const page = await this.#lockedPage(index);
      await page.writeback;
      page.bytes.set(bytes.subarray(done, done + count), within);
      byteCount += count;
      pages.push(page);
      if (count === PAGE_BYTES) page.isUptodate = true;
      if (page.isUptodate) page.lock.unlock();
      else locked = page;
    }
    return { byteCount, pages, locked };
  }

  /** The end of fuse_send_write_pages. @param writtenBytes null: the write failed */
  finishWrite(offset: number, { pages, locked, byteCount }: WrittenPages, writtenBytes: number | null): void {
    let left = writtenBytes ?? 0;
    let within = offset % PAGE_BYTES;
    for (const page of pages) {
      if (writtenBytes === null) page.isUptodate = false;
      else if (left >= PAGE_BYTES - within) left -= PAGE_BYTES - within;
      else {
        if (writtenBytes < byteCount) page.isUptodate = false;
        left = 0;
      }
      within = 0;
    }
    locked?.lock.unlock();
  }

  /** fuse_notify_store, without the size. */
  async store(offset: number, bytes: Uint8Array, endsFile: boolean): Promise<void> {
    for (const { index, within, count, done } of pieces(offset, bytes.length)) {
      const page = await this.#lockedPage(index);
      page.bytes.set(bytes.subarray(done, done + count), within);
      const isLast = endsFile && done + count === bytes.length;
      if (!page.isUptodate && within === 0 && (count === PAGE_BYTES || isLast)) {
        page.bytes.fill(0, count);
        page.isUptodate = true;
      }
      page.lock.unlock();
    }
  }

  /** invalidate_inode_pages2_range: waits for pages in use, writes dirty ones, and drops all. */
  async drop(store: PageStore, first = 0, last = Number.POSITIVE_INFINITY): Promise<void> {
    for (const page of this.#range(first, last)) {
      await page.lock.lock();
      try {
        if (page.isGone) continue;
        await page.writeback;
        if (page.isDirty) {
          const batch = new WriteBatch();
          batch.add(page);
          await this.#write(store, batch);
        }
        this.#remove(page);
      } finally {
        page.lock.unlock();
      }
    }
  }

  /** truncate_pagecache: pages beyond the size are lost, even dirty ones. */
  async truncate(sizeBytes: number): Promise<void> {
    await this.punch(sizeBytes, Number.POSITIVE_INFINITY);
  }

  /** truncate_pagecache_range, from `from` to before `to`. */
  async punch(from: number, to: number): Promise<void> {
    for (const page of this.#range(Math.floor(from / PAGE_BYTES), Math.ceil(to / PAGE_BYTES) - 1)) {
      await page.lock.lock();
      const begin = page.index * PAGE_BYTES;
      await page.writeback;
      if (!page.isGone) {
        if (begin >= from && begin + PAGE_BYTES <= to) this.#remove(page);
        else page.bytes.fill(0, Math.max(0, from - begin), Math.min(PAGE_BYTES, to - begin));
      }
      page.lock.unlock();
    }
  }

  /** filemap_write_and_wait_range: writes dirty pages, in requests of adjacent ones. */
  async writeBack(store: PageStore): Promise<void> {
    let batch = new WriteBatch();
    const send = (): void => {
      if (batch.pages.length > 0) void this.#write(store, batch);
      batch = new WriteBatch();
    };
    const pages = this.#range(0, Number.POSITIVE_INFINITY);
    for (const page of pages) {
      if (!page.isDirty) continue;
      if (batch.isFull || !batch.isBefore(page)) send();
      await page.lock.lock();
      // No wait for pages of this batch: a page is in one batch only.
      await page.writeback;
      if (!page.isGone && page.isDirty) batch.add(page);
      page.lock.unlock();
    }
    send();
    for (const page of pages) await page.writeback;
  }

  /** Errors are kept in the inode. */
  async #write(store: PageStore, { pages, written }: WriteBatch): Promise<void> {
    const offset = (pages[0]?.index ?? 0) * PAGE_BYTES;
    // Bytes written through a mapping beyond the end are not part of the file.
    const length = Math.min(pages.length * PAGE_BYTES, this.#inode.sizeBytes - offset);
    const bytes = Buffer.concat(pages.map((page) => page.bytes));
    try {
      if (length > 0) await store.write(offset, bytes.subarray(0, length));
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      this.#inode.writeFailed(error.errno);
    } finally {
      for (const page of pages) page.writeback = null;
      written.resolve();
    }
  }

  #range(first: number, last: number): Page[] {
    return [...this.#pages.values()]
      .filter(({ index }) => index >= first && index <= last)
      .sort((a, b) => a.index - b.index);
  }

  async #lockedPage(index: number): Promise<Page> {
    for (;;) {
      const page = this.#pages.get(index) ?? this.#add(index);
      await page.lock.lock();
      if (!page.isGone) return page;
      page.lock.unlock();
    }
  }

  #add(index: number): Page {
    const page = new Page(index);
    this.#pages.set(index, page);
    return page;
  }

  #remove(page: Page): void {
    page.isGone = true;
    page.isDirty = false;
    this.#pages.delete(page.index);
  }
}

export interface WrittenPages {
  readonly byteCount: number;
  readonly pages: readonly Page[];
  readonly locked: Page | null;
}

/** Adjacent pages on their way to the file system. */
class WriteBatch {
  readonly pages: Page[] = [];
  readonly written = Promise.withResolvers<void>();

  get isFull(): boolean {
    return this.pages.length === REQUEST_PAGES_MAX;
  }

  isBefore(page: Page): boolean {
    const last = this.pages.at(-1);
    return last === undefined || last.index + 1 === page.index;
  }

  add(page: Page): void {
    page.isDirty = false;
    page.writeback = this.written.promise;
    this.pages.push(page);
  }
}

function fill(page: Page, bytes: Buffer, at: number): void {
  page.bytes.fill(0);
  page.bytes.set(bytes.subarray(at, at + PAGE_BYTES));
  page.isUptodate = true;
}

/** get_init_ra_size */
function firstWindow(count: number, max: number): number {
  const size = 2 ** Math.ceil(Math.log2(Math.max(1, count)));
  if (size <= max / 32) return size * 4;
  return size <= max / 4 ? size * 2 : max;
}

/** get_next_ra_size */
function nextWindow(count: number, max: number): number {
  if (count < max / 16) return 4 * count;
  return count <= max / 2 ? 2 * count : max;
}
