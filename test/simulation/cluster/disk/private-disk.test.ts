import '../guard.ts';
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { Prng } from '../../../../base/prng.ts';
import { currentProcess } from '../guard.ts';
import { inSimulation } from '../in-simulation.ts';
import type { VirtualTime } from '../virtual-time.ts';
import { mountDisk } from './guarded-files.ts';
import { PrivateDisk } from './private-disk.ts';

/** A machine whose processes are functions. */
class Machine {
  readonly disk: PrivateDisk;
  readonly #time: VirtualTime;

  constructor(time: VirtualTime, root: string, seed: number) {
    this.#time = time;
    this.disk = new PrivateDisk(`${root}/s1`, new Prng(seed));
  }

  /** Runs a process to the end of `life`; then it is killed, or the machine loses its power. */
  async run<Value>(
    ends: 'kill' | 'power',
    life: (at: (name: string) => string) => Value | Promise<Value>,
  ): Promise<Value> {
    const process = this.#time.process('p');
    mountDisk(process, this.disk);
    let outcome: Promise<Value> | null = null;
    let isOver = false;
    this.#time.after(0, process, () => {
      outcome = (async () => life((name) => path.join(this.disk.folder, name)))();
      outcome
        .catch(() => undefined)
        .finally(() => {
          isOver = true;
        });
    });
    await this.#time.run(this.#time.nowMs + 10_000, () => isOver);
    process.end();
    this.disk.next(ends === 'power');
    return outcome as unknown as Promise<Value>;
  }

  has(name: string): boolean {
    return fs.existsSync(path.join(this.disk.folder, name));
  }

  text(name: string): string {
    return fs.readFileSync(path.join(this.disk.folder, name), 'latin1');
  }
}

/** Runs the same processes with many seeds. @returns the different results, sorted */
async function outcomes(play: (machine: Machine) => Promise<string>, draws = 40): Promise<string[]> {
  const seen = new Set<string>();
  for (let seed = 1; seed <= draws; seed++)
    seen.add(await inSimulation(seed, (time, root) => play(new Machine(time, root, seed))));
  return [...seen].sort();
}

/** Runs one process to a loss of power. @param shown returns what is there afterwards */
function outcomesOfLoss(
  life: (at: (name: string) => string) => void,
  shown: (machine: Machine) => string = (machine) => machine.text('a'),
): Promise<string[]> {
  return outcomes(async (machine) => {
    await machine.run('power', life);
    return shown(machine);
  });
}

function syncDirectory(directory: string): void {
  const fd = fs.openSync(directory, 'r');
  fs.fsyncSync(fd);
  fs.closeSync(fd);
}

/** Writes a file, and syncs it and its name. */
function writeSynced(file: string, text: string): void {
  fs.writeFileSync(file, text, { flush: true });
  syncDirectory(path.dirname(file));
}

function opened(file: string, use: (fd: number) => void): void {
  const fd = fs.openSync(file, 'r+');
  use(fd);
  fs.closeSync(fd);
}

const overwrite = (file: string, text: string): void =>
  opened(file, (fd) => fs.writeSync(fd, Buffer.from(text), 0, text.length, 0));

const textOrNone = (machine: Machine): string => (machine.has('a') ? machine.text('a') : 'none');

test('writes by a write-only descriptor are lost or kept by a loss of power', async () => {
  const seen = await outcomesOfLoss((at) => {
    writeSynced(at('a'), 'one');
    const fd = fs.openSync(at('a'), fs.constants.O_WRONLY);
    fs.writeSync(fd, Buffer.from('two'), 0, 3, 0);
    fs.closeSync(fd);
  });
  assert.deepEqual(seen, ['one', 'two']);
});

test('a killed process leaves all that it wrote', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('kill', async (at) => {
      fs.writeFileSync(at('a'), 'one');
      await fs.promises.appendFile(at('a'), ' two');
    });
    return machine.text('a');
  }, 3);
  assert.deepEqual(seen, ['one two']);
});

test('a loss of power loses or keeps what was not synced', async () => {
  const seen = await outcomesOfLoss((at) => {
    writeSynced(at('a'), 'synced');
    overwrite(at('a'), 'SYN');
  });
  assert.deepEqual(seen, ['SYNced', 'synced']);
});

test('each sector is lost or kept separately', async () => {
  const seen = await outcomesOfLoss(
    (at) => {
      writeSynced(at('a'), 'a'.repeat(1_024));
      overwrite(at('a'), 'b'.repeat(1_024));
    },
    (machine) => [0, 511, 512, 1_023].map((place) => machine.text('a')[place]).join(''),
  );
  assert.deepEqual(seen, ['aaaa', 'aabb', 'bbaa', 'bbbb']);
});

test('bytes that were cut off without a sync may be there again', async () => {
  const seen = await outcomesOfLoss((at) => {
    writeSynced(at('a'), '0123456789');
    opened(at('a'), (fd) => fs.ftruncateSync(fd, 4));
  });
  assert.deepEqual(seen, ['0123', '0123456789']);
});

test('a file whose directory was not synced may lose its name, even if its bytes were synced', async () => {
  const seen = await outcomesOfLoss((at) => fs.writeFileSync(at('a'), 'synced', { flush: true }), textOrNone);
  assert.deepEqual(seen, ['none', 'synced']);
});

test('a rename that was not synced is done or undone as a whole', async () => {
  const seen = await outcomesOfLoss(
    (at) => {
      writeSynced(at('a'), 'former');
      fs.writeFileSync(at('a.new'), 'latter', { flush: true });
      fs.renameSync(at('a.new'), at('a'));
    },
    (machine) => `${machine.text('a')}${machine.has('a.new') ? ' new' : ''}`,
  );
  assert.deepEqual(seen, ['former', 'former new', 'latter']);
});

test('an unlink that was not synced may be undone', async () => {
  const seen = await outcomesOfLoss((at) => {
    writeSynced(at('a'), 'synced');
    fs.unlinkSync(at('a'));
  }, textOrNone);
  assert.deepEqual(seen, ['none', 'synced']);
});

test('what was synced after a kill stays synced', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('kill', (at) => {
      writeSynced(at('a'), 'synced');
      overwrite(at('a'), 'SYN');
    });
    await machine.run('power', () => undefined);
    return machine.text('a');
  });
  assert.deepEqual(seen, ['SYNced', 'synced']);
});

/** Opens a database as the catalog does. */
function openDatabase(file: string): { database: Database.Database; log: number } {
  const database = new Database(file, { timeout: 0 });
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = NORMAL');
  database.pragma('wal_autocheckpoint = 0');
  database.exec('CREATE TABLE IF NOT EXISTS t (a INTEGER)');
  return { database, log: fs.openSync(`${file}-wal`, 'r+') };
}

const insertRows = (count: number): string =>
  `WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < ${count}) INSERT INTO t SELECT a FROM n`;

const rowsOf = (file: string): string => {
  const { database } = openDatabase(file);
  assert.equal(database.pragma('quick_check', { simple: true }), 'ok');
  return database.prepare('SELECT a FROM t ORDER BY a').pluck().all().join();
};

test('a database keeps the commits before its last sync, and a prefix of the later ones', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('power', (at) => {
      const { database, log } = openDatabase(at('a.db'));
      syncDirectory(path.dirname(at('a.db')));
      database.exec('INSERT INTO t VALUES (1)');
      fs.fdatasyncSync(log);
      database.exec('INSERT INTO t VALUES (2)');
      database.exec('INSERT INTO t VALUES (3)');
    });
    return machine.run('kill', (at) => rowsOf(at('a.db')));
  });
  assert.deepEqual(seen, ['1', '1,2', '1,2,3']);
});

test('if the log is copied back without a sync of the database, both are complete', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('power', (at) => {
      const { database, log } = openDatabase(at('a.db'));
      syncDirectory(path.dirname(at('a.db')));
      database.exec(insertRows(4_000));
      fs.fdatasyncSync(log);
      database.pragma('synchronous = OFF');
      database.pragma('wal_checkpoint(PASSIVE)');
    });
    return machine.run('kill', (at) => String(rowsOf(at('a.db')).split(',').length));
  }, 3);
  assert.deepEqual(seen, ['4000']);
});

test('if the log is restarted before the database is synced, rows are lost', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('power', (at) => {
      const { database, log } = openDatabase(at('a.db'));
      syncDirectory(path.dirname(at('a.db')));
      database.exec(insertRows(2_000));
      fs.fdatasyncSync(log);
      database.pragma('synchronous = OFF');
      database.pragma('wal_checkpoint(PASSIVE)');
      database.pragma('synchronous = NORMAL');
      // SQLite overwrites the begin of the log, which was copied back.
      database.exec('INSERT INTO t VALUES (0)');
    });
    return machine.run('kill', (at) => {
      try {
        return rowsOf(at('a.db')).split(',').length >= 2_000 ? 'whole' : 'lost';
      } catch {
        return 'damaged';
      }
    });
  }, 10);
  assert.notDeepEqual(seen, ['whole']);
});

test('a full disk refuses writes and commits, and keeps what it has', async () => {
  await inSimulation(1, async (time, root) => {
    const machine = new Machine(time, root, 1);
    await machine.run('kill', (at) => {
      const { database } = openDatabase(at('a.db'));
      database.exec('INSERT INTO t VALUES (1)');
      fs.writeFileSync(at('a'), 'here');
      machine.disk.fill(100);
      fs.appendFileSync(at('a'), ' too');
      assert.throws(() => fs.writeFileSync(at('b'), 'x'.repeat(200)), { code: 'ENOSPC' });
      const commit = database.prepare('COMMIT');
      database.exec('BEGIN; INSERT INTO t VALUES (2)');
      assert.throws(() => commit.run(), { code: 'SQLITE_FULL' });
      assert.equal(database.inTransaction, false);
      assert.equal(database.prepare('SELECT count(*) FROM t').pluck().get(), 1);
      assert.equal(fs.statfsSync(at('.')).bavail, 0);
      machine.disk.fill(null);
      database.exec('BEGIN; INSERT INTO t VALUES (2); COMMIT');
    });
    assert.equal(machine.text('a'), 'here too');
  });
});

test('a sync fails once, and the next process does not find what it should have synced', async () => {
  const seen = await outcomes(async (machine) => {
    await machine.run('kill', (at) => {
      writeSynced(at('a'), 'synced');
      overwrite(at('a'), 'SYN');
      machine.disk.failNext('sync');
      opened(at('a'), (fd) => {
        assert.throws(() => fs.fdatasyncSync(fd), { code: 'EIO' });
        fs.fdatasyncSync(fd);
      });
    });
    return machine.text('a');
  });
  assert.deepEqual(seen, ['SYNced', 'synced']);
});

test('a read fails once', async () => {
  await inSimulation(1, async (time, root) => {
    const machine = new Machine(time, root, 1);
    await machine.run('kill', async (at) => {
      fs.writeFileSync(at('a'), 'here');
      const file = await fs.promises.open(at('a'));
      const bytes = Buffer.alloc(4);
      machine.disk.failNext('read');
      await assert.rejects(file.read(bytes, 0, 4, 0), { code: 'EIO' });
      await file.read(bytes, 0, 4, 0);
      assert.equal(bytes.toString(), 'here');
      await file.close();
    });
  });
});

test('rot changes one bit of a container, or a page of a database', async () => {
  await inSimulation(1, async (time, root) => {
    const machine = new Machine(time, root, 1);
    await machine.run('kill', (at) => {
      assert.equal(machine.disk.rotContainer(new Prng(1)), null);
      fs.mkdirSync(at('objects/00'), { recursive: true });
      fs.writeFileSync(at('objects/00/1'), 'bytes');
      const { database } = openDatabase(at('index.db'));
      database.pragma('wal_checkpoint(TRUNCATE)');
    });
    assert.equal(machine.disk.rotContainer(new Prng(1)), 'objects/00/1');
    assert.notEqual(machine.text('objects/00/1'), 'bytes');
    const before = machine.text('index.db');
    assert.equal(machine.disk.rotDatabase(new Prng(1)), 'index.db');
    assert.notEqual(machine.text('index.db'), before);
  });
});

test('a copy of a database is made in its process, at virtual times', async () => {
  await inSimulation(1, async (time, root) => {
    const machine = new Machine(time, root, 1);
    await machine.run('kill', async (at) => {
      const beganMs = performance.now();
      const source = new Database(at('catalog.db'));
      source.exec('CREATE TABLE t (x)');
      await source.backup(at('catalog.db.snapshot-1'));
      assert.notEqual(currentProcess(), null);
      assert.ok(performance.now() > beganMs);
      source.close();
    });
    assert.ok(machine.has('catalog.db.snapshot-1'));
  });
});
