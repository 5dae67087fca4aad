import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { EPOCH_ZERO } from '../../replica/epoch.ts';
import type { CatalogRecord } from '../../server/storage/catalog-database.ts';
import { PAGE_BYTES, type PageRead, type PageSource } from '../../server/storage/catalog-pages.ts';
import { CatalogSnapshots, type FrozenDatabase } from '../../server/storage/catalog-snapshots.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { systemWorld } from '../../world/system-world.ts';
import { SERVERS } from './fixture.ts';

const VIEW = { number: 1, members: SERVERS.slice(0, 3) };
const RECORD = { installed: EPOCH_ZERO, last: { seq: 0, epoch: EPOCH_ZERO } } as CatalogRecord;
const MEBIBYTE = 1024 * 1024;
const FULL = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });

const base = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-snapshots-'));
after(() => fs.rmSync(base, { recursive: true, force: true }));
let folder = '';
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(base, 'm'));
});

/** Snapshots of a database of that size; `ended` counts the readers that have ended. */
function snapshotsOf(bytes: number, read: PageRead): { snapshots: CatalogSnapshots; ended: () => number } {
  let ended = 0;
  const frozen = { record: RECORD, bytes, read, end: () => void ended++ };
  const snapshots = new CatalogSnapshots(path.join(folder, 'catalog.db'), {
    nowMs: () => 0,
    freeze: async () => frozen,
    check: async () => null,
  });
  return { snapshots, ended: () => ended };
}

const zeros: PageRead = async (buffer) => buffer.fill(0).length;

test('a copy that fails on the way is removed, and its readers learn why', async () => {
  const half = Promise.withResolvers<void>();
  const { snapshots, ended } = snapshotsOf(4 * MEBIBYTE, async (buffer, position) => {
    if (position < 2 * MEBIBYTE) return zeros(buffer, position);
    await half.promise;
    throw FULL;
  });
  const { id } = await snapshots.take();
  assert.equal((await snapshots.read(id, 0, PAGE_BYTES)).length, PAGE_BYTES);
  const waiting = snapshots.read(id, 3 * MEBIBYTE, PAGE_BYTES);
  half.resolve();
  await assert.rejects(waiting, { code: 'no-space' });
  await assert.rejects(snapshots.read(id, 0, PAGE_BYTES), { code: 'not-found' });
  await snapshots.closeAll();
  assert.deepEqual([fs.readdirSync(folder), ended()], [[], 1]);
});

test('no copy is begun that the disk has no space for', async () => {
  const { snapshots, ended } = snapshotsOf(2 ** 52, zeros);
  await assert.rejects(snapshots.take(), { name: 'ServiceError', code: 'no-space' });
  assert.deepEqual([fs.readdirSync(folder), ended()], [[], 1]);
});

test('the database changes again if no file can be created for its copy', async () => {
  const { snapshots, ended } = snapshotsOf(MEBIBYTE, zeros);
  fs.writeFileSync(path.join(folder, 'catalog.db.snapshot-1'), 'in the way');
  await assert.rejects(snapshots.take(), { name: 'ServiceError', code: 'storage' });
  assert.equal(ended(), 1);
});

test('while the file cannot be frozen, one copy is made, for all that want one', async () => {
  const store = await CatalogStore.open({ world: systemWorld, folder, view: VIEW });
  await store.close();
  const snapshots = new CatalogSnapshots(path.join(folder, 'catalog.db'), {
    nowMs: () => 0,
    freeze: async () => null,
    check: async () => null,
  });
  const [first, second] = await Promise.all([snapshots.take(), snapshots.take()]);
  assert.equal(first.id, second.id);
  assert.equal((await snapshots.read(first.id, 0, PAGE_BYTES)).length, PAGE_BYTES);
  assert.notEqual((await snapshots.take()).id, first.id, 'A later one shows a later state');
  await snapshots.closeAll();
  assert.ok(!fs.readdirSync(folder).some((name) => name.includes('snapshot')));
});

test('a copy that keeps the file frozen is waited for', async () => {
  const rest = Promise.withResolvers<void>();
  const bytes = 2 * PAGE_BYTES;
  const read: PageRead = async (buffer) => {
    await rest.promise;
    return buffer.fill(0).length;
  };
  const frozen: (FrozenDatabase | null)[] = [{ record: RECORD, bytes, read, end: () => undefined }, null];
  const snapshots = new CatalogSnapshots(path.join(folder, 'catalog.db'), {
    nowMs: () => 0,
    freeze: async () => frozen.shift() ?? null,
    check: async () => null,
  });
  const { id } = await snapshots.take();
  await assert.rejects(snapshots.take(), { name: 'ServiceError', code: 'busy' });
  rest.resolve();
  assert.equal((await snapshots.read(id, 0, bytes)).length, bytes);
  await snapshots.closeAll();
});

test('fetched pages stay if the disk of the source is full, and go if it is the one here', async () => {
  const { snapshots } = snapshotsOf(0, zeros);
  const source: PageSource = {
    bytes: PAGE_BYTES,
    compare: async () => {
      throw new ServiceError('no-space', 'The disk has too little free space', {}, { cause: FULL });
    },
    pages: async () => new Uint8Array(0),
  };
  const full: PageRead = async () => {
    throw FULL;
  };
  await assert.rejects(snapshots.stagePages(source, zeros), { code: 'no-space' });
  assert.equal(fs.readdirSync(folder).length, 1, 'The next fetch continues with them');
  await snapshots.dropPartial();
  await assert.rejects(snapshots.stagePages(source, full), { code: 'no-space' });
  assert.deepEqual(fs.readdirSync(folder), []);
});

test('a replica that has become primary fetches no copy', async () => {
  const store = await CatalogStore.open({ world: systemWorld, folder, view: VIEW });
  const source: PageSource = {
    bytes: PAGE_BYTES,
    compare: async () => assert.fail('Nothing is compared'),
    pages: async () => assert.fail('Nothing is fetched'),
  };
  store.begin();
  await assert.rejects(store.stagePages(source), { name: 'ServiceError', code: 'precondition-failed' });
  assert.ok(store.inTransaction, 'Its batch stays open');
  store.rollback();
  await store.close();
});
