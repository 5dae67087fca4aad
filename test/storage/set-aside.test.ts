import assert from 'node:assert/strict';
import fs from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { SERVERS_FILE, setAside } from '../../server/storage/set-aside.ts';
import { FOLDER, temporaryFolder } from './stores.ts';

test('a folder that is put aside leaves the addresses of the other servers to the empty folder', (t) => {
  const folder = temporaryFolder();
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const before = DataFolder.open(folder, FOLDER);
  fs.writeFileSync(before.file(SERVERS_FILE), 'addresses');
  before.close();
  const aside = setAside(folder);
  assert.ok(fs.existsSync(join(aside, 'META')));
  assert.equal(fs.readFileSync(join(aside, SERVERS_FILE), 'utf8'), 'addresses');
  const after = DataFolder.open(folder, FOLDER);
  assert.notEqual(after.storageId, before.storageId);
  assert.equal(fs.readFileSync(after.file(SERVERS_FILE), 'utf8'), 'addresses');
  after.close();
});
