import assert from 'node:assert/strict';
import test from 'node:test';
import type { CommandOf } from '../../wire/catalog-api.ts';
import { Catalog, main } from './fixture.ts';

type Replacement = CommandOf<'replace-with-contents'>;

const OWNER = 77;
const MEMBERS = ['s1', 's2', 's3'];

function reserve(catalog: Catalog): number {
  return catalog.run({ kind: 'reserve-inodes', owner: OWNER, count: 10, members: [MEMBERS] }).first;
}

function replacing(path: string, inode: number, others: Partial<Replacement> = {}): Replacement {
  return {
    kind: 'replace-with-contents',
    place: main(path),
    inode,
    ...{ owner: OWNER, replicas: MEMBERS, objectBytes: 131_072, mode: 0o640, uid: 5, gid: 6 },
    ...{ sizeBytes: 100, modifiedNs: '42', contents: { epoch: 1, seq: 1 }, expect: { kind: 'anything' } },
    ...others,
  };
}

function usage(catalog: Catalog): number[] {
  const { volume } = catalog.query({ kind: 'volume', name: 'main' });
  return [volume.inodes, volume.usedBytes, volume.namedInodes, volume.namedBytes];
}

test('one command creates a settled file with contents, under a free name', () => {
  const catalog = new Catalog();
  const inode = reserve(catalog);
  const { attributes, replaced } = catalog.run(replacing('/a', inode));
  assert.equal(replaced, null);
  assert.deepEqual(catalog.at('/a'), attributes);
  const { mode, uid, gid, links, sizeBytes, modifiedNs, live, contents, replicas } = attributes;
  assert.deepEqual([mode, uid, gid, links, sizeBytes, modifiedNs], [0o640, 5, 6, 1, 100, '42']);
  assert.deepEqual(
    [attributes.inode, live, contents, replicas],
    [inode, false, { epoch: 1, seq: 1 }, MEMBERS],
  );
  assert.deepEqual(usage(catalog), [2, 100, 2, 100]);
});

test('it takes over mode, owner and extended attributes of the file with that name, which is removed', () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const old = catalog.run(replacing('/a', first)).attributes;
  catalog.run({ kind: 'set-attributes', inode: old.inode, mode: 0o604, uid: 8, gid: 9 });
  const value = Buffer.from('v').toString('base64');
  catalog.run({ kind: 'set-xattr', inode: old.inode, name: 'user.x', value, mode: 'set' });
  const { attributes, replaced } = catalog.run(replacing('/a', first + 1, { sizeBytes: 7 }));
  const { mode, uid, gid, xattrs, sizeBytes } = attributes;
  assert.deepEqual([replaced, mode, uid, gid, xattrs, sizeBytes], [old.inode, 0o604, 8, 9, 1, 7]);
  assert.equal(catalog.at('/a').inode, first + 1);
  assert.equal(usage(catalog)[3], 7);
});

const REFUSALS: Readonly<Record<string, [code: string, Partial<Replacement>]>> = {
  'where something else is expected': ['precondition-failed', { expect: { kind: 'nothing' } }],
  'of a number of another owner': ['bad-request', { owner: 78 }],
  'of a number that is not reserved': ['bad-request', { inode: 9_999 }],
  'of other members than the reserved ones': ['bad-request', { replicas: ['s1', 's2', 's4'] }],
  'where objects have another size by now': ['bad-request', { objectBytes: 4_096 }],
  'in the place of a directory': ['is-directory', { place: main('/d') }],
  'beyond the quota': ['quota-exceeded', { sizeBytes: 1_001 }],
};

test('a refused command leaves nothing, and its number stays usable', () => {
  for (const [title, [code, others]] of Object.entries(REFUSALS)) {
    const catalog = new Catalog();
    const inode = reserve(catalog);
    catalog.directory('/d');
    catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 1_000 });
    const old = catalog.run(replacing('/a', inode)).attributes;
    const before = usage(catalog);
    catalog.refuse(code as 'exists', replacing('/a', inode + 1, others));
    assert.deepEqual(catalog.at('/a'), old, title);
    assert.deepEqual(usage(catalog), before, title);
    assert.equal(catalog.run(replacing('/a', inode + 1, { sizeBytes: 1_000 })).replaced, inode, title);
  }
});

test('a volume whose files need more than a majority creates no file with contents', () => {
  const catalog = new Catalog();
  const inode = reserve(catalog);
  catalog.run({ kind: 'volume-set', name: 'main', policy: 'all' });
  catalog.refuse('bad-request', replacing('/a', inode));
});
