import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { makeReleasable } from '../../base/releasable-memory.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { DiskFixture } from './stores.ts';

const FILE = fileId(1);
const SIZE_BYTES = 300_000;

/**
 * Goal: bytes that were lent to the store end once they are stored, and not before the system has read the last of
 * them.
 * Method: the disk delays every write until the test releases it, and can fail it.
 */
describe('operations in lent memory', () => {
  let gate: PromiseWithResolvers<void>;
  let failure: Error | null;
  let fixture: DiskFixture;

  beforeEach(async () => {
    gate = Promise.withResolvers<void>();
    failure = null;
    const fileOps: FileOps = {
      ...diskFileOps,
      async write(fd, buffers, position) {
        await gate.promise;
        if (failure !== null) throw failure;
        return diskFileOps.write(fd, buffers, position);
      },
    };
    fixture = await DiskFixture.make({ fileOps });
    await begin(fixture.store, FILE, 65_536);
  });
  afterEach(() => fixture.dispose());

  const apply = (seq: number, bytes: Uint8Array): Promise<void> =>
    fixture.store.apply(
      FILE,
      epoch(1),
      seq,
      { kind: 'write', offset: 0, bytes, modifiedNs: 1n },
      NO_SESSIONS,
    );

  test('end when they are on the disk', async () => {
    const bytes = pattern(SIZE_BYTES, 1);
    const expected = Buffer.from(bytes);
    makeReleasable(bytes);
    const applied = apply(1, bytes);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(bytes.length, SIZE_BYTES, 'the system has not read them');
    gate.resolve();
    await applied;
    assert.equal(bytes.length, 0);
    assert.ok(expected.equals(await fixture.store.read(FILE, 0, SIZE_BYTES)));
  });

  test('stay if they could not be stored, and if they were not lent', async () => {
    gate.resolve();
    const own = pattern(SIZE_BYTES, 2);
    await apply(1, own);
    assert.equal(own.length, SIZE_BYTES);
    failure = Object.assign(new Error('for the test'), { code: 'ENOSPC' });
    const bytes = pattern(SIZE_BYTES, 3);
    makeReleasable(bytes);
    await assert.rejects(apply(2, bytes));
    assert.equal(bytes.length, SIZE_BYTES);
    failure = null;
  });
});
