import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Catalog, main, SERVERS } from './fixture.ts';

function needing(catalog: Catalog, server: string, ...without: string[]) {
  return catalog.query({ kind: 'files-needing', server, without });
}

function fileOn(catalog: Catalog, path: string, members: string[]): number {
  const { inode } = catalog.file(path);
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members } });
  return inode;
}

test('files that have a majority only with a server are counted, and some are named', () => {
  const catalog = new Catalog();
  fileOn(catalog, '/three', ['s1', 's2', 's3']);
  fileOn(catalog, '/five', SERVERS);
  const one = fileOn(catalog, '/one', ['s1']);
  const two = fileOn(catalog, '/two', ['s2', 's1']);
  const few = { files: 2, examples: [one, two], planned: 0 };
  assert.deepEqual(needing(catalog, 's1'), few, 'One or two replicas have no majority without one of them');
  assert.deepEqual(needing(catalog, 's3'), { files: 0, examples: [], planned: 0 });
  assert.equal(needing(catalog, 's3', 's2').files, 1, 'Of three, two are missing then');
  assert.equal(
    needing(catalog, 's3', 's1', 's2').files,
    1,
    'Of five three; and the file on three has no majority now',
  );
  assert.equal(needing(catalog, 's4', 's1').files, 0);
  assert.equal(needing(catalog, 's1', 's4', 's5').files, 3);
});

test('counts of files by their servers follow moves and removals, and name servers exactly', () => {
  const catalog = new Catalog();
  const inode = fileOn(catalog, '/a', ['s1']);
  assert.equal(needing(catalog, 's1').files, 1);
  catalog.run({ kind: 'follow-view', inode, view: { number: 3, members: ['s11', 's2', 's3'] } });
  assert.equal(needing(catalog, 's11', 's2').files, 1);
  assert.equal(needing(catalog, 's1', 's2', 's3').files, 0);
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 10 });
  assert.equal(needing(catalog, 's11', 's2').files, 0);
});

test('files that are being moved to a server are counted', () => {
  const catalog = new Catalog();
  const inode = fileOn(catalog, '/a', ['s1', 's2', 's3']);
  catalog.run({ kind: 'plan-members', inode, view: 2, mark: { epoch: 1, turn: 1 }, members: ['s4'] });
  assert.deepEqual(needing(catalog, 's4'), { files: 0, examples: [], planned: 1 });
});

test('a removed server is missing, although files are still on it', () => {
  const catalog = new Catalog();
  const inode = fileOn(catalog, '/a', ['s1', 's2', 's3']);
  const space = { freeBytes: 1, totalBytes: 2 };
  catalog.run({ kind: 'server-register', id: 's3', url: 'http://s3:1', storageId: 's3', ...space });
  assert.equal(needing(catalog, 's1').files, 0);
  catalog.run({ kind: 'server-remove', id: 's3', dead: true });
  assert.deepEqual(needing(catalog, 's1'), { files: 1, examples: [inode], planned: 0 });
});

test('files that move to a missing server need each of their servers', () => {
  const catalog = new Catalog();
  const inode = fileOn(catalog, '/a', ['s1', 's2', 's3']);
  const two = fileOn(catalog, '/two', ['s1', 's2']);
  fileOn(catalog, '/other', ['s1', 's2', 's3']);
  for (const file of [inode, two])
    catalog.run({
      kind: 'plan-members',
      inode: file,
      view: 2,
      mark: { epoch: 1, turn: 1 },
      members: ['s4', 's5'],
    });
  assert.deepEqual(needing(catalog, 's3'), { files: 0, examples: [], planned: 0 });
  assert.deepEqual(needing(catalog, 's3', 's4', 's5'), { files: 1, examples: [inode], planned: 0 });
  assert.deepEqual(
    needing(catalog, 's1', 's4'),
    { files: 2, examples: [two, inode], planned: 0 },
    'The file on two servers counts once',
  );
  assert.equal(needing(catalog, 's5', 's4').files, 0);
  catalog.run({ kind: 'follow-view', inode, view: { number: 3, members: ['s1', 's2', 's4'] } });
  assert.equal(needing(catalog, 's3', 's4').files, 0, 'It has moved');
});
