import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { errorCode } from './failures.ts';
import { FolderError } from './folder-error.ts';

/**
 * The lock on a data folder: two processes on one store would be two voters with one memory. Node has no flock;
 * SQLite's exclusive transaction on an empty database, which is never ended, is a lock of the operating system. It ends
 * with the process, even by kill −9.
 */
export class FolderLock {
  readonly #database: Database.Database;
  readonly #pidFile: string;

  private constructor(database: Database.Database, pidFile: string) {
    this.#database = database;
    this.#pidFile = pidFile;
  }

  /** @throws FolderError `locked` if another process, or this one, has the folder */
  static acquire(folder: string): FolderLock {
    const pidFile = path.join(folder, 'lock.pid');
    const database = new Database(path.join(folder, 'lock.db'), { timeout: 0 });
    try {
      database.pragma('locking_mode = EXCLUSIVE');
      database.exec('BEGIN EXCLUSIVE');
      // Only for the error message of a second process; the lock does not depend on it.
      fs.writeFileSync(pidFile, `${process.pid} on ${os.hostname()}\n`);
    } catch (error) {
      database.close();
      if (errorCode(error) !== 'SQLITE_BUSY') throw error;
      throw new FolderError(
        'locked',
        `Cannot use ${folder} as data folder: it is in use by process ${holder(pidFile)}. ` +
          'Stop that process, or name another folder with --data',
        { cause: error },
      );
    }
    return new FolderLock(database, pidFile);
  }

  release(): void {
    fs.rmSync(this.#pidFile, { force: true });
    this.#database.close();
  }
}

function holder(pidFile: string): string {
  try {
    return fs.readFileSync(pidFile, 'utf8').trim() || 'unknown';
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return 'unknown';
    throw error;
  }
}
