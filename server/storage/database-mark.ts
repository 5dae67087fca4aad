import fs from 'node:fs';
import path from 'node:path';
import { flushDirectory } from './file-ops.ts';
import { FolderError } from './folder-error.ts';

/**
 * `open`: the database is in use, or was when the process was killed, so that it and its log are both there.
 * `closed`: its log was copied back and removed.
 */
export type DatabaseState = 'open' | 'closed';

/** A database in use, which the end of the process closes. */
export interface OpenDatabase {
  /** Copies its log back and syncs that: from then on the log is not needed. */
  copyBack(): void;
  close(): void;
}

/**
 * What a data folder remembers of one of its databases, so that a lost one is not taken for one that was never
 * made: SQLite would make an empty one in its place, and open one without its log as it was at some earlier time.
 */
export class DatabaseMark {
  readonly #path: string;
  readonly #state: () => DatabaseState | null;
  readonly #set: (state: DatabaseState) => void;
  readonly #onExit = (): void => this.#closeNow();
  #open: OpenDatabase | null = null;

  /**
   * @param state as it is remembered; null where it was never made
   * @param set remembers it, synced
   */
  constructor(path: string, state: () => DatabaseState | null, set: (state: DatabaseState) => void) {
    this.#path = path;
    this.#state = state;
    this.#set = set;
  }

  /** Before the database is opened. @throws FolderError `damaged` where it, or its log, is gone */
  check(): void {
    const state = this.#state();
    if (state === null) return;
    const wanted = state === 'open' ? [this.#path, `${this.#path}-wal`] : [this.#path];
    // SQLite takes an empty file for a database that is yet to be made; a log may be empty.
    const missing = wanted.find((file) => sizeOf(file) <= (file === this.#path ? 0 : -1));
    if (missing === undefined) return;
    throw new FolderError(
      'damaged',
      `Cannot use ${this.#path}: ${missing} is gone, or empty. Bring it back, or start with --rebuild, which puts what is in the data ` +
        'folder aside and fills an empty one from the other servers',
    );
  }

  /** The database and its log are there, and their names synced. */
  opened(database: OpenDatabase): void {
    this.#open = database;
    process.once('exit', this.#onExit);
    this.#set('open');
  }

  /** The log was copied back and is about to go. */
  closing(): void {
    this.#forget();
    this.#set('closed');
  }

  /** The database was closed without that. Where SQLite copied the log back by itself, it has removed it. */
  closed(): void {
    this.#forget();
    const log = `${this.#path}-wal`;
    if (this.#state() !== 'open' || fs.existsSync(log)) return;
    // An empty log says the same as `closed`, and takes no space, which the disk may lack.
    fs.closeSync(fs.openSync(log, 'wx', 0o600));
    flushDirectory(path.dirname(log));
  }

  /** Closes a database that a failed start has left open: the next start of this process could not lock it. */
  abandon(): void {
    const database = this.#open;
    if (database === null) return;
    database.close();
    this.closed();
  }

  #forget(): void {
    process.off('exit', this.#onExit);
    this.#open = null;
  }

  /** A process that ends by itself closes its databases, and SQLite removes their logs then. */
  #closeNow(): void {
    const database = this.#open;
    if (database === null) return;
    database.copyBack();
    this.closing();
    database.close();
  }
}

/** @returns −1 where there is no such file */
function sizeOf(file: string): number {
  return fs.statSync(file, { throwIfNoEntry: false })?.size ?? -1;
}
