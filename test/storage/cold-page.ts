import assert from 'node:assert/strict';
import fs from 'node:fs';
import Database from 'better-sqlite3';

const PAGE_BYTES = 4096;

/**
 * Overwrites a page of a closed database that nothing reads when it is opened.
 *
 * @param table whose last leaf it is: by default one of the catalog's
 */
export function damageColdPage(file: string, table: 'inodes' | 'objects' = 'inodes'): void {
  const database = new Database(file, { readonly: true });
  const leaf = "SELECT MAX(pageno) FROM dbstat WHERE name = ? AND pagetype = 'leaf'";
  const number = database.prepare(leaf).pluck().get(table) as number;
  database.close();
  assert.ok(number > 2, 'The table has more pages than its root');
  const fd = fs.openSync(file, 'r+');
  fs.writeSync(fd, Buffer.alloc(PAGE_BYTES, 'garbage '), 0, PAGE_BYTES, (number - 1) * PAGE_BYTES);
  fs.closeSync(fd);
}
