/**
 * Goal: at the exit of a process each database that is in use is closed, and none that is closed already.
 * Method: calls the listener of the process's exit, with databases that fail as the test says.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { DatabaseMark, type DatabaseState, DatabasesInUse } from '../../server/storage/database-mark.ts';
import { DiskStore } from '../../server/storage/disk-store.ts';
import { openCatalog } from './crash-writer.ts';
import { FOLDER, temporaryFolder } from './stores.ts';

const NO_SPACE = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });

const listeners = (): number => process.listenerCount('exit');
const exit = (): void => (process.listeners('exit').at(-1) as () => void)();

/** A database whose log SQLite removes when it closes. */
class FakeDatabase {
  readonly mark: DatabaseMark;
  readonly log: string;
  state: DatabaseState | null = null;
  closes = 0;

  constructor(file: string, inUse: DatabasesInUse, copyBack = (): void => undefined) {
    this.log = `${file}-wal`;
    fs.writeFileSync(this.log, 'rows');
    this.mark = new DatabaseMark(
      file,
      () => this.state,
      (state) => {
        this.state = state;
      },
      inUse,
    );
    const close = (): void => {
      this.closes++;
      fs.rmSync(this.log);
    };
    this.mark.setOpen({ copyBack, close });
  }
}

test('one listener closes all databases of a folder that are in use', async (t) => {
  const root = temporaryFolder();
  t.after(() => fs.rmSync(root, { recursive: true }));
  const before = listeners();
  const folder = DataFolder.open(root, FOLDER);
  const store = await DiskStore.open(folder);
  const catalog = await openCatalog(folder);
  assert.equal(listeners(), before + 1);
  await catalog.close();
  assert.equal(listeners(), before + 1);
  await store.close();
  assert.equal(listeners(), before);
  folder.close();
});

test('a database that could not be closed in order is left alone at exit, and opens again', async (t) => {
  const root = temporaryFolder();
  t.after(() => fs.rmSync(root, { recursive: true }));
  const before = listeners();
  const folder = DataFolder.open(root, FOLDER);
  const store = await DiskStore.open(folder);
  const { pragma } = Database.prototype;
  const full = t.mock.method(
    Database.prototype,
    'pragma',
    function (this: Database.Database, text: string, options?: Database.PragmaOptions) {
      if (text === 'wal_checkpoint(TRUNCATE)') throw NO_SPACE;
      return pragma.call(this, text, options);
    },
  );
  await assert.rejects(store.close(), NO_SPACE);
  full.mock.restore();
  assert.equal(listeners(), before);
  folder.close();
  const next = DataFolder.open(root, FOLDER);
  await (await DiskStore.open(next)).close();
  next.close();
});

test('at exit a database is closed also if another one fails, which opens again', (t) => {
  const folder = temporaryFolder();
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const before = listeners();
  const inUse = new DatabasesInUse();
  const failing = new FakeDatabase(path.join(folder, 'a.db'), inUse, () => {
    throw NO_SPACE;
  });
  const working = new FakeDatabase(path.join(folder, 'b.db'), inUse);
  assert.throws(exit, NO_SPACE);
  assert.deepEqual([failing.closes, working.closes], [1, 1]);
  assert.deepEqual([failing.state, working.state], ['open', 'closed']);
  assert.equal(fs.statSync(failing.log).size, 0, 'an empty log replaces the one that SQLite removed');
  assert.equal(fs.existsSync(working.log), false);
  assert.equal(listeners(), before);
});

test('at exit the index is synced before SQLite removes its log, also if the log cannot be copied back', async (t) => {
  const root = temporaryFolder();
  t.after(() => fs.rmSync(root, { recursive: true }));
  const folder = DataFolder.open(root, FOLDER);
  await DiskStore.open(folder);
  const { ino } = fs.statSync(folder.file('index.db'));
  const events: string[] = [];
  const { pragma, close } = Database.prototype;
  const { fdatasyncSync } = fs;
  t.mock.method(
    Database.prototype,
    'pragma',
    function (this: Database.Database, text: string, options?: Database.PragmaOptions) {
      if (text === 'wal_checkpoint(PASSIVE)') throw NO_SPACE;
      return pragma.call(this, text, options);
    },
  );
  t.mock.method(Database.prototype, 'close', function (this: Database.Database) {
    events.push('close');
    return close.call(this);
  });
  t.mock.method(fs, 'fdatasyncSync', (fd: number) => {
    if (fs.fstatSync(fd).ino === ino) events.push('sync');
    fdatasyncSync(fd);
  });
  assert.throws(exit, NO_SPACE);
  assert.deepEqual(events, ['sync', 'close']);
  t.mock.restoreAll();
  folder.close();
});
