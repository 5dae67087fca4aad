import assert from 'node:assert/strict';
import path from 'node:path';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { Prng } from '../../base/prng.ts';
import type { DiskStore } from '../../server/storage/disk-store.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';
import { DiskFixture } from './stores.ts';

const file = fileId(1);
const e1 = epoch(1);
const OBJECT_BYTES = 64;

function apply(store: DiskStore, seq: number, operation: Parameters<DiskStore['apply']>[3]): Promise<void> {
  return store.apply(file, e1, seq, operation, NO_SESSIONS);
}

function write(store: DiskStore, seq: number, length: number): Promise<void> {
  return apply(store, seq, { kind: 'write', offset: 0, bytes: pattern(length, seq), modifiedNs: 1n });
}

test('an index from before there were seals is read, and its files are not sealed', async () => {
  const fixture = await DiskFixture.make();
  try {
    await begin(fixture.store, file, OBJECT_BYTES);
    await write(fixture.store, 1, 100);
    await fixture.store.flush(file);
    await write(fixture.store, 2, 100);
    await fixture.close();
    const index = new Database(path.join(fixture.path, 'index.db'));
    index.exec(`DROP TABLE removals; DROP INDEX borrowers; ALTER TABLE files DROP COLUMN lender;
      ALTER TABLE files DROP COLUMN seal; ALTER TABLE undo_files DROP COLUMN seal;
      PRAGMA user_version = 2`);
    index.close();
    await fixture.open();
    assert.equal(fixture.store.attributes(file).seal, 'open');
    await apply(fixture.store, 3, { kind: 'seal', final: false });
    await fixture.reopen();
    assert.equal(fixture.store.attributes(file).seal, 'sealed');
    assert.deepEqual(Buffer.from(await fixture.store.read(file, 0, 200)), Buffer.from(pattern(100, 2)));
  } finally {
    await fixture.dispose();
  }
});

test('a loss of power takes a seal back if it takes earlier contents, and never a synced one', async () => {
  const seen = new Set<string>();
  for (let seed = 1; seed <= 6; seed++) {
    const isSynced = seed % 3 === 0;
    await withLossyStore(async ({ store, copyAfterLoss }) => {
      await begin(store, file, OBJECT_BYTES);
      await write(store, 1, 2 * OBJECT_BYTES);
      await store.flush(file);
      await write(store, 2, 2 * OBJECT_BYTES);
      await apply(store, 3, { kind: 'seal', final: false });
      if (isSynced) await store.flush(file);
      // Another file's promise syncs the index, but not these contents.
      await begin(store, fileId(2), OBJECT_BYTES);
      await lookInto(copyAfterLoss(new Prng(seed)), 'two', async (left) => {
        const { seq } = left.record(file) ?? { seq: 0 };
        const { seal } = left.attributes(file);
        seen.add(`${seq} ${seal}`);
        assert.ok(
          seq === 1 ? seal === 'open' : seq === 3 && seal === 'sealed',
          `SEED=${seed}: ${seq} ${seal}`,
        );
        if (isSynced) assert.equal(seal, 'sealed', `SEED=${seed}`);
        const wanted = pattern(2 * OBJECT_BYTES, seq === 1 ? 1 : 2);
        assert.ok(Buffer.from(wanted).equals(await left.read(file, 0, 200)), `SEED=${seed}`);
      });
    });
  }
  assert.deepEqual([...seen].sort(), ['1 open', '3 sealed'], 'Both occurred');
});
