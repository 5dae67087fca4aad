/**
 * Goal: a copy that fails midway returns a short count if the rest was not copied, and an error if that is unknown.
 * Method: `RangeCopies` over a file whose second piece fails.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { OpenFile } from '../../fuse/contents/open-file.ts';
import { RangeCopies } from '../../fuse/contents/range-copies.ts';
import type { ReadAhead } from '../../fuse/contents/read-ahead.ts';
import { ErrnoError, errnoName } from '../../fuse/errno.ts';
import { systemWorld } from '../../world/system-world.ts';

const PIECE = 4;

function failing(error: Error): { copy(): Promise<number>; readonly forgotten: number[] } {
  const forgotten: number[] = [];
  const file = {
    inode: 7,
    staysUncommitted: () => false,
    copyFrom: async (_source: OpenFile, fromOffset: number) => {
      if (fromOffset > 0) throw error;
      return PIECE;
    },
  } as unknown as OpenFile;
  const cache = { forget: (inode: number) => void forgotten.push(inode), written: () => undefined };
  const copies = new RangeCopies(systemWorld, {} as ReadAhead, cache, () => true);
  const range = { source: {} as OpenFile, fromOffset: 0, file, toOffset: 0, length: 3 * PIECE };
  return { copy: () => copies.copy(range), forgotten };
}

for (const code of ['quota-exceeded', 'no-space', 'too-large'] satisfies ErrorCode[]) {
  test(`a copy whose later piece is refused with ${code} returns a short count`, async () => {
    const { copy, forgotten } = failing(new ServiceError(code, 'planted'));
    assert.equal(await copy(), PIECE);
    assert.deepEqual(forgotten, [7]);
  });
}

for (const error of [
  new ServiceError('unknown', 'planted'),
  new ServiceError('storage', 'planted'),
  new ErrnoError('ETIMEDOUT', 'planted'),
]) {
  test(`a copy whose later piece may be done fails (${errnoName(error)}, ${error.name})`, async () => {
    const { copy, forgotten } = failing(error);
    await assert.rejects(copy(), error);
    assert.deepEqual(forgotten, [7]);
  });
}
