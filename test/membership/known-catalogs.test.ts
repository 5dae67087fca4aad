/** Goal: a server acts on lists of catalogs that ascend, also over restarts and after the loss of its file. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { CatalogRow } from '../../server/catalog/catalog-rows.ts';
import { isCatalogList, KnownCatalogs, type KnownList } from '../../server/membership/known-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as [ServerId, ServerId, ServerId, ServerId];
const ONE = 1 as CatalogNumber;
const SERVER = { id: A, url: 'http://a:1', zone: '', storageId: 'disk', state: 'in', since: 1 } as const;
const SETTINGS = { replicas: 3, objectBytes: 65_536 };
const log = pino({ level: 'silent' });

function rowOf(change: Partial<CatalogRow> = {}): CatalogRow {
  const first = { number: ONE, name: 'projects', state: 'ready', members: [A, B, C] } as const;
  return { ...first, view: 1, made: 2, since: 3, settings: SETTINGS, ...change };
}

function listOf(version: number, ...catalogs: CatalogRow[]): KnownList {
  return { version, catalogs, servers: [SERVER] };
}

function temporary(t: TestContext): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'leasehold-catalogs-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

function open(folder: string, storageId = 'disk-1'): KnownCatalogs {
  return new KnownCatalogs({ file: path.join(folder, 'catalogs.json'), storageId, world: systemWorld, log });
}

test('only a newer list is adopted, and it is on the disk before its listeners are called', (t) => {
  const folder = temporary(t);
  const known = open(folder);
  assert.equal(known.version, 0);
  const seen: [number, number][] = [];
  known.onChange(() => seen.push([known.version, open(folder).version]));
  known.adopt(listOf(3, rowOf()));
  for (const version of [2, 3]) known.adopt(listOf(version, rowOf({ name: 'other' })));
  assert.equal(known.byNumber(ONE)?.name, 'projects');
  known.adopt(listOf(5, rowOf({ state: 'removing', since: 5 })));
  assert.deepEqual(seen, [
    [3, 3],
    [5, 5],
  ]);
  const restarted = open(folder);
  restarted.adopt(listOf(4, rowOf()));
  assert.deepEqual([restarted.version, restarted.byName('projects')?.state], [5, 'removing']);
  assert.deepEqual(restarted.list.servers, [SERVER]);
});

test('a later start knows which numbers moved', (t) => {
  const folder = temporary(t);
  const known = open(folder);
  known.adopt(listOf(2, rowOf({ state: 'creating' })));
  assert.equal(known.inodeCatalogs.catalogOf(7), 0);
  const list = { ...listOf(3, rowOf()), moved: [{ first: 5, end: 8, catalog: ONE }] };
  known.adopt(list);
  for (const one of [known, open(folder)])
    assert.deepEqual(
      [4, 5, 7, 8].map((inode) => one.inodeCatalogs.catalogOf(inode)),
      [0, ONE, ONE, 0],
    );
  for (const moved of [{}, [{}], [null], [{ first: 5, end: 8, catalog: 0 }], [...list.moved, ...list.moved]])
    assert.ok(!isCatalogList({ ...list, moved }));
});

test('the root catalog has a volume until it has moved', (t) => {
  const known = open(temporary(t));
  known.adopt(listOf(3, rowOf({ state: 'creating', moving: 'numbered' })));
  assert.deepEqual([known.byName('projects'), known.byNumber(ONE)?.state], [null, 'creating']);
  known.adopt(listOf(4, rowOf({ state: 'ready' })));
  assert.equal(known.byName('projects')?.number, ONE);
});

test('a removed catalog stays known by its number, and its name is free for another', (t) => {
  const known = open(temporary(t));
  const removed = rowOf({ state: 'removed', since: 7 });
  known.adopt(listOf(7, removed));
  assert.equal(known.byName('projects'), null);
  assert.equal(known.byNumber(ONE)?.state, 'removed');
  const successor = rowOf({ number: 2 as CatalogNumber, state: 'creating', made: 8, since: 8 });
  known.adopt(listOf(8, removed, successor));
  assert.equal(known.byName('projects')?.number, 2);
  assert.equal(known.byName('unknown'), null);
});

test('what has not changed is the same object as before', (t) => {
  const known = open(temporary(t));
  const two = (change: Partial<CatalogRow> = {}) =>
    rowOf({ number: 2 as CatalogNumber, name: 'other', ...change });
  const copied = (list: KnownList): KnownList => JSON.parse(JSON.stringify(list));
  known.adopt(copied(listOf(3, rowOf(), two())));
  const [row, { servers }] = [known.byNumber(ONE), known.list];
  known.adopt(copied(listOf(4, rowOf(), two({ state: 'removing', since: 4 }))));
  assert.equal(known.byNumber(ONE), row);
  assert.deepEqual([known.list.catalogs[0] === row, known.list.servers === servers], [true, true]);
  assert.equal(known.byNumber(2 as CatalogNumber)?.state, 'removing');
  known.adopt({ ...copied(listOf(5, rowOf({ view: 2 }))), servers: [{ ...SERVER, state: 'draining' }] });
  assert.equal(known.byNumber(ONE)?.view, 2);
  assert.equal(known.list.servers[0]?.state, 'draining');
});

test('members are those of the newest view, from the list or from a member', (t) => {
  const known = open(temporary(t));
  let changes = 0;
  known.noteView(ONE, { number: 9, members: [D] });
  assert.equal(known.viewOf(ONE), null, 'A catalog without a row has no members');
  known.adopt(listOf(3, rowOf()));
  known.onChange(() => changes++);
  known.noteView(ONE, { number: 1, members: [D] });
  assert.deepEqual(known.viewOf(ONE), { number: 1, members: [A, B, C] });
  known.noteView(ONE, { number: 3, members: [B, C, D] });
  known.noteView(ONE, { number: 2, members: [A, D] });
  assert.deepEqual(known.viewOf(ONE), { number: 3, members: [B, C, D] });
  assert.equal(changes, 1);
  known.adopt(listOf(4, rowOf({ view: 2, members: [A, B, D] })));
  assert.deepEqual(known.viewOf(ONE)?.members, [B, C, D], 'The list may be of before the move');
  known.adopt(listOf(5, rowOf({ view: 4, members: [A, C, D] })));
  assert.deepEqual(known.viewOf(ONE), { number: 4, members: [A, C, D] });
});

test('the version at registration is kept; a catalog of a list that was read later is newer than the disk', (t) => {
  const folder = temporary(t);
  const known = open(folder);
  // It arrives before this disk is registered, and may be from long before.
  known.adopt(listOf(3, rowOf()));
  assert.equal(known.bornVersion, null);
  known.adopt(listOf(9, rowOf()));
  // A later list that the root announced was faster than the answer: catalogs after version 6 are newer than the disk.
  known.adoptAfterRegistration(listOf(7, rowOf()), 6);
  assert.deepEqual([known.version, known.bornVersion], [9, 6]);
  known.adoptAfterRegistration(listOf(12, rowOf()), 11);
  const restarted = open(folder);
  assert.deepEqual([restarted.version, restarted.bornVersion], [12, 6]);
});

test('a lost, damaged or foreign file begins at version 0, as a new disk does', (t) => {
  const folder = temporary(t);
  const file = path.join(folder, 'catalogs.json');
  const known = open(folder);
  known.adoptAfterRegistration(listOf(6, rowOf({ state: 'removed', since: 6 })), 6);
  assert.equal(known.isRecordLost, false);
  const good = readFileSync(file, 'utf8');
  const damaged = ['', good.slice(0, -8), good.replace('"a"', '"A B"'), '{"storageId":"disk-1"}'];
  const older = good.replace('"bornVersion":6', '"bornVersion":7');
  for (const text of [...damaged, older]) {
    writeFileSync(file, text);
    const again = open(folder);
    // Safe: without `bornVersion` no replica is created. The list that determines it was read after this start, so it
    // still has the removed catalog, and every catalog of which this disk may have had a replica is at or below it.
    assert.deepEqual([again.version, again.bornVersion, again.isRecordLost], [0, null, true]);
    again.adopt(listOf(4, rowOf({ state: 'removing', since: 4 })));
    assert.equal(again.bornVersion, null, 'A list that arrives late lets nothing be created');
    again.adoptAfterRegistration(listOf(7, rowOf({ state: 'removed', since: 6 })), 7);
    assert.deepEqual([again.byName('projects'), again.bornVersion], [null, 7]);
  }
  writeFileSync(file, good);
  assert.equal(open(folder, 'disk-2').version, 0);
  assert.equal(open(folder).version, 6);
});

test('a list that cannot be recorded is not adopted', (t) => {
  const folder = temporary(t);
  const known = open(folder);
  known.adopt(listOf(3, rowOf()));
  known.onChange(() => assert.fail('Nothing has changed'));
  const file = path.join(folder, 'catalogs.json');
  rmSync(file);
  // A directory in the place of the file: also root cannot replace it.
  mkdirSync(path.join(file, 'inside'), { recursive: true });
  assert.throws(() => known.adopt(listOf(4)), { name: 'ServiceError', code: 'storage' });
  assert.throws(() => known.adoptAfterRegistration(listOf(4), 4), { code: 'storage' });
  assert.deepEqual([known.version, known.bornVersion, known.byNumber(ONE)?.name], [3, null, 'projects']);
  assert.deepEqual(readdirSync(folder), ['catalogs.json']);
});

test('a list without a field is none', () => {
  const list = listOf(3, rowOf());
  assert.ok(isCatalogList(list));
  const [row] = list.catalogs;
  const wrong: unknown[] = [
    null,
    { ...list, version: -1 },
    { ...list, servers: [{ ...SERVER, state: 'gone' }] },
    ...[{ number: 0 }, { number: 2 ** 15 }, { state: 'made' }, { members: ['a b'] }, { view: 0.5 }].map(
      (change) => ({
        ...list,
        catalogs: [{ ...row, ...change }],
      }),
    ),
  ];
  for (const value of wrong) assert.ok(!isCatalogList(value), JSON.stringify(value));
});
