import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandVersion } from '../../catalog/versions.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { Catalog, main } from './fixture.ts';

/** Goal: attributes come with a name, in one command, and a directory may be removed by what it has. */
const NAME = 'user.kept';
const OWNER = { mode: 0o755, uid: 0, gid: 0 } as const;

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

function textOf(catalog: Catalog, inode: number, name = NAME): string {
  return Buffer.from(catalog.query({ kind: 'xattr', inode, name }).value, 'base64').toString();
}

function replaced(catalog: Catalog, xattrs?: Extract<Command, { kind: 'replace' }>['xattrs']): number {
  const { inode } = catalog.orphan();
  const command = { kind: 'replace', inode, place: main('/f'), expect: { kind: 'anything' } } as const;
  return catalog.run({ ...command, ...(xattrs && { xattrs }) }).attributes.inode;
}

test('a file that replaces another keeps its attributes, but for those that the command sets or drops', () => {
  const catalog = new Catalog();
  const first = replaced(catalog, [
    { name: NAME, value: base64('first') },
    { name: 'user.other', value: base64('other') },
  ]);
  assert.deepEqual(catalog.query({ kind: 'xattrs', inode: first }).names, [NAME, 'user.other']);
  const second = replaced(catalog);
  assert.equal(textOf(catalog, second), 'first');
  const third = replaced(catalog, [
    { name: NAME, value: base64('third') },
    { name: 'user.other', value: null },
  ]);
  assert.equal(textOf(catalog, third), 'third');
  assert.deepEqual(catalog.query({ kind: 'xattrs', inode: third }).names, [NAME]);
});

test('a listing has the requested attribute of each entry', () => {
  const catalog = new Catalog();
  replaced(catalog, [{ name: NAME, value: base64('value') }]);
  catalog.file('/g');
  const { inode } = catalog.at('/');
  const list = { kind: 'list', inode, after: '', countMax: 10 } as const;
  assert.deepEqual(
    catalog.query({ ...list, xattr: NAME }).entries.map(({ name, xattr }) => [name, xattr]),
    [
      ['f', base64('value')],
      ['g', undefined],
    ],
  );
  assert.ok(catalog.query(list).entries.every((entry) => !('xattr' in entry)));
});

test('access control lists and too many attributes do not come with a name', () => {
  const catalog = new Catalog();
  const make = { kind: 'make-directory', place: main('/d'), ...OWNER } as const;
  const acl = { name: 'system.posix_acl_access', value: base64('x') };
  catalog.refuse('bad-request', { ...make, xattrs: [acl] });
  const { inode } = catalog.run(make).attributes;
  assert.equal(catalog.inode(inode).xattrs, 0);
});

test('a directory is removed only while it has the expected attribute', () => {
  const catalog = new Catalog();
  const xattr = { name: NAME, value: base64('implicit') };
  const make = { kind: 'make-directory', place: main('/d'), ...OWNER } as const;
  const { inode, xattrs } = catalog.run({ ...make, xattrs: [xattr] }).attributes;
  assert.equal(xattrs, 1);
  const remove = { kind: 'remove-directory', place: main('/d'), xattr } as const;
  assert.deepEqual(
    [commandVersion(remove), commandVersion({ kind: 'remove-directory', place: main('/d') })],
    [14, 1],
  );
  catalog.run({ kind: 'set-xattr', inode, name: NAME, value: base64('put'), mode: 'set' });
  catalog.refuse('precondition-failed', remove);
  catalog.run({ kind: 'remove-xattr', inode, name: NAME });
  catalog.refuse('precondition-failed', remove);
  catalog.run({ kind: 'set-xattr', inode, ...xattr, mode: 'set' });
  catalog.run(remove);
  assert.deepEqual(catalog.names('/'), []);
});
