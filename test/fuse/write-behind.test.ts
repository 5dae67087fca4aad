import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { FileState } from '../../fuse/backend.ts';
import { CHUNK_BYTES_MAX, DirtyBudget, WriteBehind } from '../../fuse/write-behind.ts';

const STATE: FileState = { sizeBytes: 0, modifiedNs: '0', contents: { epoch: 0, seq: 0 } };
const MEBIBYTE = 1024 * 1024;

interface Sent {
  readonly offset: number;
  readonly length: number;
  readonly first: number;
  resolve(): void;
  reject(error: unknown): void;
}

/** A write-behind whose chunks arrive when the test says so. */
function setUp(options: { readonly limitMs?: number; readonly budget?: DirtyBudget } = {}) {
  const sent: Sent[] = [];
  const budget = options.budget ?? new DirtyBudget(64 * MEBIBYTE);
  const writes = new WriteBehind({
    write: (offset, bytes) =>
      new Promise((resolve, reject) => {
        const first = bytes[0] ?? -1;
        sent.push({ offset, length: bytes.length, first, resolve: () => resolve(STATE), reject });
      }),
    acknowledged: () => undefined,
    budget,
    limitMs: options.limitMs ?? 60_000,
  });
  const answer = async (): Promise<void> => {
    while (sent.length > 0) {
      sent.shift()?.resolve();
      await turn();
    }
  };
  return { sent, writes, budget, answer };
}

test('neighbouring writes travel together, and chunks end at multiples of 1 MiB', async () => {
  const { sent, writes, answer } = setUp();
  for (let offset = MEBIBYTE - 8192; offset < MEBIBYTE + 8192; offset += 4096) {
    await writes.write(offset, Buffer.alloc(4096));
  }
  assert.deepEqual(
    sent.map(({ offset, length }) => [offset, length]),
    [[MEBIBYTE - 8192, 8192]],
  );
  const drained = writes.drain();
  assert.deepEqual(
    sent.map(({ offset }) => offset),
    [MEBIBYTE - 8192, MEBIBYTE],
  );
  await answer();
  await drained;
  assert.equal(writes.dirty, false);
});

test('a write larger than a chunk is split at the boundaries', async () => {
  const { sent, writes, answer } = setUp();
  await writes.write(MEBIBYTE / 2, Buffer.alloc(2 * MEBIBYTE));
  void writes.drain();
  assert.deepEqual(
    sent.map(({ length }) => length),
    [MEBIBYTE / 2, MEBIBYTE, MEBIBYTE / 2],
  );
  await answer();
});

test('four chunks travel at a time', async () => {
  const { sent, writes, answer } = setUp();
  for (let index = 0; index < 8; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  assert.equal(sent.length, 4);
  sent.splice(1, 1)[0]?.resolve();
  await turn();
  assert.equal(sent.length, 4);
  await answer();
  assert.equal(writes.dirty, false);
});

test('a chunk waits for an older one that it overlaps, and only for that', async () => {
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

test('a failure is told to those who had the file open, and what waits is given up', async () => {
  const { sent, writes, budget } = setUp();
  const before = writes.errorCount;
  for (let index = 0; index < 6; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  const drained = writes.drain();
  sent[0]?.reject(new ServiceError('no-space', 'by intent'));
  await turn();
  assert.equal(sent.length, 4, 'Nothing more is sent');
  for (const chunk of sent.slice(1)) chunk.resolve();
  await drained;
  assert.equal((writes.errorSince(before) as ServiceError).code, 'no-space');
  assert.equal(writes.errorSince(writes.errorCount), undefined);
  assert.equal(budget.bytes, 0);
});

test('a chunk that gets no answer is given up after the limit', async () => {
  const { writes } = setUp({ limitMs: 30 });
  await writes.write(0, Buffer.alloc(10));
  await writes.drain();
  assert.match(String(writes.errorSince(0)), /longer than 30 ms/);
});

test('a writer waits for room, and is told when there is none in time', async () => {
  const budget = new DirtyBudget(2 * MEBIBYTE);
  const { sent, writes } = setUp({ budget, limitMs: 50 });
  const other = setUp({ budget, limitMs: 50 });
  await writes.write(0, Buffer.alloc(2 * MEBIBYTE));
  let admitted = false;
  const waiting = other.writes.write(0, Buffer.alloc(MEBIBYTE)).then(() => {
    admitted = true;
  });
  await turn();
  assert.equal(admitted, false);
  sent.shift()?.resolve();
  await waiting;
  await assert.rejects(
    setUp({ budget, limitMs: 30 }).writes.write(0, Buffer.alloc(MEBIBYTE)),
    /longer than 30 ms/,
  );
  sent.shift()?.resolve();
  other.sent.shift()?.resolve();
  await writes.drain();
  await other.writes.drain();
  assert.equal(budget.bytes, 0);
});

test('a writer whose room came from chunks that were given up is told of the failure', async () => {
  const { sent, writes, budget } = setUp();
  for (let index = 0; index < 8; index++) {
    await writes.write(index * CHUNK_BYTES_MAX, Buffer.alloc(CHUNK_BYTES_MAX));
  }
  const waiting = writes.write(8 * CHUNK_BYTES_MAX, Buffer.alloc(1));
  sent[0]?.reject(new ServiceError('no-majority', 'by intent'));
  await assert.rejects(waiting, { code: 'no-majority' });
  for (const chunk of sent.slice(1)) chunk.resolve();
  await writes.drain();
  assert.equal(budget.bytes, 0);
});
