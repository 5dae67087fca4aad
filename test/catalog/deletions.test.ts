import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COMMANDS_VERSION, DELETIONS_VERSION } from '../../catalog/versions.ts';
import { Catalog, main } from './fixture.ts';
import { Pair } from './pair.ts';

function logOf(catalog: Catalog, server: string, after = 0) {
  return catalog.query({ kind: 'deletions', server, after, countMax: 100 });
}

/** Deletes a file for good. @returns its number */
function deleted(catalog: Catalog, path: string): number {
  const { inode } = catalog.file(path);
  catalog.run({ kind: 'unlink', place: main(path), expect: { kind: 'anything' } });
  const beforeNs = `${catalog.timeNs + 10n}`;
  catalog.run({ kind: 'collect', beforeNs, countMax: 10 });
  return inode;
}

test('a deleted file is logged for the servers that have it', () => {
  const catalog = new Catalog();
  const inode = deleted(catalog, '/a');
  for (const server of ['s1', 's2', 's3'])
    assert.deepEqual(logOf(catalog, server), { rows: [[1, inode]], trimmed: 0, last: 1, written: true });
  assert.deepEqual(logOf(catalog, 's4').rows, []);
});

test('an unlinked file is not logged before it is deleted, and a moved one for the servers that it left', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  catalog.file('/b');
  catalog.run({ kind: 'unlink', place: main('/b'), expect: { kind: 'anything' } });
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members: ['s2', 's3', 's4'] } });
  const files = ['s1', 's2', 's3', 's4'].map((server) => logOf(catalog, server).rows);
  assert.deepEqual(files, [[[1, inode]], [], [], []]);
});

test('a server trims the rows that it has finished with, and no others', () => {
  const catalog = new Catalog();
  deleted(catalog, '/a');
  const second = deleted(catalog, '/b');
  catalog.run({ kind: 'trim-deletions', server: 's1', through: 1 });
  assert.deepEqual(logOf(catalog, 's1'), { rows: [[2, second]], trimmed: 1, last: 2, written: true });
  assert.equal(logOf(catalog, 's2').rows.length, 2);
  catalog.run({ kind: 'trim-deletions', server: 's1', through: 1_000 });
  assert.deepEqual(logOf(catalog, 's1'), { rows: [], trimmed: 2, last: 2, written: true });
  const third = deleted(catalog, '/c');
  assert.deepEqual(logOf(catalog, 's1', 2).rows, [[3, third]], 'Numbers of rows are not used again');
});

test('a log that is not read loses its oldest rows, and says so', () => {
  const catalog = new Catalog();
  deleted(catalog, '/a');
  catalog.db.exec('UPDATE deletion_logs SET rows_max = 2');
  const kept = [deleted(catalog, '/b'), deleted(catalog, '/c')];
  const { rows, trimmed } = logOf(catalog, 's1');
  assert.deepEqual([rows, trimmed], [kept.map((inode, index) => [index + 2, inode]), 1]);
});

test('trimmed rows beyond the bound of a command are deleted by the next collections, and are not shown before', () => {
  const catalog = new Catalog();
  deleted(catalog, '/a');
  catalog.db.exec(`
    WITH RECURSIVE n (seq) AS (SELECT 2 UNION ALL SELECT seq + 1 FROM n WHERE seq < 2500)
    INSERT INTO deletions SELECT 's1', seq, seq FROM n;
    UPDATE deletion_logs SET last_seq = 2500 WHERE server = 's1'`);
  const left = () => catalog.db.prepare("SELECT COUNT(*) FROM deletions WHERE server = 's1'").pluck().get();
  catalog.run({ kind: 'trim-deletions', server: 's1', through: 2_500 });
  assert.deepEqual([left(), logOf(catalog, 's1').rows], [1_500, []]);
  const counts = [1, 2].map(() => {
    catalog.run({ kind: 'collect', beforeNs: '0', countMax: 1 });
    return left();
  });
  assert.deepEqual(counts, [500, 0]);
});

test('there is garbage while there are unlinked files, reserved numbers or trimmed rows', () => {
  const catalog = new Catalog();
  const hasGarbage = () => catalog.query({ kind: 'sweeps' }).garbage;
  catalog.file('/a');
  assert.equal(hasGarbage(), false);
  catalog.run({ kind: 'unlink', place: main('/a'), expect: { kind: 'anything' } });
  catalog.run({ kind: 'collect', beforeNs: '0', countMax: 1 });
  assert.equal(hasGarbage(), true, 'It is still in its grace');
  catalog.run({ kind: 'collect', beforeNs: `${catalog.timeNs + 10n}`, countMax: 1 });
  assert.equal(hasGarbage(), false);
  catalog.run({ kind: 'reserve-inodes', owner: 1, count: 3, members: [['s1']] });
  assert.equal(hasGarbage(), true);
  catalog.timeNs += 3_600_000_000_000n;
  catalog.run({ kind: 'collect', beforeNs: '0', countMax: 1 });
  assert.equal(hasGarbage(), false);
  catalog.db.exec("UPDATE deletion_logs SET trimmed_seq = 1 WHERE server = 's1'");
  assert.equal(hasGarbage(), true);
  catalog.run({ kind: 'collect', beforeNs: '0', countMax: 1 });
  assert.equal(hasGarbage(), false);
});

test('the log of a removed server keeps no rows, and shows a gap when the server is added again', () => {
  const catalog = new Catalog();
  for (const id of ['s1', 's2', 's3', 's4']) catalog.run({ kind: 'server-add', id, url: `http://${id}` });
  deleted(catalog, '/a');
  const { inode } = catalog.file('/b');
  catalog.run({ kind: 'server-remove', id: 's1', dead: true });
  assert.deepEqual(logOf(catalog, 's1').rows, []);
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members: ['s2', 's3', 's4'] } });
  catalog.run({ kind: 'server-add', id: 's1', url: 'http://s1' });
  const { rows, trimmed } = logOf(catalog, 's1', 1);
  assert.deepEqual([rows, trimmed], [[], 2]);
  const { inode: later } = catalog.file('/c');
  catalog.run({ kind: 'follow-view', inode: later, view: { number: 2, members: ['s2', 's3', 's4'] } });
  assert.deepEqual(logOf(catalog, 's1', 2).rows, [[3, later]]);
});

test('a server that was removed before its first row gets none', () => {
  const catalog = new Catalog();
  for (const id of ['s1', 's2', 's3']) catalog.run({ kind: 'server-add', id, url: `http://${id}` });
  const { inode } = catalog.file('/a');
  catalog.run({ kind: 'server-remove', id: 's1', dead: true });
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members: ['s2', 's3', 's4'] } });
  assert.deepEqual(logOf(catalog, 's1'), { rows: [], trimmed: 1, last: 1, written: true });
});

test('nothing is logged before all members of the catalog know the log, and it says so', () => {
  const pair = new Pair(DELETIONS_VERSION - 1);
  const place = main('/a');
  const create = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  const unlink = { kind: 'unlink', place, expect: { kind: 'anything' } } as const;
  const collect = () => ({ kind: 'collect', beforeNs: `${pair.nowNs + 10n}`, countMax: 9 }) as const;
  const rows = () => pair.primary.prepare('SELECT COUNT(*) FROM deletions').pluck().get();
  for (const command of [create, unlink, collect()]) pair.run(command);
  assert.equal(rows(), 0);
  pair.membersVersion = COMMANDS_VERSION;
  for (const command of [create, unlink, collect()]) pair.run(command);
  assert.equal(rows(), 3);
  pair.equal();
});
