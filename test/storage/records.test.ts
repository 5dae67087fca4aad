/** Goal: work in the background that reads records of all replicas displaces none that is in use, and is cheap. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { GenerationRows } from '../../server/storage/generation-rows.ts';
import { VIEW } from '../conformance/store.ts';
import { DiskFixture } from './stores.ts';

test('a record is read without loading the replica', async ({ mock }) => {
  const fixture = await DiskFixture.make();
  try {
    const file = 1 as FileId;
    await fixture.store.create(file, VIEW, 4_096);
    await fixture.reopen();
    const { store } = fixture;
    const loads = mock.method(GenerationRows.prototype, 'newest').mock;
    const record = store.record(file);
    assert.deepEqual(record?.view, VIEW);
    assert.equal(store.record(2 as FileId), null);
    assert.equal(loads.callCount(), 0);
    store.attributes(file);
    assert.equal(loads.callCount(), 1);
    assert.deepEqual(store.record(file), record);
    await store.remove(file);
    assert.equal(store.record(file), null);
  } finally {
    await fixture.dispose();
  }
});
