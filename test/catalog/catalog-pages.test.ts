import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  fetchPages,
  HASH_BYTES,
  hashAt,
  PAGE_BYTES,
  type PageSource,
  type PageTarget,
  pageHashes,
  RANGE_BYTES,
  RANGE_PAGES,
  rangeHash,
  type TransferCounts,
} from '../../server/storage/catalog-pages.ts';

const PAGES = 5 * RANGE_PAGES + 7;

/** A file whose pages all differ. */
function fileOf(pages: number, seed = 1): Buffer {
  const file = Buffer.alloc(pages * PAGE_BYTES);
  for (let page = 0; page < pages; page++)
    file.fill(`${seed}/${page};`, page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
  return file;
}

/** A page whose first bytes alone differ, or the last one. */
function changed(file: Buffer, ...pages: readonly number[]): Buffer {
  const copy = Buffer.from(file);
  for (const [index, page] of pages.entries()) {
    const at = page * PAGE_BYTES + (index % 2 === 0 ? 0 : PAGE_BYTES - 1);
    copy[at] = (copy[at] as number) ^ 1;
  }
  return copy;
}

function sourceOf(file: Buffer): PageSource {
  return {
    bytes: file.length,
    compare: async (first, hashes) =>
      Array.from({ length: hashes.length / HASH_BYTES }, (_, index) => {
        const position = (first + index) * RANGE_BYTES;
        const own = pageHashes(file.subarray(position, position + RANGE_BYTES));
        return rangeHash(own).equals(hashAt(hashes, index)) ? null : own;
      }),
    pages: async (numbers) =>
      Buffer.concat(numbers.map((page) => file.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES))),
  };
}

/** A copy that is put together beside `own`, or in its place. */
class Copy implements PageTarget {
  readonly isInPlace: boolean;
  readonly #own: Buffer;
  bytes: Buffer;

  constructor(own: Buffer, isInPlace = false) {
    this.#own = own;
    this.isInPlace = isInPlace;
    this.bytes = isInPlace ? own : Buffer.alloc(0);
  }

  readonly read = async (buffer: Uint8Array, position: number): Promise<number> => {
    const from = this.isInPlace ? this.bytes : this.#own;
    // As a file system may: fewer bytes than requested.
    const count = Math.max(0, Math.min(buffer.length, 100_000, from.length - position));
    buffer.set(from.subarray(position, position + count));
    return count;
  };

  async write(bytes: Uint8Array, position: number): Promise<void> {
    const end = position + bytes.length;
    if (end > this.bytes.length)
      this.bytes = Buffer.concat([this.bytes, Buffer.alloc(end - this.bytes.length)]);
    this.bytes.set(bytes, position);
  }
}

async function take(
  theirs: Buffer,
  own: Buffer,
  isInPlace = false,
): Promise<{ bytes: Buffer; counts: TransferCounts }> {
  const copy = new Copy(own, isInPlace);
  const counts = await fetchPages(sourceOf(theirs), copy);
  return { bytes: copy.bytes.subarray(0, theirs.length), counts };
}

test('only pages that differ are fetched, and the copy is the source', async () => {
  const own = fileOf(PAGES);
  const [same, few] = [Buffer.from(own), changed(own, 0, 63, 64, 200, PAGES - 1)];
  for (const isInPlace of [false, true]) {
    const equal = await take(same, Buffer.from(own), isInPlace);
    assert.deepEqual([equal.counts.pagesFetched, equal.bytes.equals(same)], [0, true]);
    const { bytes, counts } = await take(few, Buffer.from(own), isInPlace);
    assert.deepEqual([counts.pagesFetched, counts.bytesFetched], [5, 5 * PAGE_BYTES]);
    assert.ok(bytes.equals(few));
  }
});

test('a source that has grown, shrunk or shares nothing', async () => {
  for (const [theirs, own, fetched] of [
    [fileOf(PAGES), fileOf(PAGES - 70), 70],
    [fileOf(PAGES - 70), fileOf(PAGES), 0],
    [fileOf(PAGES, 2), fileOf(PAGES), PAGES],
    [fileOf(PAGES), Buffer.alloc(0), PAGES],
    [fileOf(3), Buffer.from(fileOf(3).subarray(0, 2 * PAGE_BYTES + 100)), 1],
  ] as const) {
    const { bytes, counts } = await take(theirs, own);
    assert.ok(bytes.equals(theirs));
    assert.equal(counts.pagesFetched, fetched);
  }
});

test('a page counts as equal only if it is, and as it was read', async () => {
  const theirs = fileOf(PAGES);
  // Each page differs in one bit only, at some place.
  const own = changed(theirs, ...Array.from({ length: PAGES }, (_, page) => page));
  assert.ok((await take(theirs, own)).bytes.equals(theirs));
  // The file changes after each read, as by a checkpoint.
  const copy = new Copy(Buffer.from(theirs));
  const torn: PageTarget = {
    isInPlace: false,
    write: (bytes, position) => copy.write(bytes, position),
    read: async (buffer, position) => {
      const count = await copy.read(buffer, position);
      if (position % 5 === 0) buffer[0] = (buffer[0] as number) ^ 255;
      return count;
    },
  };
  await fetchPages(sourceOf(theirs), torn);
  assert.ok(copy.bytes.equals(theirs));
});

test('an interrupted transfer continues in place', async () => {
  const [own, theirs] = [fileOf(PAGES), fileOf(PAGES, 2)];
  const source = sourceOf(theirs);
  let requests = 0;
  const dying: PageSource = {
    ...source,
    pages: (numbers) =>
      ++requests > 1 ? Promise.reject(new Error('The source died')) : source.pages(numbers),
  };
  const copy = new Copy(own);
  await assert.rejects(fetchPages(dying, copy), /died/);
  const { bytes, counts } = await take(theirs, copy.bytes, true);
  assert.ok(bytes.equals(theirs));
  assert.ok(counts.pagesFetched < PAGES - 200, `${counts.pagesFetched} of ${PAGES}`);
});

test('a page that is not what its hash was taken of, and answers that lack hashes, are refused', async () => {
  const [own, theirs] = [fileOf(PAGES), fileOf(PAGES, 2)];
  const source = sourceOf(theirs);
  const other = { ...source, pages: sourceOf(fileOf(PAGES, 3)).pages };
  await assert.rejects(fetchPages(other, new Copy(own)), { name: 'DamagedPage' });
  const short = { ...source, pages: async (numbers: readonly number[]) => source.pages(numbers.slice(1)) };
  await assert.rejects(fetchPages(short, new Copy(own)), { name: 'DamagedPage' });
  for (const cut of [
    (ranges: readonly (Uint8Array | null)[]) => ranges.slice(1),
    (ranges: readonly (Uint8Array | null)[]) => ranges.map((hashes) => hashes?.subarray(HASH_BYTES) ?? null),
  ]) {
    const compare: PageSource['compare'] = async (first, hashes) => cut(await source.compare(first, hashes));
    await assert.rejects(fetchPages({ ...source, compare }, new Copy(own)), { name: 'MalformedError' });
  }
});
