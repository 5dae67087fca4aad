import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  CATALOG_CELL,
  CATALOGS_END,
  type CatalogNumber,
  catalogCell,
  catalogOfCell,
  catalogOfInode,
  FILE_NUMBERS_END,
  inodesOf,
  isCatalogCell,
  ROOT_CATALOG,
  ROOT_NUMBERS_END,
} from '../../base/ids.ts';
import { startEpochInodes } from '../../catalog/batch.ts';
import { Tables } from '../../catalog/tables.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { Catalog } from './fixture.ts';

function makeDirectory(catalog: Catalog, name: string): Attributes {
  const place = { parent: catalog.root, name };
  return catalog.run({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 }).attributes;
}

test('the inode numbers of the root catalog end where those of the next catalogs begin', () => {
  const catalog = new Catalog();
  const { numbers } = Tables.of(catalog.db);
  numbers.startFrom(ROOT_NUMBERS_END - 1);
  const { inode } = makeDirectory(catalog, 'last');
  assert.equal(inode, ROOT_NUMBERS_END - 1);
  assert.equal(catalogOfInode(inode), ROOT_CATALOG);
  assert.throws(() => makeDirectory(catalog, 'too-many'), { code: 'no-space' });
});

test('each catalog has inode numbers and a cell of its own', () => {
  const numbers = [1, 2, CATALOGS_END - 1] as CatalogNumber[];
  let before = ROOT_NUMBERS_END - 1;
  for (const catalog of numbers) {
    const { first, end } = inodesOf(catalog);
    assert.ok(first > before);
    assert.deepEqual([first, end - 1].map(catalogOfInode), [catalog, catalog]);
    assert.notEqual(catalogOfInode(end), catalog);
    assert.ok(!isCatalogCell(end - 1));
    assert.equal(catalogOfCell(catalogCell(catalog)), catalog);
    assert.ok(isCatalogCell(catalogCell(catalog)));
    before = end - 1;
  }
  assert.equal(before, FILE_NUMBERS_END - 1);
  assert.equal(catalogCell(ROOT_CATALOG), CATALOG_CELL);
  assert.equal(catalogOfCell(CATALOG_CELL), ROOT_CATALOG);
  assert.deepEqual(inodesOf(ROOT_CATALOG), { first: 1, end: ROOT_NUMBERS_END });
});

test('an epoch whose own numbers would be those of other catalogs continues after the one before', () => {
  const catalog = new Catalog();
  startEpochInodes(catalog.db, 2 ** 19);
  const { inode: first } = makeDirectory(catalog, 'a');
  assert.equal(first, ROOT_NUMBERS_END - 2 ** 32);
  startEpochInodes(catalog.db, 2 ** 19 + 1);
  assert.equal(makeDirectory(catalog, 'b').inode, first + 1);
});
