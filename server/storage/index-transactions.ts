import fs from 'node:fs';
import type Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import type { World } from '../../base/world.ts';
import type { DatabaseMark } from './database-mark.ts';
import { errorCode } from './failures.ts';
import type { FileOps } from './file-ops.ts';
import type { IndexStatements } from './index-statements.ts';
import { SharedFlush } from './shared-flush.ts';

const LOG_BYTES_MAX = 16 * 1024 * 1024;
const LOG_CHECK_COMMITS = 32;

export type ClosingMark = Pick<DatabaseMark, 'setClosed' | 'closed'>;

interface Work {
  readonly run: () => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export interface IndexFiles {
  readonly database: Database.Database;
  readonly ops: FileOps;
  readonly logFd: number;
  /** Closed only after SQLite's own: closing any descriptor of a file drops the process's locks on it. */
  readonly databaseFd: number;
}

/**
 * Transactions of the index, and its log. All changes of one tick share a transaction. A sync inside SQLite would block
 * the event loop; so the syncs of `synchronous = FULL` run here, in the thread pool and in the order that SQLite's log
 * needs; see FORMAT.md, "The index".
 */
export class IndexTransactions {
  readonly #world: World;
  readonly #database: Database.Database;
  readonly #ops: FileOps;
  readonly #onFailure: (error: unknown) => void;
  readonly #logFd: number;
  readonly #databaseFd: number;
  readonly #logFlush: SharedFlush;
  readonly #statements: IndexStatements;
  #works: Work[] = [];
  #scheduled = false;
  #isPaused = false;
  #checkpointing: Promise<void> | null = null;
  #commitsUntilCheck = LOG_CHECK_COMMITS;

  constructor(
    world: World,
    { database, ops, logFd, databaseFd }: IndexFiles,
    statements: IndexStatements,
    onFailure: (error: unknown) => void,
  ) {
    this.#world = world;
    this.#database = database;
    this.#ops = ops;
    this.#logFd = logFd;
    this.#databaseFd = databaseFd;
    this.#onFailure = onFailure;
    this.#logFlush = new SharedFlush(() => ops.datasync(logFd));
    this.#statements = statements;
  }

  /**
   * Runs `work`, which changes only the index, in the transaction at the end of this tick, or after a checkpoint. The
   * change survives `kill -9` of the process when the promise resolves.
   */
  commit(work: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#works.push({ run: work, resolve, reject });
      this.#schedule();
    });
  }

  /** Everything committed before the call survives loss of power when it resolves. */
  flush(): Promise<void> {
    return this.#logFlush.request();
  }

  /** Closes the index, and marks it so: at the exit of the process a closed database would be closed again. */
  async close(healthy: boolean, mark: ClosingMark): Promise<void> {
    if (this.#checkpointing !== null) await this.#checkpointing;
    assert(this.#works.length === 0, 'The index is closed after its last commit');
    try {
      // Then closing, which copies the log back and deletes it, has nothing left to block for.
      if (healthy) {
        await this.checkpoint();
        mark.setClosed();
      }
    } finally {
      this.#database.close();
      mark.closed();
      await this.#ops.close(this.#logFd);
      await this.#ops.close(this.#databaseFd);
    }
  }

  /**
   * Copies the log back and syncs the copy, blocking, when the process exits. SQLite deletes the log in `closeNow`,
   * which follows: so what an earlier checkpoint copied is synced even if this one fails.
   */
  copyBack(): void {
    try {
      fs.fdatasyncSync(this.#logFd);
      this.#database.pragma('wal_checkpoint(PASSIVE)');
    } finally {
      fs.fdatasyncSync(this.#databaseFd);
    }
  }

  closeNow(): void {
    this.#database.close();
  }

  #schedule(): void {
    if (this.#scheduled || this.#isPaused) return;
    this.#scheduled = true;
    this.#world.soon(() => {
      this.#scheduled = false;
      if (!this.#isPaused) this.#commitAll();
    });
  }

  #commitAll(): void {
    const works = this.#works;
    this.#works = [];
    try {
      this.#statements.begin.run();
      for (const work of works) work.run();
      this.#statements.commit.run();
    } catch (error) {
      if (this.#database.inTransaction) this.#statements.rollback.run();
      // A full disk leaves the index as it was. After any other error its contents are unknown.
      if (errorCode(error) !== 'SQLITE_FULL') this.#onFailure(error);
      for (const work of works) work.reject(error);
      return;
    }
    for (const work of works) work.resolve();
    this.#commitsUntilCheck--;
    if (this.#commitsUntilCheck <= 0) {
      this.#commitsUntilCheck = LOG_CHECK_COMMITS;
      if (this.#checkpointing === null && fs.fstatSync(this.#logFd).size > LOG_BYTES_MAX) {
        this.#checkpointing = this.checkpoint()
          .catch((error) => {
            // On a full disk the log stays as it is, and grows until commits are refused as well.
            if (errorCode(error) !== 'SQLITE_FULL') this.#onFailure(error);
          })
          .finally(() => {
            this.#checkpointing = null;
          });
      }
    }
  }

  /**
   * Copies the log back and empties it. Commits wait meanwhile: SQLite would restart the log once all of it is copied,
   * while neither the copies nor the new beginning are synced.
   */
  async checkpoint(): Promise<void> {
    // Most of the log is synced before any commit has to wait.
    await this.#logFlush.request();
    this.#isPaused = true;
    try {
      await this.#logFlush.request();
      this.#database.pragma('synchronous = OFF');
      try {
        this.#database.pragma('wal_checkpoint(PASSIVE)');
      } finally {
        this.#database.pragma('synchronous = NORMAL');
      }
      await this.#ops.datasync(this.#databaseFd);
      this.#database.pragma('wal_checkpoint(TRUNCATE)');
      await this.#logFlush.request();
    } finally {
      this.#isPaused = false;
      if (this.#works.length > 0) this.#schedule();
    }
  }
}
