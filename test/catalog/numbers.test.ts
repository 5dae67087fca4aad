import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FILE_NUMBERS_END, isCatalogCell } from '../../base/ids.ts';
import { startEpochInodes } from '../../catalog/batch.ts';
import { Tables } from '../../catalog/tables.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { Catalog } from './fixture.ts';

function makeDirectory(catalog: Catalog, name: string): Attributes {
  const place = { parent: catalog.root, name };
  return catalog.run({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 }).attributes;
}

test('inode numbers end where those of catalogs begin', () => {
  const catalog = new Catalog();
  const { numbers } = Tables.of(catalog.db);
  numbers.startFrom(FILE_NUMBERS_END - 1);
  const { inode } = makeDirectory(catalog, 'last');
  assert.equal(inode, FILE_NUMBERS_END - 1);
  assert.ok(!isCatalogCell(inode));
  assert.ok(isCatalogCell(inode + 1));
  assert.throws(() => makeDirectory(catalog, 'too-many'), { code: 'no-space' });
});

test('an epoch whose own numbers would be those of catalogs continues after the one before', () => {
  const catalog = new Catalog();
  startEpochInodes(catalog.db, 2 ** 20);
  const { inode: first } = makeDirectory(catalog, 'a');
  assert.equal(first, FILE_NUMBERS_END - 2 ** 32);
  startEpochInodes(catalog.db, 2 ** 20 + 1);
  assert.equal(makeDirectory(catalog, 'b').inode, first + 1);
});
