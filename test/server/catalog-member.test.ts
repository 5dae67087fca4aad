/** Goal: a server can have replicas of several catalogs. Method: their real databases, in one data folder. */
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { CATALOG_CELL, type CellId, FILE_NUMBERS_END, type ServerId } from '../../base/ids.ts';
import { type CatalogDisk, openCatalogAtStart } from '../../server/catalog/catalog-disk.ts';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { damageByThread } from '../../server/storage/database-checker.ts';
import { diskFileOps } from '../../server/storage/file-ops.ts';
import { FOLDER, temporaryFolder } from '../storage/stores.ts';

const SELF = 'a' as ServerId;
const VOLUME_CELL = (FILE_NUMBERS_END + 7) as CellId;

function diskOf(folder: DataFolder, cell: CellId, members: readonly ServerId[]): CatalogDisk {
  return {
    ...{ cell, self: SELF, folder, world: folder.world, fileOps: diskFileOps },
    knownView: () => ({ number: 1, members }),
    viewOfNew: () => ({ number: 1, members }),
    trustOfNew: () => 'lost',
    diskFailed: (reason) => assert.fail(reason),
    logBytesMax: 1 << 28,
    checkDatabase: damageByThread,
  };
}

test('two catalogs of a server have a database each, which a restart finds', async (t) => {
  const parent = temporaryFolder();
  let folder = DataFolder.open(parent, FOLDER);
  t.after(() => {
    folder.close();
    rmSync(parent, { recursive: true });
  });
  const root = await openCatalogAtStart(diskOf(folder, CATALOG_CELL, [SELF]));
  const other = await openCatalogAtStart(diskOf(folder, VOLUME_CELL, [SELF]));
  assert.ok(root !== null && other !== null);
  await root.promise({ counter: 3, server: SELF, incarnation: 1 as never });
  assert.equal(root.record().promised.counter, 3);
  assert.equal(other.record().promised.counter, 0);
  assert.ok(existsSync(path.join(parent, 'catalog.db')));
  assert.ok(existsSync(path.join(parent, 'catalogs', String(VOLUME_CELL), 'catalog.db')));
  await root.close();
  await other.close();
  folder.close();

  // It is no member of either by what it knows: it opens what it has.
  folder = DataFolder.open(parent, FOLDER);
  const found = await openCatalogAtStart(diskOf(folder, VOLUME_CELL, ['b' as ServerId]));
  const view = found?.record().view;
  await found?.close();
  const unknown = (VOLUME_CELL + 1) as CellId;
  assert.equal(await openCatalogAtStart(diskOf(folder, unknown, ['b' as ServerId])), null);
  assert.deepEqual(view?.members, [SELF]);
});
