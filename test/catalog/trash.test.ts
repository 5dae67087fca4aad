import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { ensureSchema, SCHEMA_VERSION } from '../../catalog/schema.ts';
import type { TrashedFile, VolumeInfo } from '../../wire/catalog-api.ts';
import { asVersion3 } from './earlier-schema.ts';
import { everyStep } from './every-step.ts';
import { Catalog, main } from './fixture.ts';

const HOUR_MS = 3_600_000;
const HOUR_NS = BigInt(HOUR_MS) * 1_000_000n;
const ANYTHING = { kind: 'anything' } as const;

function withTrash(trashMs = HOUR_MS): Catalog {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs });
  return catalog;
}

/** A file whose contents the catalog knows. */
function stored(catalog: Catalog, path: string, sizeBytes = 100): number {
  const { inode } = catalog.file(path);
  settle(catalog, inode, sizeBytes, 1);
  return inode;
}

function settle(catalog: Catalog, inode: number, sizeBytes: number, seq: number): void {
  const contents = { epoch: 1, seq };
  catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs: '7', contents }] });
}

function trashOf(catalog: Catalog, path = '/'): readonly TrashedFile[] {
  return catalog.query({ kind: 'trash', volume: 'main', path, after: null, countMax: 1000 }).files;
}

function volumeOf(catalog: Catalog): VolumeInfo {
  return catalog.query({ kind: 'volume', name: 'main' }).volume;
}

function collect(catalog: Catalog): readonly number[] {
  const beforeNs = catalog.timeNs.toString();
  return catalog.run({ kind: 'collect', beforeNs, countMax: 100 }).inodes;
}

test("a file whose last name is removed is kept with its path for its volume's trash period, then collected", () => {
  const catalog = withTrash();
  catalog.directory('/docs');
  const inode = stored(catalog, '/docs/a');
  catalog.run({ kind: 'unlink', place: main('/docs/a'), by: 'anna' });
  const removedNs = catalog.timeNs;
  assert.deepEqual(trashOf(catalog), [
    {
      inode,
      path: '/docs/a',
      sizeBytes: 100,
      modifiedNs: '7',
      removedNs: removedNs.toString(),
      removedBy: 'anna',
      keptUntilNs: (removedNs + HOUR_NS).toString(),
    },
  ]);
  catalog.timeNs = removedNs + HOUR_NS;
  assert.deepEqual(collect(catalog), []);
  catalog.timeNs += 1n;
  assert.deepEqual(collect(catalog), [inode]);
  assert.deepEqual(trashOf(catalog), []);
  assert.equal(volumeOf(catalog).trashedInodes, 0);
});

test('a file that loses its name to another is kept, by rename and by replacement', () => {
  const catalog = withTrash();
  const [old, older] = [stored(catalog, '/a'), stored(catalog, '/b')];
  catalog.run({ kind: 'rename', from: main('/a'), to: main('/b'), mode: 'replace', by: 'mount on one' });
  const upload = catalog.orphan().inode;
  settle(catalog, upload, 5, 1);
  catalog.run({ kind: 'replace', place: main('/b'), inode: upload, expect: ANYTHING });
  assert.deepEqual(
    trashOf(catalog).map(({ inode, path, removedBy }) => [inode, path, removedBy]),
    [
      [old, '/b', undefined],
      [older, '/b', 'mount on one'],
    ],
  );
  // The newest one is restored beside the file that took its name.
  assert.equal(catalog.run({ kind: 'trash-restore', volume: 'main', inode: old, to: '/c' }).path, '/c');
  assert.equal(catalog.at('/c').inode, old);
});

test('a file with another name is not in the trash; removing its last name moves it there', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'link', inode, place: main('/b') });
  catalog.run({ kind: 'unlink', place: main('/a') });
  assert.deepEqual(trashOf(catalog), []);
  catalog.run({ kind: 'unlink', place: main('/b') });
  assert.deepEqual(
    trashOf(catalog).map(({ path }) => path),
    ['/b'],
  );
  catalog.refuse('not-found', { kind: 'link', inode, place: main('/c') });
});

test('the trash keeps no empty file, no excluded file, and nothing of a volume without a trash', () => {
  const catalog = withTrash();
  const empty = catalog.file('/empty').inode;
  settle(catalog, empty, 0, 1);
  stored(catalog, '/spared');
  catalog.symlink('/link', 'spared');
  catalog.run({ kind: 'unlink', place: main('/empty') });
  catalog.run({ kind: 'unlink', place: main('/spared'), trash: false });
  catalog.run({ kind: 'unlink', place: main('/link') });
  assert.deepEqual(trashOf(catalog), []);
  // While a file is being written, only its primary knows that it is empty.
  catalog.file('/written');
  catalog.run({ kind: 'unlink', place: main('/written') });
  assert.equal(trashOf(catalog).length, 1);
  stored(catalog, '/later');
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 0 });
  catalog.run({ kind: 'unlink', place: main('/later') });
  assert.equal(trashOf(catalog).length, 1, 'Files in the trash stay until their time');
});

test('restoring creates the missing directories, and does not replace an existing name', () => {
  const catalog = withTrash();
  catalog.directory('/a');
  catalog.directory('/a/b');
  const [first, second] = [stored(catalog, '/a/b/one'), stored(catalog, '/a/b/two')];
  for (const path of ['/a/b/one', '/a/b/two']) catalog.run({ kind: 'unlink', place: main(path) });
  for (const path of ['/a/b', '/a']) catalog.run({ kind: 'remove-directory', place: main(path) });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: first });
  assert.equal(catalog.at('/a/b/one').inode, first);
  assert.deepEqual([catalog.at('/a/b').mode, catalog.at('/a/b/one').links], [0o755, 1]);
  catalog.file('/a/b/two');
  catalog.refuse('exists', { kind: 'trash-restore', volume: 'main', inode: second });
  catalog.refuse('not-directory', { kind: 'trash-restore', volume: 'main', inode: second, to: '/a/b/one/x' });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: second, to: '/new/two' });
  assert.equal(catalog.at('/new/two').inode, second);
  catalog.refuse('not-found', { kind: 'trash-restore', volume: 'main', inode: second });
  assert.deepEqual(trashOf(catalog), []);
});

test('files in the trash are reachable only by its own commands', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.refuse('bad-request', { kind: 'replace', place: main('/b'), inode, expect: ANYTHING });
  catalog.refuse('not-found', { kind: 'trash-restore', volume: 'main', inode: catalog.orphan().inode });
  catalog.run({ kind: 'volume-create', name: 'second', replicas: 1, objectBytes: 4096 });
  catalog.refuse('not-found', { kind: 'trash-restore', volume: 'second', inode });
  catalog.refuse('not-found', { kind: 'trash-empty', volume: 'second', inode, countMax: 1 });
});

test('a session that has a removed file open does not shorten its time in the trash', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'unlink', place: main('/a') });
  const removedNs = catalog.timeNs;
  catalog.run({ kind: 'keep-orphan', inode });
  assert.equal(trashOf(catalog)[0]?.keptUntilNs, (removedNs + HOUR_NS).toString());
  // A session that still has it open then keeps it longer.
  catalog.timeNs = removedNs + 2n * HOUR_NS;
  catalog.run({ kind: 'keep-orphan', inode });
  assert.deepEqual(collect(catalog), []);
});

test('the trash counts against the quotas, and emptying it frees space', () => {
  const catalog = withTrash();
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 1000 });
  const [kept, gone] = [catalog.orphan().inode, catalog.orphan().inode];
  for (const inode of [kept, gone]) settle(catalog, inode, 600, 1);
  catalog.run({ kind: 'replace', place: main('/a'), inode: kept, expect: ANYTHING });
  // The replaced file stays in the trash, so there is no free space for the new one.
  catalog.refuse('quota-exceeded', { kind: 'replace', place: main('/a'), inode: gone, expect: ANYTHING });
  catalog.run({ kind: 'unlink', place: main('/a') });
  const { namedBytes, trashedBytes, trashedInodes } = volumeOf(catalog);
  assert.deepEqual(
    { namedBytes, trashedBytes, trashedInodes },
    { namedBytes: 600, trashedBytes: 600, trashedInodes: 1 },
  );
  const again = { kind: 'replace', place: main('/b'), inode: gone, expect: ANYTHING } as const;
  assert.throws(() => catalog.run(again), /600 of them are in its trash/);
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 10 });
  assert.equal(volumeOf(catalog).trashedBytes, 0);
  catalog.run(again);
  assert.equal(volumeOf(catalog).namedBytes, 600);
});

test('without a trash, or if the command bypasses it, a replaced file frees its space', () => {
  const catalog = withTrash();
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 1000 });
  const [first, second] = [catalog.orphan().inode, catalog.orphan().inode];
  for (const inode of [first, second]) settle(catalog, inode, 600, 1);
  catalog.run({ kind: 'replace', place: main('/a'), inode: first, expect: ANYTHING });
  catalog.run({ kind: 'replace', place: main('/a'), inode: second, expect: ANYTHING, trash: false });
  assert.equal(volumeOf(catalog).namedBytes, 600);
});

test('a file in the trash that is still being written counts with the size that it may reach', () => {
  const catalog = withTrash();
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 100_000 });
  const { inode } = catalog.file('/a');
  catalog.run({ kind: 'unlink', place: main('/a') });
  settle(catalog, inode, 5000, 3);
  assert.deepEqual([volumeOf(catalog).namedBytes, volumeOf(catalog).trashedBytes], [5000, 5000]);
  assert.equal(trashOf(catalog)[0]?.sizeBytes, 5000);
});

test('the trash is listed and emptied by path, page by page', () => {
  const catalog = withTrash();
  catalog.directory('/d');
  for (const path of ['/d/1', '/d/2', '/d/3', '/d.txt', '/e']) {
    stored(catalog, path);
    catalog.run({ kind: 'unlink', place: main(path) });
  }
  const below = (path: string) => trashOf(catalog, path).map((file) => file.path);
  assert.deepEqual(below('/'), ['/d.txt', '/d/1', '/d/2', '/d/3', '/e']);
  assert.deepEqual(below('/d'), ['/d/1', '/d/2', '/d/3']);
  assert.deepEqual(below('/e'), ['/e']);
  const page = catalog.query({ kind: 'trash', volume: 'main', path: '/', after: null, countMax: 2 });
  assert.equal(page.more, true);
  const last = page.files.at(-1);
  assert.ok(last !== undefined);
  const rest = catalog.query({ kind: 'trash', volume: 'main', path: '/', after: last, countMax: 3 });
  assert.deepEqual(
    rest.files.map(({ path }) => path),
    ['/d/2', '/d/3', '/e'],
  );
  assert.equal(rest.more, false);
  const empty = { kind: 'trash-empty', volume: 'main', path: '/d', countMax: 2 } as const;
  assert.deepEqual(
    [catalog.run(empty).removed, catalog.run(empty).removed, catalog.run(empty).removed],
    [2, 1, 0],
  );
  assert.deepEqual(below('/'), ['/d.txt', '/e']);
});

test('a volume whose trash is not empty is not removed', () => {
  const catalog = withTrash();
  stored(catalog, '/a');
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.refuse('not-empty', { kind: 'volume-remove', name: 'main' });
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 1 });
  catalog.run({ kind: 'volume-remove', name: 'main' });
});

test('a catalog of version 3 gets a trash, and its volumes keep nothing in it', () => {
  const db = new Database(':memory:');
  ensureSchema(db);
  asVersion3(db);
  db.exec(
    `INSERT INTO volumes (id, name, root, replicas, object_bytes, inodes, used_bytes) VALUES (1, 'old', 1, 3, 4096, 1, 0)`,
  );
  ensureSchema(db);
  assert.equal(db.pragma('user_version', { simple: true }), SCHEMA_VERSION);
  assert.deepEqual(db.prepare('SELECT trash_ms, trashed_inodes, trashed_bytes FROM volumes').raw().all(), [
    [0, 0, 0],
  ]);
});

/** A path of a snapshot of `main`, as it is displayed. */
function shownAt(catalog: Catalog, snapshot: string, path: string) {
  return catalog.query({ kind: 'resolve', volume: `main@${snapshot}`, path, follow: true }).attributes;
}

/** What its primary has to preserve before the file is written. */
function toPreserve(catalog: Catalog, inode: number) {
  return catalog.run({ kind: 'open-for-write', inode, preserves: true }).preserve;
}

test('a file removed after a snapshot is in both, and emptying the trash removes nothing from the snapshot', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.run({ kind: 'unlink', place: main('/a') });
  const shown = shownAt(catalog, 'one', '/a');
  assert.deepEqual([shown.inode, shown.sizeBytes, shown.contents], [inode, 100, { epoch: 1, seq: 1 }]);
  assert.deepEqual(
    trashOf(catalog).map((file) => file.inode),
    [inode],
  );
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 10 });
  assert.deepEqual(collect(catalog), [], 'the snapshot shows its contents');
  assert.deepEqual(trashOf(catalog), []);
  assert.deepEqual(shownAt(catalog, 'one', '/a').contents, { epoch: 1, seq: 1 });
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  everyStep(() => catalog.run({ kind: 'sweep', countMax: 10 }).more);
  assert.deepEqual(collect(catalog), [inode], 'no snapshot shows it any more');
});

test('a file restored from the trash is written only after contents that a snapshot shows are preserved', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode });
  assert.deepEqual(toPreserve(catalog, inode)?.contents, { epoch: 1, seq: 1 });
});

test('no snapshot contains the trash, also after a file of it was restored', () => {
  const catalog = withTrash();
  const inode = stored(catalog, '/a');
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode });
  assert.throws(() => shownAt(catalog, 'one', '/a'), /nothing at "main@one:\/a"/);
  assert.equal(toPreserve(catalog, inode), undefined, 'no snapshot shows its contents');
});
