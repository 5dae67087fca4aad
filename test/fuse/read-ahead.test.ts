import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { releasableMemory } from '../../base/releasable-memory.ts';
import { BLOCK_BYTES, ReadAhead, ReadPosition } from '../../fuse/contents/read-ahead.ts';
import { ReadSource } from '../../fuse/contents/read-source.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Its clock stands still, so that no block expires, however slow the machine is. */
const world = { ...systemWorld, nowMs: () => 0 };

function setUp(sizeBytes: number, blocksMax = 32) {
  const contents = Buffer.alloc(sizeBytes);
  for (let at = 0; at < sizeBytes; at += 4096) contents.writeUInt32LE(at / 4096, at);
  const reads: [number, number][] = [];
  const source = new ReadSource(
    world,
    async (offset, length) => {
      reads.push([offset, length]);
      return contents.subarray(offset, offset + length);
    },
    () => sizeBytes,
  );
  return {
    contents,
    reads,
    source,
    readAhead: new ReadAhead(world, blocksMax * BLOCK_BYTES),
    position: new ReadPosition(),
  };
}

test('a sequential reader is answered from blocks, each fetched once', async () => {
  const { contents, reads, source, readAhead, position } = setUp(5 * BLOCK_BYTES + 1000);
  const parts: Uint8Array[] = [];
  for (let offset = 0; ; offset += 100_000) {
    const part = await readAhead.read(source, position, offset, 100_000);
    parts.push(part);
    if (part.length < 100_000) break;
  }
  assert.ok(Buffer.concat(parts).equals(contents));
  const blocks = reads.filter(([, length]) => length === BLOCK_BYTES).map(([offset]) => offset / BLOCK_BYTES);
  assert.deepEqual(blocks.sort(), [0, 1, 2, 3, 4, 5]);
});

test('a kernel that reads ahead may send its requests in any order', async () => {
  const { contents, reads, source, readAhead, position } = setUp(8 * BLOCK_BYTES);
  const offsets = [0, 2, 1, 3, 5, 4, 7, 6].map((index) => (index * BLOCK_BYTES) / 2);
  for (const offset of offsets) {
    const part = await readAhead.read(source, position, offset, BLOCK_BYTES / 2);
    assert.ok(contents.subarray(offset, offset + BLOCK_BYTES / 2).equals(part));
  }
  assert.ok(reads.length <= 9, `${reads.length} reads`);
});

test('sequential readers that share little memory fetch hardly any block twice', async () => {
  const { contents, reads, source, readAhead } = setUp(40 * BLOCK_BYTES, 4);
  const readers = [0, 10, 20, 30].map((first) => ({ first, position: new ReadPosition() }));
  for (let step = 0; step < 20; step++) {
    for (const { first, position } of readers) {
      const offset = first * BLOCK_BYTES + (step * BLOCK_BYTES) / 2;
      const part = await readAhead.read(source, position, offset, BLOCK_BYTES / 2);
      assert.ok(contents.subarray(offset, offset + BLOCK_BYTES / 2).equals(part));
    }
  }
  // Once each, except where one reader fetched ahead before the others had begun.
  const fetched = reads.filter(([, length]) => length === BLOCK_BYTES).length;
  assert.ok(fetched <= 40 + readers.length, `${fetched} blocks fetched`);
});

test('no more blocks are kept than the memory allows, also for slow readers', async () => {
  const { reads, source, readAhead } = setUp(40 * BLOCK_BYTES, 2);
  const readers = [0, 10, 20, 30].map((first) => ({ first, position: new ReadPosition() }));
  const part = BLOCK_BYTES / 4;
  const step = async (number: number) => {
    for (const { first, position } of readers)
      await readAhead.read(source, position, first * BLOCK_BYTES + number * part, part);
  };
  const fetched = () => reads.filter(([, length]) => length === BLOCK_BYTES).length;
  await step(0);
  await step(1);
  const before = fetched();
  await step(2);
  assert.ok(fetched() - before >= 2, `${fetched() - before} of four readers found their block dropped`);
});

test('a block that was read completely frees memory for the next ones', async () => {
  const { reads, source, readAhead, position } = setUp(16 * BLOCK_BYTES, 3);
  for (let index = 0; index < 8; index++) {
    await readAhead.read(source, position, index * BLOCK_BYTES, BLOCK_BYTES);
    // The next two are fetched or being fetched, although three blocks fit in all.
    const ahead = Math.max(...reads.map(([offset]) => offset / BLOCK_BYTES));
    assert.ok(ahead >= index + 1 && ahead <= index + 2, `${ahead} of ${index}`);
    assert.equal(reads.length, ahead + 1);
  }
});

test('a block is kept until all of it was read, in any order', async () => {
  const { reads, source, readAhead, position } = setUp(BLOCK_BYTES);
  const part = BLOCK_BYTES / 8;
  for (const place of [0, 1, 7, 2, 4, 3, 6, 5]) await readAhead.read(source, position, place * part, part);
  assert.equal(reads.filter(([, length]) => length === BLOCK_BYTES).length, 1);
  await readAhead.read(source, position, 7 * part, part);
  assert.equal(
    reads.filter(([, length]) => length === BLOCK_BYTES).length,
    2,
    'A second read fetches the current bytes',
  );
});

test('small scattered reads fetch exactly what they need', async () => {
  const { reads, source, readAhead, position } = setUp(64 * BLOCK_BYTES);
  for (const offset of [5, 40, 3, 22, 61, 9].map((index) => index * BLOCK_BYTES)) {
    await readAhead.read(source, position, offset, 4096);
  }
  assert.ok(reads.every(([, length]) => length === 4096));
});

test('changed contents are fetched again', async () => {
  const { contents, source, readAhead, position } = setUp(2 * BLOCK_BYTES);
  const read = async (offset: number): Promise<Uint8Array> =>
    Uint8Array.from(await readAhead.read(source, position, offset, 200_000));
  await read(0);
  await read(200_000);
  contents.fill(7);
  source.changed();
  assert.equal((await read(400_000))[0], 7);
});

test('a fetch that fails is not kept', async () => {
  const { readAhead, position } = setUp(0);
  let calls = 0;
  const source = new ReadSource(
    world,
    async (offset, length) => {
      calls++;
      if (calls <= 2) throw new Error('by intent');
      return Buffer.alloc(Math.min(length, 500_000 - offset));
    },
    () => 500_000,
  );
  await assert.rejects(readAhead.read(source, position, 0, 200_000), /by intent/);
  await assert.rejects(readAhead.read(source, position, 200_000, 200_000), /by intent/);
  assert.equal((await readAhead.read(source, position, 400_000, 200_000)).length, 100_000);
});

test('the memory of a block is released once all of it was read and all its readers have released it', async () => {
  const blocks: Buffer[] = [];
  const source = new ReadSource(
    world,
    async (offset, length) => {
      const block = releasableMemory(length).fill(offset / BLOCK_BYTES + 1);
      blocks.push(block);
      return block;
    },
    () => 3 * BLOCK_BYTES,
  );
  const readAhead = new ReadAhead(world, 32 * BLOCK_BYTES);
  const [one, other] = [new ReadPosition(), new ReadPosition()];
  const half = BLOCK_BYTES / 2;
  const first = await readAhead.read(source, one, 0, half);
  const [second, beside] = await Promise.all([
    readAhead.read(source, one, half, half),
    readAhead.read(source, other, 0, BLOCK_BYTES),
  ]);
  readAhead.release(first);
  readAhead.release(second);
  // A second release has no effect.
  readAhead.release(second);
  await turn();
  assert.equal(beside.length, BLOCK_BYTES, 'Another reader has not released it');
  assert.ok(beside.every((byte) => byte === 1));
  readAhead.release(beside);
  await turn();
  assert.equal(blocks[0]?.length, 0);
  assert.equal(blocks[1]?.length, BLOCK_BYTES, 'The next block was fetched ahead and not read yet');

  const across = await readAhead.read(source, one, BLOCK_BYTES, BLOCK_BYTES + half);
  assert.equal(across.length, BLOCK_BYTES + half);
  assert.equal(blocks[1]?.length, 0, 'A read across blocks is a copy');
  assert.equal(blocks[2]?.length, BLOCK_BYTES, 'Half of the last block was not read');
});
