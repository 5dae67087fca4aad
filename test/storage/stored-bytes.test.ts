import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import type { ObjectRow } from '../../server/storage/index-rows.ts';
import { StoredBytes } from '../../server/storage/stored-bytes.ts';
import { systemWorld } from '../../world/system-world.ts';

const COUNT = 10_000;

function rowOf(index: number, length: number): ObjectRow {
  return { index, length, versionEpoch: 1, versionSeq: 1, crc32: 0, slot: index };
}

test('bytes are counted once, whatever changes during the count', async () => {
  const lengths = new Array<number>(COUNT).fill(10);
  let pages = 0;
  const stored: StoredBytes = new StoredBytes({
    world: systemWorld,
    file: 1 as FileId,
    index: {
      lengthsAfter(_, after, countMax) {
        const page = lengths.slice(after + 1, after + 1 + countMax);
        const bytes = page.reduce((sum, length) => sum + length, 0);
        if (++pages === 2) systemWorld.soon(change);
        return { count: page.length, bytes, last: after + page.length };
      },
    },
    check: () => undefined,
    idle: () => undefined,
  });
  /** Of one object that is counted by then, and one that is not. */
  const change = (): void => {
    for (const index of [0, COUNT - 1]) {
      stored.update([[rowOf(index, 10), rowOf(index, 3)]]);
      lengths[index] = 3;
    }
  };
  assert.equal(stored.get(), null, 'There are too many for one tick');
  await Promise.all([stored.whenCounted(), stored.whenCounted()]);
  assert.equal(stored.get(), COUNT * 10 - 14);
  stored.update([[rowOf(5, 10), null]]);
  assert.equal(stored.get(), COUNT * 10 - 24);
  assert.equal(pages, 3);
});
