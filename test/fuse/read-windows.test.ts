import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BackendRange } from '../../fuse/backend.ts';
import { BLOCK_BYTES, ReadAhead, ReadPosition } from '../../fuse/contents/read-ahead.ts';
import { ReadSource } from '../../fuse/contents/read-source.ts';
import { systemWorld } from '../../world/system-world.ts';

const BLOCKS = 40;
const LONG_MS = 60_000;

/** Contents whose bytes all have one value, and ranges of the local server that keep the value of their start. */
function setUp(validMs = LONG_MS) {
  const state = { value: 1, ranges: [] as number[], reads: 0, isLocal: true };
  const bytesOf = (value: number, offset: number, length: number): Uint8Array =>
    Buffer.alloc(Math.max(0, Math.min(length, BLOCKS * BLOCK_BYTES - offset)), value);
  const source = new ReadSource(
    systemWorld,
    async (offset, length) => {
      state.reads++;
      return bytesOf(state.value, offset, length);
    },
    () => BLOCKS * BLOCK_BYTES,
    () => null,
    async (offset): Promise<BackendRange | null> => {
      if (!state.isLocal) return null;
      state.ranges.push(offset / BLOCK_BYTES);
      const { value } = state;
      const sinceMs = systemWorld.nowMs();
      const read = async (at: number, length: number): Promise<Uint8Array> => bytesOf(value, at, length);
      return { sinceMs, untilMs: sinceMs + validMs, read };
    },
  );
  const readAhead = new ReadAhead(systemWorld, 32 * BLOCK_BYTES);
  const position = new ReadPosition();
  const read = async (block: number): Promise<number | undefined> =>
    (await readAhead.read(source, position, block * BLOCK_BYTES, BLOCK_BYTES))[0];
  return { state, source, readAhead, read };
}

test('a sequential reader requests ranges, and no blocks', async () => {
  const { state, read } = setUp();
  for (let block = 0; block < BLOCKS; block++) assert.equal(await read(block), 1);
  assert.deepEqual(state.ranges, [0, 16, 32]);
  assert.equal(state.reads, 0);
});

test('without local ranges each block is fetched', async () => {
  const { state, read } = setUp();
  state.isLocal = false;
  for (let block = 0; block < BLOCKS; block++) assert.equal(await read(block), 1);
  assert.equal(state.reads, BLOCKS);
});

test('after a change no bytes of an earlier range are read', async () => {
  const { state, source, read } = setUp();
  for (let block = 0; block < 4; block++) assert.equal(await read(block), 1);
  state.value = 2;
  source.changed();
  for (let block = 4; block < 10; block++) assert.equal(await read(block), 2);
});

test('a range that is about to end is requested again', async () => {
  const { state, read } = setUp(0);
  for (let block = 0; block < 8; block++) assert.equal(await read(block), 1);
  assert.ok(state.ranges.length >= 8, `${state.ranges.length} ranges`);
});

test('a read after a single read is as new as that, although its range is older', async () => {
  const { state, source, readAhead, read } = setUp();
  for (let block = 0; block < 4; block++) assert.equal(await read(block), 1);
  // Another client changes the contents, and this mount is not notified.
  state.value = 2;
  const elsewhere = new ReadPosition();
  const single = await readAhead.read(source, elsewhere, 12 * BLOCK_BYTES, 4096);
  assert.equal(single[0], 2);
  for (let block = 8; block < 16; block++) assert.equal(await read(block), 2);
});
