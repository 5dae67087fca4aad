import { createRequire } from 'node:module';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { SimulatedProcess } from '../simulated-process.ts';
import { diskOf } from './guarded-files.ts';
import { realDatabase } from './real-database.ts';

const COMMITS = /\b(COMMIT|END)\s*;?\s*$/i;
const COPIES_BACK = /^(wal_checkpoint|journal_mode)\b/;
const KEEPS_LOG = /^wal_checkpoint\b/;
const SYNCS_OFF = /^synchronous\s*=\s*(OFF|0)\s*$/i;
const SYNCS = /^synchronous\s*=/i;

/** Connections with syncs turned off. */
const unsynced = new WeakSet<Database.Database>();

/**
 * The library keeps Node's `fs.access` when it is loaded, which is before the guard replaces it. With that function a
 * copy of a database would wait for the host's thread pool, and continue outside of its process after a time that does
 * not depend on the seed.
 *
 * @returns the `backup` of the library, loaded again
 */
function guardedBackup(): Database.Database['backup'] {
  const require = createRequire(import.meta.url);
  const file = path.join(path.dirname(require.resolve('better-sqlite3')), 'methods/backup.js');
  delete require.cache[file];
  return require(file) as Database.Database['backup'];
}

/** Informs the disk of a simulated process of what SQLite does with the files of databases. */
export function guardDatabases(currentProcess: () => SimulatedProcess | null): void {
  const { prototype } = Database;
  const diskNow = (database: Database.Database) => {
    const process = currentProcess();
    if (process === null || database.memory) return null;
    const disk = diskOf(process);
    if (disk === undefined) throw new Error(`${process.name} has no disk, and opened ${database.name}`);
    disk.used(database);
    return disk;
  };
  prototype.backup = guardedBackup();
  prototype.prepare = function (this: Database.Database, source: string) {
    const disk = diskNow(this);
    const statement = realDatabase.prepare.call(this, source);
    if (disk === null || !COMMITS.test(source)) return statement;
    const run = statement.run.bind(statement) as () => Database.RunResult;
    statement.run = () => disk.commit(this, run) as Database.RunResult;
    return statement;
  } as Database.Database['prepare'];
  prototype.exec = function (this: Database.Database, source) {
    const disk = diskNow(this);
    const run = (): Database.Database => realDatabase.exec.call(this, source);
    return disk !== null && COMMITS.test(source) ? (disk.commit(this, run) as Database.Database) : run();
  };
  prototype.pragma = function (this: Database.Database, source, options) {
    const disk = diskNow(this);
    const run = (): unknown => realDatabase.pragma.call(this, source, options);
    if (disk === null) return run();
    if (SYNCS_OFF.test(source)) unsynced.add(this);
    else if (SYNCS.test(source)) unsynced.delete(this);
    return COPIES_BACK.test(source)
      ? disk.copyBack(this, !unsynced.has(this), !KEEPS_LOG.test(source), run)
      : run();
  };
  prototype.close = function (this: Database.Database) {
    const disk = this.open ? diskNow(this) : null;
    const run = (): Database.Database => realDatabase.close.call(this);
    if (disk === null) return run();
    const closed = disk.copyBack(this, !unsynced.has(this), true, run) as Database.Database;
    disk.databaseClosed(this);
    return closed;
  };
}
