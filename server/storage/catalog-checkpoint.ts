/** When the write-ahead log of the catalog's database is copied back into it, and how. */
import fs from 'node:fs';
import type { Handles } from './catalog-database.ts';
import { hasLogReached } from './database-log.ts';
import { diskFileOps } from './file-ops.ts';
import type { SharedFlush } from './shared-flush.ts';

/** The log is copied back into the database when it has grown to this, which is looked at every so many commits. */
const LOG_FILE_BYTES_MAX = 16 * 1024 * 1024;
const LOG_LOOK_COMMITS = 64;
/** It goes to the disk so many commits before. */
const LOG_AHEAD_COMMITS = 16;
/** Its file is made shorter where it is so many times as long. */
const LOG_FILE_TIMES_MAX = 4;

/** Looks after every so many commits how long the log is; first it goes to the disk, at the next look it is copied back. */
export class CatalogCheckpoint {
  readonly #flush: SharedFlush;
  readonly #bytesMax: number;
  #commitsUntilLook = LOG_LOOK_COMMITS;
  /** The log is to be copied back at the next look, and on its way to the disk already. */
  #isLogLeaving = false;

  /**
   * @param flush syncs the log
   * @param bytesMax the log is copied back when it has grown to this
   */
  constructor(flush: SharedFlush, bytesMax: number = LOG_FILE_BYTES_MAX) {
    this.#flush = flush;
    this.#bytesMax = bytesMax;
  }

  /**
   * To be asked once after every commit.
   * @param mayLook nothing else is under way that lets nobody commit
   */
  next(logFd: number, mayLook: boolean): 'nothing' | 'flush' | 'copy-back' {
    this.#commitsUntilLook -= 1;
    if (this.#commitsUntilLook > 0 || !mayLook) return 'nothing';
    this.#commitsUntilLook = LOG_LOOK_COMMITS;
    if (!hasLogReached(logFd, this.#bytesMax)) return 'nothing';
    this.#isLogLeaving = !this.#isLogLeaving;
    if (!this.#isLogLeaving) return 'copy-back';
    this.#commitsUntilLook = LOG_AHEAD_COMMITS;
    return 'flush';
  }

  /**
   * Copies the log back into the database. SQLite would do that by itself, with its
   * syncs in the way of the event loop: on a busy disk they take seconds, and leases end meanwhile.
   * Here they run in the thread pool, and nothing commits until they are over: SQLite begins the
   * log anew once all of it is copied, and until then the copies have to be synced.
   *
   * It is not emptied. The next commit writes over its beginning, and SQLite syncs the header first, by which what is left of
   * the old log is none of the new one. To give the memory and the room of 16 MiB back takes
   * the event loop 20 ms, and to get them again is a third of what a commit costs the disk.
   */
  async copyBack({ writer, databaseFd, logFd }: Handles): Promise<void> {
    await this.#flush.request();
    writer.pragma('synchronous = OFF');
    try {
      writer.pragma('wal_checkpoint(PASSIVE)');
    } finally {
      writer.pragma('synchronous = NORMAL');
    }
    await diskFileOps.datasync(databaseFd);
    // So long after somebody who reads has kept SQLite from beginning it anew.
    if (fs.fstatSync(logFd).size <= LOG_FILE_TIMES_MAX * this.#bytesMax) return;
    writer.pragma('wal_checkpoint(TRUNCATE)');
    await this.#flush.request();
  }
}
