import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import { releasableMemory } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import type { FileState } from '../../fuse/backend.ts';
import { Budget } from '../../fuse/pending/budget.ts';
import { CHUNK_BYTES_MAX } from '../../fuse/pending/chunks.ts';
import { WINDOW_BYTES_MIN } from '../../fuse/pending/send-window.ts';
import { FILE_DIRTY_BYTES_MAX, WriteBehind } from '../../fuse/pending/write-behind.ts';
import { systemWorld } from '../../world/system-world.ts';

const STATE: FileState = { sizeBytes: 0, modifiedNs: '0', contents: { epoch: 0, seq: 0 } };
const MEBIBYTE = 1024 * 1024;
/** The number of large chunks that are sent before the first answer. */
const AT_FIRST = WINDOW_BYTES_MIN / CHUNK_BYTES_MAX;
/** The number of chunks that are buffered before a writer has to wait. */
const HELD = FILE_DIRTY_BYTES_MAX / CHUNK_BYTES_MAX;

interface Sent {
  readonly offset: number;
  readonly length: number;
  readonly first: number;
  /** The offset of each part, and its first byte. */
  readonly parts: readonly (readonly [number, number])[];
  resolve(): void;
  reject(error: unknown): void;
}

/** A write-behind whose chunks arrive when the test says so. */
function setUp(
  options: { readonly limitMs?: number; readonly budget?: Budget; readonly world?: World } = {},
) {
  const sent: Sent[] = [];
  /** All parts that have arrived, in order. */
  const arrived: { readonly offset: number; readonly bytes: Uint8Array }[] = [];
  const budget = options.budget ?? new Budget(systemWorld);
  const send = (parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[]) =>
    new Promise<FileState>((resolve, reject) => {
      const arrive = (): void => {
        arrived.push(...parts);
        resolve(STATE);
      };
      const places = parts.map(({ offset, bytes }) => [offset, bytes[0] ?? -1] as const);
      const [[offset, first] = [-1, -1]] = places;
      const length = parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
      sent.push({ offset, length, first, parts: places, resolve: arrive, reject });
    });
  const writes = new WriteBehind({
    world: options.world ?? systemWorld,
    write: (offset, parts) => send([{ offset, bytes: Buffer.concat(parts) }]),
    writeParts: send,
    accepted: () => undefined,
    acknowledged: () => undefined,
    failed: () => undefined,
    budget,
    limitMs: options.limitMs ?? 60_000,
  });
  const answer = async (): Promise<void> => {
    while (sent.length > 0) {
      sent.shift()?.resolve();
      await turn();
    }
  };
  return { sent, arrived, writes, budget, answer };
}

test('adjacent writes are one request, and chunks end at multiples of their maximum size', async () => {
  const { sent, writes, answer } = setUp();
  for (let offset = CHUNK_BYTES_MAX - 8192; offset < CHUNK_BYTES_MAX + 8192; offset += 4096) {
    await writes.write(offset, Buffer.alloc(4096));
  }
  assert.deepEqual(
    sent.map(({ offset, length }) => [offset, length]),
    [[CHUNK_BYTES_MAX - 8192, 8192]],
  );
  const drained = writes.drain();
  assert.deepEqual(
    sent.map(({ offset }) => offset),
    [CHUNK_BYTES_MAX - 8192, CHUNK_BYTES_MAX],
  );
  await answer();
  await drained;
  assert.equal(writes.dirty, false);
});

test('a write larger than a chunk is split at the boundaries', async () => {
  const { sent, writes } = setUp();
  await writes.write(CHUNK_BYTES_MAX / 2, Buffer.alloc(2 * CHUNK_BYTES_MAX));
  void writes.drain();
  const lengths: number[] = [];
  while (sent.length > 0) {
    for (const one of sent.splice(0)) {
      lengths.push(one.length);
      one.resolve();
    }
    await turn();
  }
  assert.deepEqual(lengths, [CHUNK_BYTES_MAX / 2, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX / 2]);
});

test('few large chunks are sent at a time, and one more after each fast answer', async () => {
  // Its clock stands still: each answer is fast, however slow the machine is.
  const { sent, writes, answer } = setUp({ world: { ...systemWorld, nowMs: () => 0 } });
  for (let index = 0; index < HELD; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  assert.equal(sent.length, AT_FIRST);
  sent.shift()?.resolve();
  await turn();
  assert.equal(sent.length, AT_FIRST + 1);
  await answer();
  assert.equal(writes.dirty, false);
});

test('small chunks are sent together, sorted by offset, while few requests are pending', async () => {
  const { sent, arrived, writes, answer } = setUp();
  const places = Array.from({ length: 1_000 }, (_, index) => ((index * 7919) % 4093) * 8192);
  for (const place of places) await writes.write(place, Buffer.alloc(4096));
  const drained = writes.drain();
  assert.deepEqual(
    sent.map(({ parts }) => parts.length),
    [1, 1, 1, 1],
    'The first ones do not wait for more',
  );
  for (const one of sent.splice(0)) one.resolve();
  await turn();
  const batches = sent.map(({ parts }) => parts.length);
  assert.ok(batches.length <= 4 && batches[0] === 256, `${batches}`);
  const blocks = sent[0]?.parts.map(([offset]) => Math.floor(offset / CHUNK_BYTES_MAX)) ?? [];
  const changes = blocks.filter((block, at) => block !== blocks[at - 1]).length;
  assert.equal(changes, new Set(blocks).size, 'Sorted by block');
  await answer();
  await drained;
  assert.deepEqual(arrived.map(({ offset }) => offset).sort(), places.sort());
});

test('overlapping writes are sent in their order: in one request, or after a pending one', async () => {
  const { sent, writes, answer } = setUp();
  const half = CHUNK_BYTES_MAX / 2;
  for (let place = 0; place < 4; place++) await writes.write(place * half, Buffer.alloc(100, 9));
  for (const [place, value] of [3, 3 * half + 50, 50, 5000, 60].entries()) {
    await writes.write(value, Buffer.alloc(100, place));
  }
  const drained = writes.drain();
  assert.equal(sent.length, 4);
  sent.splice(2, 1)[0]?.resolve();
  await turn();
  assert.deepEqual(sent[3]?.parts, [[5000, 3]], 'A write waits for the pending one that it overlaps');
  for (const one of sent.splice(0)) one.resolve();
  await turn();
  assert.deepEqual(
    sent.flatMap(({ parts }) => parts),
    [
      [3, 0],
      [50, 2],
      [60, 4],
      [3 * half + 50, 1],
    ],
  );
  await answer();
  await drained;
});

test('writes adjacent to a chunk on either side join it while it waits', async () => {
  const { sent, writes, answer } = setUp();
  // Pending requests keep the rest waiting.
  await writes.write(0, Buffer.alloc(AT_FIRST * CHUNK_BYTES_MAX, 9));
  const at = 8 * MEBIBYTE;
  await writes.write(at + 4096, Buffer.alloc(4096, 2));
  await writes.write(at + 65536, Buffer.alloc(4096, 7));
  await writes.write(at, Buffer.alloc(4096, 1));
  await writes.write(at + 8192, Buffer.alloc(4096, 3));
  // Adjacent, but beyond a boundary that no chunk crosses.
  await writes.write(at - 4096, Buffer.alloc(4096, 5));
  assert.equal(sent.length, AT_FIRST);
  const drained = writes.drain();
  for (const chunk of sent.splice(0)) chunk.resolve();
  await turn();
  assert.deepEqual(
    sent.map(({ length, parts }) => [length, parts]),
    [
      [
        5 * 4096,
        [
          [at, 1],
          [at + 65536, 7],
          [at - 4096, 5],
        ],
      ],
    ],
  );
  await answer();
  await drained;
});

test('a write does not join a chunk if a later chunk overlaps it there', async () => {
  const { sent, writes, answer } = setUp();
  await writes.write(0, Buffer.alloc(AT_FIRST * CHUNK_BYTES_MAX, 9));
  const at = 8 * MEBIBYTE;
  await writes.write(at, Buffer.alloc(4096, 1));
  await writes.write(at + 6000, Buffer.alloc(4096, 2));
  // Continues the first chunk and overwrites a part of the second: it must arrive last.
  await writes.write(at + 4096, Buffer.alloc(4096, 3));
  const drained = writes.drain();
  for (const chunk of sent.splice(0)) chunk.resolve();
  await turn();
  assert.deepEqual(
    sent.flatMap(({ parts }) => parts),
    [
      [at, 1],
      [at + 6000, 2],
      [at + 4096, 3],
    ],
  );
  await answer();
  await drained;
});

test('writes in any order have the result that the program expects', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(60), fc.integer({ min: 1, max: 20 }), fc.nat(3)), { maxLength: 60 }),
      async (plan) => {
        const { sent, arrived, writes, answer } = setUp();
        const expected = Buffer.alloc(100);
        const base = CHUNK_BYTES_MAX - 40;
        for (const [step, [offset, length, answers]] of plan.entries()) {
          expected.fill(step + 1, offset, offset + length);
          await writes.write(base + offset, Buffer.alloc(length, step + 1));
          for (let left = answers; left > 0 && sent.length > 0; left--) {
            // The latest request is answered first: requests arrive in another order than they were sent.
            sent.pop()?.resolve();
            await turn();
          }
        }
        const drained = writes.drain();
        await answer();
        await drained;
        const image = Buffer.alloc(100);
        for (const { offset, bytes } of arrived) image.set(bytes, offset - base);
        assert.deepEqual(image, expected);
      },
    ),
    { numRuns: 200 },
  );
});

test('a chunk waits only for an earlier one that it overlaps', async () => {
  const { sent, writes, answer } = setUp();
  await writes.write(0, Buffer.alloc(100, 1));
  void writes.drain();
  await writes.write(50, Buffer.alloc(100, 2));
  await writes.write(500, Buffer.alloc(100, 3));
  void writes.drain();
  assert.deepEqual(
    sent.map(({ first }) => first),
    [1, 3],
  );
  sent[0]?.resolve();
  await turn();
  assert.deepEqual(
    sent.map(({ first }) => first),
    [1, 3, 2],
  );
  await answer();
});

test('a failed write stops all sending, drops what waits, and is returned as the file’s failure', async () => {
  const { sent, writes, budget } = setUp();
  for (let index = 0; index < HELD; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  const drained = writes.drain();
  sent[0]?.reject(new ServiceError('no-space', 'by intent'));
  await turn();
  assert.equal(sent.length, AT_FIRST, 'Nothing more is sent');
  for (const chunk of sent.slice(1)) chunk.resolve();
  await drained;
  assert.ok(writes.failure?.error instanceof ServiceError);
  assert.equal(writes.failure.error.code, 'no-space');
  assert.equal(budget.bytes, 0);
});

test('a chunk without an answer fails after the time limit', async () => {
  const { writes } = setUp({ limitMs: 30 });
  await writes.write(0, Buffer.alloc(10));
  await writes.drain();
  assert.match(String(writes.failure?.error), /longer than 30 ms/);
});

test('a writer waits for free space in the budget, and fails if there is none in time', async () => {
  const budget = new Budget(systemWorld, { bytesMax: 2 * CHUNK_BYTES_MAX });
  const { sent, writes } = setUp({ budget, limitMs: 60_000 });
  const other = setUp({ budget, limitMs: 60_000 });
  await writes.write(0, Buffer.alloc(2 * CHUNK_BYTES_MAX));
  let admitted = false;
  const waiting = other.writes.write(0, Buffer.alloc(CHUNK_BYTES_MAX)).then(() => {
    admitted = true;
  });
  await turn();
  assert.equal(admitted, false);
  sent.shift()?.resolve();
  await waiting;
  await assert.rejects(
    setUp({ budget, limitMs: 30 }).writes.write(0, Buffer.alloc(CHUNK_BYTES_MAX)),
    /longer than 30 ms/,
  );
  sent.shift()?.resolve();
  other.sent.shift()?.resolve();
  await writes.drain();
  await other.writes.drain();
  assert.equal(budget.bytes, 0);
});

test('a writer that waits for the budget fails with the error of the dropped chunks', async () => {
  const { sent, writes, budget } = setUp();
  for (let index = 0; index < HELD; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  const waiting = writes.write(HELD * CHUNK_BYTES_MAX, Buffer.alloc(1));
  sent[0]?.reject(new ServiceError('no-majority', 'by intent'));
  await assert.rejects(waiting, { code: 'no-majority' });
  for (const chunk of sent.slice(1)) chunk.resolve();
  await writes.drain();
  assert.equal(budget.bytes, 0);
});

test('written memory is released once the cluster has it, unless the request failed or the write was split', async () => {
  const { sent, writes } = setUp();
  const [whole, failing, cut] = [MEBIBYTE, MEBIBYTE, MEBIBYTE].map((size) => releasableMemory(size).fill(5));
  assert.ok(whole !== undefined && failing !== undefined && cut !== undefined);
  await writes.write(0, whole.subarray(80));
  const drained = writes.drain();
  await turn();
  assert.equal(whole.length, MEBIBYTE, 'The request is pending');
  sent.shift()?.resolve();
  await drained;
  assert.equal(whole.length, 0);

  await writes.write(CHUNK_BYTES_MAX - MEBIBYTE / 2, cut);
  const drainedTwo = writes.drain();
  await turn();
  sent.shift()?.resolve();
  await turn();
  sent.shift()?.resolve();
  await drainedTwo;
  assert.equal(cut[MEBIBYTE - 1], 5, 'The other half was pending when the first had arrived');

  await writes.write(8 * CHUNK_BYTES_MAX, failing);
  const drainedThree = writes.drain();
  await turn();
  sent.shift()?.reject(new ServiceError('no-majority', 'for the test'));
  await drainedThree;
  assert.equal(failing[0], 5, 'An attempt may still be sending it');
});
