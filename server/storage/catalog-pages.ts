/** Comparing the pages of two copies of the catalog's database, so that only those that differ are transferred. */
import { hash } from 'node:crypto';
import { assert } from '../../base/assert.ts';
import { MalformedError } from '../../wire/bytes.ts';

/** SQLite's page size here. Databases of another size are compared just as well, in more pieces than needed. */
export const PAGE_BYTES = 4096;
/** Pages that are compared by one hash first. */
export const RANGE_PAGES = 64;
export const RANGE_BYTES = RANGE_PAGES * PAGE_BYTES;
/** A hash too short would take pages for equal that differ. */
export const HASH_BYTES = 16;

/** Ranges that one request compares, and pages that one request fetches. */
export const COMPARED_RANGES_MAX = 64;
export const FETCHED_PAGES_MAX = 256;

/** @returns the first half of a SHA-256 */
export function hashOf(bytes: Uint8Array): Buffer {
  return hash('sha256', bytes, 'buffer').subarray(0, HASH_BYTES);
}

/** @returns the hashes of the pages in a range, joined; the last page may be short */
export function pageHashes(range: Uint8Array): Buffer {
  assert(range.length <= RANGE_BYTES, 'A range is bounded');
  const hashes = Buffer.alloc(Math.ceil(range.length / PAGE_BYTES) * HASH_BYTES);
  for (let page = 0; page * PAGE_BYTES < range.length; page++)
    hashOf(range.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)).copy(hashes, page * HASH_BYTES);
  return hashes;
}

/** @returns the hash of a range, from those of its pages */
export function rangeHash(hashes: Uint8Array): Buffer {
  return hashOf(hashes);
}

export function hashAt(hashes: Uint8Array, index: number): Uint8Array {
  return hashes.subarray(index * HASH_BYTES, (index + 1) * HASH_BYTES);
}

/** @returns the number of bytes read at `position`; 0 only at the end */
export type PageRead = (buffer: Uint8Array, position: number) => Promise<number>;

/** Reads until the buffer is full or the file ends. */
export async function readFully(read: PageRead, buffer: Uint8Array, position: number): Promise<Uint8Array> {
  let filled = 0;
  while (filled < buffer.length) {
    const count = await read(buffer.subarray(filled), position + filled);
    if (count === 0) break;
    filled += count;
  }
  return buffer.subarray(0, filled);
}

/** What a transfer has cost and saved. */
export interface TransferCounts {
  /** Size of the source's copy. */
  readonly bytes: number;
  pagesCompared: number;
  pagesFetched: number;
  bytesFetched: number;
}

/** Another replica's copy of its database. */
export interface PageSource {
  readonly bytes: number;
  /**
   * Compares consecutive ranges by their hashes.
   * @returns for each range null if it is equal, else the hashes of the source's pages
   */
  compare(firstRange: number, hashes: Uint8Array): Promise<readonly (Uint8Array | null)[]>;
  /** @returns the pages, joined */
  pages(numbers: readonly number[]): Promise<Uint8Array>;
}

/** The copy that is being put together from the own pages and the source's. */
export interface PageTarget {
  /** Reads what is here already, which need be neither whole nor intact: its hash decides. */
  readonly read: PageRead;
  write(bytes: Uint8Array, position: number): Promise<void>;
  /** The target reads from itself: what is equal is there already. */
  readonly isInPlace: boolean;
}

interface WantedPage {
  readonly number: number;
  readonly hash: Uint8Array;
}

/**
 * Makes the target equal to the source's copy. Of the bytes that are read here exactly those whose hash is the source's
 * are kept: so a page that is torn, damaged or older is fetched.
 * @throws DamagedPage if a fetched page has not the hash that the source gave for it
 */
export async function fetchPages(source: PageSource, target: PageTarget): Promise<TransferCounts> {
  const counts = { bytes: source.bytes, pagesCompared: 0, pagesFetched: 0, bytesFetched: 0 };
  const rangeCount = Math.ceil(source.bytes / RANGE_BYTES);
  const buffer = Buffer.alloc(RANGE_BYTES);
  for (let first = 0; first < rangeCount; first += COMPARED_RANGES_MAX) {
    const own: Buffer[] = [];
    for (let range = first; range < Math.min(first + COMPARED_RANGES_MAX, rangeCount); range++) {
      const position = range * RANGE_BYTES;
      const wanted = buffer.subarray(0, Math.min(RANGE_BYTES, source.bytes - position));
      const bytes = await readFully(target.read, wanted, position);
      own.push(pageHashes(bytes));
      if (!target.isInPlace && bytes.length > 0) await target.write(bytes, position);
    }
    const answer = await source.compare(first, Buffer.concat(own.map(rangeHash)));
    const wanted = differing(source.bytes, first, own, answer);
    counts.pagesCompared += own.length * RANGE_PAGES;
    for (let at = 0; at < wanted.length; at += FETCHED_PAGES_MAX) {
      const group = wanted.slice(at, at + FETCHED_PAGES_MAX);
      counts.pagesFetched += group.length;
      counts.bytesFetched += await fetchGroup(source, target, group);
    }
  }
  return counts;
}

function differing(
  bytes: number,
  firstRange: number,
  own: readonly Uint8Array[],
  theirs: readonly (Uint8Array | null)[],
): readonly WantedPage[] {
  const { length } = own;
  if (theirs.length !== length) throw new MalformedError(`Of ${length} ranges ${theirs.length} are compared`);
  return theirs.flatMap((hashes, index) => {
    if (hashes === null) return [];
    const mine = own[index] as Uint8Array;
    const first = (firstRange + index) * RANGE_PAGES;
    const count = Math.min(RANGE_PAGES, Math.ceil(bytes / PAGE_BYTES) - first);
    // A page without a hash would stay as it is here.
    if (hashes.length !== count * HASH_BYTES) throw new MalformedError('A range has a hash of each page');
    return Array.from({ length: count }, (_, page) => page)
      .filter((page) => Buffer.compare(hashAt(hashes, page), hashAt(mine, page)) !== 0)
      .map((page) => ({ number: first + page, hash: hashAt(hashes, page) }));
  });
}

/** @returns the bytes that were transferred */
async function fetchGroup(
  source: PageSource,
  target: PageTarget,
  group: readonly WantedPage[],
): Promise<number> {
  const bytes = await source.pages(group.map(({ number }) => number));
  let at = 0;
  for (const { number, hash } of group) {
    const position = number * PAGE_BYTES;
    const page = bytes.subarray(at, at + Math.min(PAGE_BYTES, source.bytes - position));
    at += page.length;
    if (Buffer.compare(hashOf(page), hash) !== 0)
      throw new DamagedPage(`Page ${number} is not what it was hashed as`);
    await target.write(page, position);
  }
  return bytes.length;
}

/** A page changed between its hash and its transfer, on the way or on the source's disk. */
export class DamagedPage extends Error {
  override readonly name = 'DamagedPage';
}
