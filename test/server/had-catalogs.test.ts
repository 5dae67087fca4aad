/** Goal: a disk that may have had replicas of volumes' catalogs, and lost its list, is not taken for a new one. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type CatalogNumber, catalogCell } from '../../base/ids.ts';
import { CATALOGS, mayHaveHadCatalogs } from '../../server/catalog/catalog-disk.ts';
import type { DataFolder } from '../../server/storage/data-folder.ts';

test('the list, the bounds of files and the folders of replicas each say so', (t) => {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-had-'));
  t.after(() => rmSync(path, { recursive: true }));
  const had = (hasHadCatalogs: boolean, isRecordLost: boolean) =>
    mayHaveHadCatalogs(
      { hasHadCatalogs, file: (name: string) => join(path, name) } as unknown as DataFolder,
      { isRecordLost },
    );
  assert.equal(had(false, false), false);
  assert.equal(had(true, false), true);
  assert.equal(had(false, true), true);
  mkdirSync(join(path, CATALOGS, String(catalogCell(3 as CatalogNumber))), { recursive: true });
  assert.equal(had(false, false), true);
});
