import assert from 'node:assert/strict';
import fs from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { BALLAST } from '../../server/storage/ballast.ts';
import { FolderError } from '../../server/storage/folder-error.ts';
import { until } from '../cluster/real-cluster.ts';
import { OneServer } from './one-server.ts';

const RESERVED_MS_MAX = 60_000;
const NO_SPACE = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });

/**
 * Goal: a server whose disk is full at its start uses the space that it has reserved, and only then; without any it
 * ends with an error that a later start may not have. The disk counts as full until the ballast is removed;
 * `test/repair/failed-disk.test.ts` fills a real one.
 */
test('a start on a full disk uses the reserved space, and without any is left to a later start', async (t) => {
  const first = await OneServer.start();
  const { folder } = first;
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const ballast = join(folder, BALLAST);
  await until('space is reserved', async () => fs.existsSync(ballast), RESERVED_MS_MAX);
  await first.end();

  let [isFull, isReserved] = [true, true];
  const { writeFileSync } = fs;
  t.mock.method(fs, 'writeFileSync', (...given: Parameters<typeof writeFileSync>) => {
    isFull &&= fs.existsSync(ballast) || !isReserved;
    if (isFull) throw NO_SPACE;
    writeFileSync(...given);
  });
  const second = await OneServer.start([], folder);
  await until('space is reserved again', async () => fs.existsSync(ballast), RESERVED_MS_MAX);
  await second.end();

  // Found as late as a start can: by the second of its databases.
  let isFullForCatalog = true;
  const { prepare } = Database.prototype;
  t.mock.method(Database.prototype, 'prepare', function (this: Database.Database, text: string) {
    isFullForCatalog &&= fs.existsSync(ballast);
    if (isFullForCatalog && text.includes('replica_record')) throw NO_SPACE;
    return prepare.call(this, text);
  });
  const third = await OneServer.start([], folder);
  await until('space is reserved once more', async () => fs.existsSync(ballast), RESERVED_MS_MAX);
  await third.end();

  // Damaged besides: the space is used, the folder put aside.
  isFull = true;
  writeFileSync(join(folder, 'index.db'), 'x'.repeat(8_192));
  const fourth = await OneServer.start(['--rebuild'], folder);
  assert.ok(fs.existsSync(join(folder, 'damaged-1')));
  await until('space is reserved in the new folder', async () => fs.existsSync(ballast), RESERVED_MS_MAX);
  await fourth.end();

  fs.rmSync(ballast);
  [isFull, isReserved] = [true, false];
  await assert.rejects(OneServer.start([], folder), (error: unknown) => {
    assert.ok(error instanceof FolderError);
    assert.match(error.message, /its disk is full .*Free some space/);
    assert.deepEqual([error.code, error.isTemporary], ['no-space', true]);
    return true;
  });
});

test('a start whose index is found damaged after it was opened starts again with --rebuild', async (t) => {
  const first = await OneServer.start();
  const { folder } = first;
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  await first.end();
  let isDamaged = true;
  const { prepare } = Database.prototype;
  t.mock.method(Database.prototype, 'prepare', function (this: Database.Database, text: string) {
    const statement = prepare.call(this, text);
    if (!text.includes("json_extract(view, '$.number') >") || !isDamaged) return statement;
    isDamaged = false;
    return Object.assign(statement, {
      all: () => {
        throw Object.assign(new Error('database disk image is malformed'), { code: 'SQLITE_CORRUPT' });
      },
    });
  });
  const second = await OneServer.start(['--rebuild'], folder);
  assert.ok(fs.existsSync(join(folder, 'damaged-1')));
  await second.end();
});
