import assert from 'node:assert/strict';
import { test } from 'node:test';
import { executeRequests } from '../../catalog/batch.ts';
import { Recount } from '../../catalog/recount.ts';
import { everyStep } from './every-step.ts';
import { Catalog, main } from './fixture.ts';
import { assertSound } from './soundness.ts';

const FILES = 10;

/** A catalog with a trash and files of 100 bytes, and a recount that has passed the first half of them. */
function halfCounted(): { catalog: Catalog; recount: Recount; files: readonly number[] } {
  const catalog = new Catalog();
  const files = Array.from({ length: FILES }, (_, index) => catalog.file(`/f${index}`).inode);
  for (const inode of files) settle(catalog, inode, 100);
  const recount = new Recount(catalog.db);
  // The root is the first inode.
  recount.step(1 + FILES / 2);
  return { catalog, recount, files };
}

function settle(catalog: Catalog, inode: number, sizeBytes: number): void {
  const file = { inode, sizeBytes, modifiedNs: '1', contents: { epoch: 1, seq: sizeBytes } };
  catalog.run({ kind: 'settle', files: [file] });
}

function finish(recount: Recount, countMax = 2): void {
  let slices = 0;
  while (!recount.step(countMax)) slices += 1;
  assert.ok(slices > 2, 'In several slices');
}

function collect(catalog: Catalog): void {
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 100 });
}

test('a recount names each wrong counter, and changes nothing', () => {
  const { catalog, recount } = halfCounted();
  catalog.db.exec(
    `UPDATE placement_counts SET files = 3 WHERE server = 's1'; DELETE FROM placement_counts WHERE server = 's2';
     INSERT INTO placement_counts VALUES ('s9', 1); UPDATE volumes SET named_bytes = 7, trashed_inodes = 1`,
  );
  const before = catalog.state();
  finish(recount);
  assert.deepEqual(recount.wrongCounters(), [
    { what: 'files of server s1', counter: 3, counted: FILES },
    { what: 'files of server s2', counter: 0, counted: FILES },
    { what: 'files of server s9', counter: 1, counted: 0 },
    { what: 'named_bytes of volume main', counter: 7, counted: 100 * FILES },
    { what: 'trashed_inodes of volume main', counter: 1, counted: 0 },
  ]);
  recount.end();
  assert.deepEqual(catalog.state(), before);
  assert.deepEqual(catalog.db.prepare('SELECT name FROM sqlite_temp_schema').all(), []);
});

test('what changes during a recount is counted once, on either side of its position', () => {
  for (const at of [1, FILES - 2]) {
    const { catalog, recount, files } = halfCounted();
    const [moved = 0, grown = 0] = files.slice(at);
    const change = () => {
      catalog.run({ kind: 'follow-view', inode: moved, view: { number: 9, members: ['s1', 's5'] } });
      settle(catalog, grown, 777);
      catalog.run({ kind: 'unlink', place: main(`/f${at - 1}`) });
      collect(catalog);
      catalog.file('/new');
      catalog.directory('/d');
    };
    change();
    finish(recount);
    assert.deepEqual(recount.wrongCounters(), []);
    // Now all are counted.
    settle(catalog, grown, 888);
    catalog.run({ kind: 'remove-directory', place: main('/d') });
    catalog.run({ kind: 'unlink', place: main('/new') });
    collect(catalog);
    assert.deepEqual(recount.wrongCounters(), []);
    assertSound(catalog.db);
  }
});

test('a recount counts what enters the trash and leaves it', () => {
  const { catalog, recount, files } = halfCounted();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  for (const index of [0, 1, FILES - 1]) catalog.run({ kind: 'unlink', place: main(`/f${index}`) });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: files[0] ?? 0 });
  finish(recount);
  assert.equal(catalog.query({ kind: 'volume', name: 'main' }).volume.trashedInodes, 2);
  assert.deepEqual(recount.wrongCounters(), []);
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 1 });
  catalog.run({ kind: 'unlink', place: main('/f2') });
  collect(catalog);
  assert.deepEqual(recount.wrongCounters(), []);
});

test('a batch that is undone takes with it what a recount has counted in it', () => {
  const { catalog, recount } = halfCounted();
  catalog.db.exec('BEGIN');
  const place = main('/undone');
  const node = { mode: 0o644, uid: 1, gid: 1, exclusive: true };
  const command = { kind: 'create-file', place, ...node } as const;
  executeRequests(catalog.db, 99, [{ session: 9, number: 1, command }], { ...catalog.context, nowNs: 9n });
  everyStep(() => !recount.step(100));
  assert.deepEqual(recount.wrongCounters(), [], 'Within the batch');
  catalog.db.exec('ROLLBACK');
  finish(recount);
  assert.deepEqual(recount.wrongCounters(), []);
});

test('a recount replaces the tables that an earlier one has left', () => {
  const { catalog } = halfCounted();
  const again = new Recount(catalog.db);
  finish(again);
  assert.deepEqual(again.wrongCounters(), []);
});
