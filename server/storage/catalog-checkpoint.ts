import fs from 'node:fs';
import type { Handles } from './catalog-database.ts';
import { hasLogReached } from './database-log.ts';
import { diskFileOps } from './file-ops.ts';
import type { SharedFlush } from './shared-flush.ts';

/** The log is copied back at this size, which is checked every so many commits. */
const LOG_FILE_BYTES_MAX = 16 * 1024 * 1024;
const LOG_CHECK_COMMITS = 64;
/** The log is synced this many commits before the copy. */
const LOG_AHEAD_COMMITS = 16;
/** The log's file is truncated when it is this many times as long. */
const LOG_FILE_TIMES_MAX = 4;

interface CheckpointResult {
  readonly busy: number;
  readonly log: number;
  readonly checkpointed: number;
}

/** The first check that finds the log too long syncs it, the next one copies it back. */
export class CatalogCheckpoint {
  readonly #flush: SharedFlush;
  readonly #bytesMax: number;
  #commitsUntilCheck = LOG_CHECK_COMMITS;
  #isCopyBackNext = false;

  constructor(flush: SharedFlush, bytesMax: number = LOG_FILE_BYTES_MAX) {
    this.#flush = flush;
    this.#bytesMax = bytesMax;
  }

  /** Called after each commit. @param mayCheck false while other work blocks commits @returns the next action */
  afterCommit(logFd: number, mayCheck: boolean): 'nothing' | 'flush' | 'copy-back' {
    this.#commitsUntilCheck -= 1;
    if (this.#commitsUntilCheck > 0 || !mayCheck) return 'nothing';
    this.#commitsUntilCheck = LOG_CHECK_COMMITS;
    if (!hasLogReached(logFd, this.#bytesMax)) return 'nothing';
    this.#isCopyBackNext = !this.#isCopyBackNext;
    if (!this.#isCopyBackNext) return 'copy-back';
    this.#commitsUntilCheck = LOG_AHEAD_COMMITS;
    return 'flush';
  }

  isDue(logFd: number): boolean {
    return hasLogReached(logFd, this.#bytesMax);
  }

  /**
   * Copies the log back into the database. SQLite's own checkpoint would block the event loop with its syncs: on a busy
   * disk they take seconds, and leases end meanwhile. Here the syncs run in the thread pool, and no transaction commits
   * until they are over: SQLite restarts the log once all of it is copied, and until then the copies have to be synced.
   *
   * The log is not emptied: the next commit overwrites its beginning, after a synced header that invalidates the rest.
   * Releasing memory and disk space of 16 MiB takes the event loop 20 ms, and allocating them again a third of a
   * commit's cost.
   *
   * @returns whether all of the log is in the database: not if a reader needs an earlier state of it
   */
  async copyBack({ writer, databaseFd, logFd }: Handles): Promise<boolean> {
    await this.#flush.request();
    writer.pragma('synchronous = OFF');
    let isWhole: boolean;
    try {
      const [result] = writer.pragma('wal_checkpoint(PASSIVE)') as [CheckpointResult];
      isWhole = result.busy === 0 && result.checkpointed === result.log;
    } finally {
      writer.pragma('synchronous = NORMAL');
    }
    await diskFileOps.datasync(databaseFd);
    // The log has grown this long because a reader has kept SQLite from restarting it.
    if (fs.fstatSync(logFd).size <= LOG_FILE_TIMES_MAX * this.#bytesMax) return isWhole;
    writer.pragma('wal_checkpoint(TRUNCATE)');
    await this.#flush.request();
    return isWhole;
  }
}
