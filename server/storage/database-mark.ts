import fs from 'node:fs';
import path from 'node:path';
import { flushDirectory } from './file-ops.ts';
import { FolderError } from './folder-error.ts';

/**
 * `open`: the database is in use, or was when the process was killed, so it and its log both exist. `closed`: its log
 * was copied back and removed.
 */
export type DatabaseState = 'open' | 'closed';

export interface OpenDatabase {
  copyBack(): void;
  close(): void;
}

/** The databases of one folder that are in use. One listener closes all: a server has any number of catalogs. */
export class DatabasesInUse {
  readonly #marks = new Set<DatabaseMark>();
  readonly #onExit = (): void => this.#closeAll();

  add(mark: DatabaseMark): void {
    if (this.#marks.size === 0) process.on('exit', this.#onExit);
    this.#marks.add(mark);
  }

  delete(mark: DatabaseMark): void {
    this.#marks.delete(mark);
    if (this.#marks.size === 0) process.off('exit', this.#onExit);
  }

  /** Closes each database, also after another one could not be closed. @throws the first error */
  #closeAll(): void {
    const errors: unknown[] = [];
    for (const mark of [...this.#marks]) {
      try {
        mark.closeNow();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }
}

/** Detects a lost database: SQLite would create an empty one, or open one without its log in an older state. */
export class DatabaseMark {
  readonly #path: string;
  readonly #state: () => DatabaseState | null;
  readonly #set: (state: DatabaseState) => void;
  readonly #inUse: DatabasesInUse;
  #open: OpenDatabase | null = null;

  constructor(
    path: string,
    state: () => DatabaseState | null,
    set: (state: DatabaseState) => void,
    inUse: DatabasesInUse,
  ) {
    this.#path = path;
    this.#inUse = inUse;
    this.#state = state;
    this.#set = set;
  }

  /** Called before the database is opened. @throws FolderError `damaged` if it, or its log, is missing */
  check(): void {
    const state = this.#state();
    if (state === null) return;
    const wanted = state === 'open' ? [this.#path, `${this.#path}-wal`] : [this.#path];
    // SQLite takes an empty file for a new database; a log may be empty.
    const missing = wanted.find((file) => sizeOf(file) <= (file === this.#path ? 0 : -1));
    if (missing === undefined) return;
    throw new FolderError(
      'damaged',
      `Cannot use ${this.#path}: ${missing} is missing or empty. Restore it, or start with --rebuild, ` +
        "which moves the data folder's contents aside and re-creates all replicas from the other servers",
    );
  }

  /** Called after the open: database and log exist, and their directory entries are synced. */
  setOpen(database: OpenDatabase): void {
    this.#open = database;
    this.#inUse.add(this);
    this.#set('open');
  }

  /** Called before an orderly close, once the log is copied back: SQLite then removes the log. */
  setClosed(): void {
    this.#set('closed');
    this.#forget();
  }

  /** Called in the tick of any other close. If SQLite has copied back and removed the log, an empty log replaces it. */
  closed(): void {
    this.#forget();
    const log = `${this.#path}-wal`;
    if (this.#state() !== 'open' || fs.existsSync(log)) return;
    // An empty log means the same as `closed`, and needs no space, which the disk may lack.
    fs.closeSync(fs.openSync(log, 'wx', 0o600));
    flushDirectory(path.dirname(log));
  }

  /** Closes a database that is still open: after a failed start the next one could not lock it. */
  abandon(): void {
    const database = this.#open;
    if (database === null) return;
    database.close();
    this.closed();
  }

  #forget(): void {
    this.#inUse.delete(this);
    this.#open = null;
  }

  /** Called when the process exits: copies the log back before SQLite closes the database, which removes the log. */
  closeNow(): void {
    const database = this.#open;
    if (database === null) return;
    try {
      database.copyBack();
      this.setClosed();
      database.close();
    } finally {
      this.abandon();
    }
  }
}

function sizeOf(file: string): number {
  return fs.statSync(file, { throwIfNoEntry: false })?.size ?? -1;
}
