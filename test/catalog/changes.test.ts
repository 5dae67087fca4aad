import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changesBelow } from '../../catalog/changes.ts';
import { Tables } from '../../catalog/tables.ts';
import { Catalog, main } from './fixture.ts';

/** Changes since the last query, as a watcher of a directory receives them. */
function told(catalog: Catalog, directory: number, recursive: boolean, changes = taken(catalog)): string[] {
  return changesBelow(catalog.db, directory, recursive, changes).map(
    ({ change, path, kind }) => `${change} ${path} ${kind ?? '-'}`,
  );
}

function taken(catalog: Catalog): ReturnType<Tables['takeChanges']> {
  return Tables.of(catalog.db).takeChanges();
}

test('changes of names are reported by their paths from the watched directory', () => {
  const catalog = new Catalog();
  const top = catalog.directory('/top').inode;
  const below = catalog.directory('/top/below').inode;
  catalog.directory('/other');
  taken(catalog);
  const { inode } = catalog.file('/top/below/f');
  catalog.file('/other/f');
  catalog.run({ kind: 'rename', from: main('/top/below/f'), to: main('/top/g'), mode: 'replace' });
  catalog.run({
    kind: 'replace',
    place: main('/top/g'),
    inode: catalog.orphan().inode,
    expect: { kind: 'anything' },
  });
  catalog.run({ kind: 'symlink', place: main('/top/below/l'), target: 'x', uid: 0, gid: 0 });
  const changes = taken(catalog);
  assert.deepEqual(told(catalog, top, true, changes), [
    'created below/f file',
    'removed below/f file',
    'created g file',
    'replaced g file',
    'created below/l symlink',
  ]);
  assert.deepEqual(told(catalog, top, false, changes), ['created g file', 'replaced g file']);
  assert.deepEqual(told(catalog, below, true, changes).length, 3);
  assert.equal(catalog.inode(inode).links, 0);
  catalog.run({ kind: 'collect', beforeNs: '9000000000000000000', countMax: 10 });
  assert.deepEqual(told(catalog, below, false, changes)[0], 'created f -', 'A removed inode has no kind');
});

test("contents written in place are reported with the file's directory; refused and undone changes are not", () => {
  const catalog = new Catalog();
  const top = catalog.directory('/top').inode;
  const { inode } = catalog.file('/top/f');
  taken(catalog);
  const settle = (seq: number) =>
    catalog.run({
      kind: 'settle',
      files: [{ inode, sizeBytes: 1, modifiedNs: '9', contents: { epoch: 1, seq } }],
    });
  settle(1);
  settle(1);
  assert.deepEqual(told(catalog, top, false), ['modified f file'], 'Once for each version');
  catalog.refuse('not-empty', { kind: 'remove-directory', place: main('/top') });
  catalog.refuse('exists', { kind: 'symlink', place: main('/top/f'), target: 'x', uid: 0, gid: 0 });
  assert.deepEqual(taken(catalog), []);
});

test('a removed directory cannot be watched', () => {
  const catalog = new Catalog();
  const { inode } = catalog.directory('/gone');
  catalog.run({ kind: 'remove-directory', place: main('/gone') });
  assert.throws(() => changesBelow(catalog.db, inode, true, []), { code: 'not-found' });
});
