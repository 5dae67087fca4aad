import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CatalogNumber, inodesOf, ROOT_CATALOG, ROOT_NUMBERS_END } from '../../base/ids.ts';
import { areMovedNumbers, InodeCatalogs, type MovedNumbers } from '../../base/inode-catalogs.ts';

const [ONE, TWO] = [1, 2] as [CatalogNumber, CatalogNumber];
const OWN = inodesOf(ONE);
const MOVED: MovedNumbers[] = [
  { first: 3, end: 5, catalog: ONE },
  { first: 5, end: 6, catalog: TWO },
  { first: 8, end: 9, catalog: ONE },
];

test('an inode is in the catalog that gave out its number, unless the number moved', () => {
  const inodes = new InodeCatalogs(MOVED);
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, ROOT_NUMBERS_END - 1].map((inode) => inodes.catalogOf(inode)),
    [0, 0, ONE, ONE, TWO, 0, 0, ONE, 0, 0],
  );
  assert.deepEqual(
    [OWN.first, OWN.end - 1, OWN.end].map((inode) => inodes.catalogOf(inode)),
    [ONE, ONE, TWO],
  );
  assert.equal(InodeCatalogs.NONE_MOVED.catalogOf(3), ROOT_CATALOG);
});

test('the numbers of a catalog follow each other over the gaps', () => {
  const inodes = new InodeCatalogs(MOVED);
  const next = (catalog: CatalogNumber, ...from: number[]) => from.map((one) => inodes.nextOf(catalog, one));
  assert.deepEqual(next(ROOT_CATALOG, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9), [1, 1, 2, 6, 6, 6, 6, 7, 9, 9]);
  assert.deepEqual(next(ROOT_CATALOG, ROOT_NUMBERS_END - 1, ROOT_NUMBERS_END), [ROOT_NUMBERS_END - 1, null]);
  assert.deepEqual(next(ONE, 1, 4, 5, 8, 9, OWN.first + 7), [3, 4, 8, 8, OWN.first, OWN.first + 7]);
  assert.deepEqual(next(TWO, 1, 6, inodesOf(TWO).end), [5, inodesOf(TWO).first, null]);
});

test('ranges of moved numbers ascend among the numbers of the root catalog', () => {
  assert.ok(areMovedNumbers([]));
  assert.ok(areMovedNumbers(MOVED));
  const wrong: [first: number, end: number][][] = [
    [[0, 2]],
    [[3, 3]],
    [[ROOT_NUMBERS_END - 1, ROOT_NUMBERS_END + 1]],
    [
      [5, 8],
      [7, 9],
    ],
    [
      [5, 8],
      [1, 2],
    ],
  ];
  for (const ranges of wrong)
    assert.ok(!areMovedNumbers(ranges.map(([first, end]) => ({ first, end, catalog: ONE }))));
});
