/**
 * Goal: a read of the pages returns what was written, or nothing; whole pages within the memory limit are kept.
 * Method: random writes, cuts and reads of a few files with too little memory; byte arrays are the model.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { WrittenPages } from '../../fuse/contents/written-pages.ts';

const PAGE = 4096;
const FILE_BYTES_MAX = 6 * PAGE;
const VERSION = { epoch: 1, seq: 1 };

/** The model of one file. */
class Plain {
  bytes = Buffer.alloc(0);

  write(offset: number, bytes: Uint8Array): void {
    this.resize(Math.max(this.bytes.length, offset + bytes.length));
    this.bytes.set(bytes, offset);
  }

  resize(sizeBytes: number): void {
    const resized = Buffer.alloc(sizeBytes);
    this.bytes.copy(resized);
    this.bytes = resized;
  }
}

for (let seed = 1; seed <= 30; seed++) {
  test(`reads return only what was written (seed ${seed})`, () => {
    const prng = new Prng(seed);
    const all = new WrittenPages(10 * PAGE);
    const files = [1, 2, 3].map((inode) => ({ plain: new Plain(), pages: all.of(inode, VERSION) }));
    let readCount = 0;
    for (let step = 0; step < 400; step++) {
      const { plain, pages } = prng.pick(files);
      const from = prng.integer(0, prng.pick([0, plain.bytes.length, FILE_BYTES_MAX]));
      const length = prng.integer(1, prng.pick([100, PAGE, 3 * PAGE]));
      const act = prng.integer(0, 9);
      if (act < 4) {
        const offset = prng.pick([from, from - (from % PAGE), plain.bytes.length]);
        const bytes = Buffer.alloc(length, prng.integer(1, 255));
        pages.put(offset, bytes);
        plain.write(offset, bytes);
      } else if (act === 4) {
        const before = plain.bytes.length;
        pages.drop(from);
        plain.resize(from);
        pages.putZeros(before, from);
      } else if (act === 5) {
        const to = Math.min(from + length, plain.bytes.length);
        pages.drop(from, to);
        plain.bytes.fill(0, from, to);
      } else {
        const read = pages.read(from, length, plain.bytes.length);
        if (read === null) continue;
        readCount++;
        assert.deepEqual(Buffer.from(read), plain.bytes.subarray(from, from + length), `Step ${step}`);
      }
    }
    assert.ok(readCount > 20, `${readCount} of the reads were answered`);
  });
}

test('a file that is written from front to back can be read to its end, and not beyond', () => {
  const pages = new WrittenPages(100 * PAGE).of(1, VERSION);
  for (let at = 0; at < 3 * PAGE; at += 1_000) pages.put(at, Buffer.alloc(1_000, 'a'));
  const sizeBytes = 13_000;
  assert.deepEqual(pages.read(0, 64 * 1024, sizeBytes), Buffer.alloc(sizeBytes, 'a'));
  assert.equal(pages.read(0, 64 * 1024, sizeBytes + 1), null, 'Another client has made it longer');
  assert.equal(pages.read(sizeBytes, 10, sizeBytes), null);
});

test('the pages of the files that were used last stay', () => {
  const all = new WrittenPages(8 * PAGE);
  const [a, b, c] = [1, 2, 3].map((inode) => all.of(inode, VERSION));
  assert.ok(a !== undefined && b !== undefined && c !== undefined);
  a.put(0, Buffer.alloc(4 * PAGE, 'a'));
  b.put(0, Buffer.alloc(4 * PAGE, 'b'));
  assert.notEqual(a.read(0, PAGE, 4 * PAGE), null);
  c.put(0, Buffer.alloc(3 * PAGE, 'c'));
  const has = [a, b, c].map((file) => file.read(3 * PAGE - 1, 1, 4 * PAGE) !== null);
  assert.deepEqual(has, [true, false, true]);
});

test('the pages of a closed file are used by an open of the same contents', () => {
  const all = new WrittenPages(8 * PAGE);
  const contents = { epoch: 3, seq: 9 };
  const write = (closedWith: typeof contents | null): void => {
    const file = all.of(7, VERSION);
    file.opened();
    file.put(0, Buffer.alloc(PAGE, 'a'));
    file.closed(closedWith);
  };
  const openedWith = (opened: typeof contents): boolean => all.of(7, opened).read(0, 1, PAGE) !== null;
  write(contents);
  assert.ok(openedWith({ ...contents }));
  write(contents);
  assert.ok(!openedWith({ epoch: 3, seq: 10 }));
  assert.ok(!openedWith(contents), 'The pages are gone');
  write(null);
  assert.ok(!openedWith(contents));
});

test('in a long file only small writes are kept', () => {
  const pages = new WrittenPages(1_000 * PAGE).of(1, VERSION);
  const mebibyte = 1024 * 1024;
  pages.put(mebibyte, Buffer.alloc(2 * PAGE, 'a'));
  assert.notEqual(pages.read(mebibyte, PAGE, 2 * mebibyte), null);
  pages.put(mebibyte, Buffer.alloc(128 * 1024, 'b'));
  assert.equal(pages.read(mebibyte, PAGE, 2 * mebibyte), null);
});
