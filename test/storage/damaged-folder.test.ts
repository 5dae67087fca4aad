import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import Database from 'better-sqlite3';
import { DataFolder, type FolderOptions } from '../../server/storage/data-folder.ts';
import { DiskStore } from '../../server/storage/disk-store.ts';
import { diskFileOps } from '../../server/storage/file-ops.ts';
import { FolderError } from '../../server/storage/folder-error.ts';
import { setAside } from '../../server/storage/set-aside.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { damageColdPage } from './cold-page.ts';
import { FILE_IDS, modelOf, OBJECT_BYTES, openCatalog, type Said, writeUntilKilled } from './crash-writer.ts';
import { DiskFixture, FOLDER, temporaryFolder } from './stores.ts';

const NO_SPACE = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });

const garbage = (file: string, from: number, length: number): void => {
  const fd = fs.openSync(file, 'r+');
  fs.writeSync(fd, Buffer.alloc(length, 'garbage '), 0, length, from);
  fs.closeSync(fd);
};
const halve = (file: string): void => fs.truncateSync(file, Math.floor(fs.statSync(file).size / 2));

const isDamaged = (error: unknown): boolean => {
  assert.ok(error instanceof FolderError, String(error));
  assert.equal(error.code, 'damaged');
  assert.match(error.message, /--rebuild/);
  return true;
};

/** Ways to damage a folder whose process was killed, so that both databases have a log. */
const DAMAGES_KILLED: Readonly<Record<string, (folder: string) => void>> = {
  'the index is gone': (folder) => fs.rmSync(path.join(folder, 'index.db')),
  "the index's log is gone": (folder) => fs.rmSync(path.join(folder, 'index.db-wal')),
  'index and log are gone': (folder) => {
    for (const name of ['index.db', 'index.db-wal']) fs.rmSync(path.join(folder, name));
  },
  'the catalog is gone': (folder) => fs.rmSync(path.join(folder, 'catalog.db')),
  "the catalog's log is gone": (folder) => fs.rmSync(path.join(folder, 'catalog.db-wal')),
};

/** And one that was closed in order: a log would have newer pages than the damaged ones. */
const DAMAGES_CLOSED: Readonly<Record<string, (folder: string) => void>> = {
  'the closed index is gone': (folder) => fs.rmSync(path.join(folder, 'index.db')),
  'the index is garbage': (folder) => garbage(path.join(folder, 'index.db'), 0, 4096),
  'the index is empty': (folder) => fs.truncateSync(path.join(folder, 'index.db')),
  'the index is cut short': (folder) => halve(path.join(folder, 'index.db')),
  'the closed catalog is gone': (folder) => fs.rmSync(path.join(folder, 'catalog.db')),
  'the catalog is garbage': (folder) => garbage(path.join(folder, 'catalog.db'), 0, 4096),
  'the catalog is empty': (folder) => fs.truncateSync(path.join(folder, 'catalog.db')),
  'META is gone': (folder) => fs.rmSync(path.join(folder, 'META')),
  'META is garbage': (folder) => garbage(path.join(folder, 'META'), 0, 100),
};

/**
 * Goal: a folder that lacks something it had is never taken for an empty one, nor for an older one: it is refused, with
 * a remedy. Put aside, it leaves an empty folder with another identity.
 */
describe('a damaged data folder', () => {
  let parent: string;
  let killed: string;
  let closed: string;
  let said: Said;
  let copies = 0;
  const copy = (from = killed): string => {
    const to = path.join(parent, `copy-${++copies}`);
    execFileSync('cp', ['-r', from, to]);
    return to;
  };
  /** Opens all of a folder, reads every file, and closes it. */
  const use = async (
    folderPath: string,
    options: Pick<FolderOptions, 'bootId' | 'rebuild'> = {},
  ): Promise<string> => {
    const folder = DataFolder.open(folderPath, { ...FOLDER, ...options });
    try {
      const store = await DiskStore.open(folder);
      try {
        const catalog = await openCatalog(folder);
        folder.markRecovered();
        for (const id of FILE_IDS) {
          const record = store.record(fileId(id));
          if (record === null) continue;
          const contents = Buffer.from(await store.read(fileId(id), 0, 1_000_000));
          assert.deepEqual(contents, modelOf(id, record.seq));
          assert.ok(record.seq >= (said.applied.get(id) ?? 0));
        }
        await catalog.close();
      } finally {
        await store.close();
      }
      return folder.storageId;
    } finally {
      folder.close();
    }
  };

  before(async () => {
    parent = temporaryFolder();
    killed = path.join(parent, 'killed');
    // Once in order, so that the databases themselves have rows, and not only their logs.
    said = await writeUntilKilled(killed, 600);
    await use(killed);
    said = await writeUntilKilled(killed, 900);
    closed = copy();
    await use(closed);
  });
  after(() => fs.rmSync(parent, { recursive: true, force: true }));

  const damages = { ...DAMAGES_KILLED, ...DAMAGES_CLOSED };
  for (const [name, damage] of Object.entries(damages)) {
    test(`is refused where ${name}, and can be put aside`, async () => {
      const folder = copy(Object.hasOwn(DAMAGES_CLOSED, name) ? closed : killed);
      damage(folder);
      const before = fs.readdirSync(folder).sort();
      await assert.rejects(use(folder), (error: unknown) => {
        assert.ok(error instanceof FolderError, String(error));
        if (name === 'META is gone') assert.equal(error.code, 'foreign');
        else {
          assert.equal(error.code, 'damaged');
          assert.match(error.message, /--rebuild/);
        }
        return true;
      });
      if (name === 'META is gone') return;
      const aside = setAside(folder);
      const kept = fs.readdirSync(aside);
      // Files that SQLite creates and removes at its own discretion.
      const lasting = before.filter((file) => !/^lock\.|-(?:wal|shm|journal)$/.test(file));
      for (const file of lasting) assert.ok(kept.includes(file), file);
      said = { ...said, applied: new Map() };
      const fresh = await use(folder);
      assert.notEqual(fresh, JSON.parse(fs.readFileSync(path.join(killed, 'META'), 'utf8')).storageId);
      // A second damage: nothing that was put aside is touched.
      assert.match(setAside(folder), /damaged-2$/);
      await use(folder);
    });
  }

  test('opens without damage: after a kill, in order, and after a process that ended by itself', async () => {
    const folder = copy();
    await use(folder);
    assert.equal(fs.existsSync(path.join(folder, 'index.db-wal')), false, 'closed, so without a log');
    await use(folder);
    const script = `
      import { systemWorld } from ${JSON.stringify(path.resolve('world/system-world.ts'))};
      import { DataFolder } from ${JSON.stringify(path.resolve('server/storage/data-folder.ts'))};
      import { DiskStore } from ${JSON.stringify(path.resolve('server/storage/disk-store.ts'))};
      import { openCatalog } from ${JSON.stringify(path.resolve('test/storage/crash-writer.ts'))};
      const folder = DataFolder.open(${JSON.stringify(folder)}, { ...${JSON.stringify(FOLDER)}, world: systemWorld });
      await DiskStore.open(folder);
      await openCatalog(folder);
      process.exit(3);`;
    const ended = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
    assert.equal(ended.status, 3, ended.stderr);
    await use(folder);
  });

  test('opens after an attempt that has closed its index again, as on a full disk', async () => {
    const folder = copy();
    const flushDirectory = () => Promise.reject(NO_SPACE);
    const attempt = DataFolder.open(folder, FOLDER);
    try {
      await assert.rejects(
        DiskStore.open(attempt, { fileOps: { ...diskFileOps, flushDirectory } }),
        NO_SPACE,
      );
    } finally {
      attempt.close();
    }
    assert.equal(fs.statSync(path.join(folder, 'index.db-wal')).size, 0, 'SQLite removed the log');
    await use(folder);
  });

  test('opens after an attempt that has closed its catalog again, as on a full disk', async (t) => {
    const folder = copy();
    const { prepare } = Database.prototype;
    const full = t.mock.method(
      Database.prototype,
      'prepare',
      function (this: Database.Database, text: string) {
        if (text.includes('replica_record')) throw NO_SPACE;
        return prepare.call(this, text);
      },
    );
    await assert.rejects(use(folder), /no space left on device/);
    full.mock.restore();
    assert.equal(fs.statSync(path.join(folder, 'catalog.db-wal')).size, 0, 'SQLite removed the log');
    await use(folder);
  });

  test('opens after an attempt that has closed neither of its databases', async () => {
    const folder = copy();
    const attempt = DataFolder.open(folder, FOLDER);
    await DiskStore.open(attempt);
    await openCatalog(attempt);
    attempt.close();
    const listeners = process.listenerCount('exit');
    await use(folder);
    assert.equal(
      process.listenerCount('exit'),
      listeners,
      'At the end of the process nothing is left to close',
    );
  });

  test('is read as a whole after a loss of power', async () => {
    const folder = copy();
    await use(folder);
    const index = path.join(folder, 'index.db');
    const pages = fs.statSync(index).size / 4096;
    garbage(index, Math.floor(pages / 2) * 4096, 4096);
    const meta = path.join(folder, 'META');
    fs.writeFileSync(meta, fs.readFileSync(meta, 'utf8').replace('"clean": true', '"clean": false'));
    await assert.rejects(use(folder, { bootId: 'another boot' }), isDamaged);
  });

  test('is read as a whole, its catalog too, by a start that is to find damage', async () => {
    const folder = copy(closed);
    await use(folder, { rebuild: true });
    damageColdPage(path.join(folder, 'catalog.db'));
    // An ordinary start of a large catalog takes no longer than that of a small one.
    await use(folder);
    await assert.rejects(use(folder, { rebuild: true }), isDamaged);
    setAside(folder);
    said = { ...said, applied: new Map() };
    await use(folder, { rebuild: true });
  });

  test('is read as a whole, its catalog too, after a loss of power, until that has found it intact', async () => {
    const folder = copy();
    await use(folder);
    damageColdPage(path.join(folder, 'catalog.db'));
    const meta = path.join(folder, 'META');
    fs.writeFileSync(meta, fs.readFileSync(meta, 'utf8').replace('"clean": true', '"clean": false'));
    await assert.rejects(use(folder, { bootId: 'another boot' }), isDamaged);
    // As an operator who starts it once more as it was.
    await assert.rejects(use(folder, { bootId: 'another boot' }), isDamaged);
  });
});

test('a start that is to find damage finds a damaged page of the index that nothing reads', async () => {
  const fixture = await DiskFixture.make();
  const file = fileId(1);
  await begin(fixture.store, file, OBJECT_BYTES);
  const write = { kind: 'write', offset: 0, bytes: pattern(OBJECT_BYTES * 500, 1), modifiedNs: 1n } as const;
  await fixture.store.apply(file, epoch(1), 1, write, NO_SESSIONS);
  await fixture.close();
  damageColdPage(path.join(fixture.path, 'index.db'), 'objects');
  await fixture.open();
  await fixture.close();
  const folder = DataFolder.open(fixture.path, { ...FOLDER, rebuild: true });
  await assert.rejects(DiskStore.open(folder), isDamaged);
  folder.close();
  fs.rmSync(fixture.path, { recursive: true });
});
