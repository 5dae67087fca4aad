import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Command, Query, QueryResults } from '../../wire/catalog-api.ts';

const PAGE = 1_000;
/** Pages read in one round. */
const PAGES_MAX = 100;

type Deletions = QueryResults['deletions'];

const NOT_WRITTEN: Deletions = { rows: [], trimmed: 0, last: 0, written: false };

export interface DeletionLogReaderParts {
  readonly self: ServerId;
  command(command: Command): Promise<unknown>;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
}

/** Reads the catalog's log of files whose replicas this server may not need any more, and trims it. */
export class DeletionLogReader {
  readonly #parts: DeletionLogReaderParts;
  /** Rows whose files this server had not finished with at the last `trim`, or that are newer, in their order. */
  readonly #rows = new Map<number, FileId>();
  /** The latest row that was read, and the latest one that is gone. */
  #cursor = 0;
  #trimmed = 0;
  #isWritten = false;

  constructor(parts: DeletionLogReaderParts) {
    this.#parts = parts;
  }

  /** Whether the log had all deletions at the last `read`: if not, all replicas must be compared. */
  get isWritten(): boolean {
    return this.#isWritten;
  }

  /** Whether all rows that were read are finished and trimmed. */
  get isDone(): boolean {
    return this.#rows.size === 0 && this.#trimmed >= this.#cursor;
  }

  /** Calls `found` for the files of new rows. @returns `incomplete` if rows may be missing before them */
  async read(found: (file: FileId) => void): Promise<'complete' | 'incomplete'> {
    let isComplete = true;
    for (let page = 0; page < PAGES_MAX; page++) {
      const { rows, trimmed, last, written } = await this.#query();
      // A catalog that lost its latest commands with the power gives their numbers to other rows. If it has more than
      // the lost ones by now, this does not show: then `Garbage` compares all replicas for the catalog's new epoch.
      if (trimmed > this.#cursor || last < this.#cursor || !written || !this.#isWritten) isComplete = false;
      if (last < this.#cursor) this.#rows.clear();
      this.#isWritten = written;
      this.#trimmed = trimmed;
      this.#cursor = rows.at(-1)?.[0] ?? Math.max(trimmed, Math.min(this.#cursor, last));
      for (const [seq, inode] of rows) {
        this.#rows.set(seq, inode as FileId);
        found(inode as FileId);
      }
      if (rows.length < PAGE) break;
    }
    return isComplete ? 'complete' : 'incomplete';
  }

  /** Forgets rows whose files are finished, and trims those before the first other one. */
  async trim(isOpen: (file: FileId) => boolean): Promise<void> {
    for (const [seq, file] of this.#rows) if (!isOpen(file)) this.#rows.delete(seq);
    const [firstOpen] = this.#rows.keys();
    const last = firstOpen === undefined ? this.#cursor : firstOpen - 1;
    while (this.#trimmed < last) {
      // The catalog deletes as many in one command.
      const through = Math.min(this.#trimmed + PAGE, last);
      await this.#parts.command({ kind: 'trim-deletions', server: this.#parts.self, through });
      this.#trimmed = through;
    }
  }

  async #query(): Promise<Deletions> {
    const { self, query } = this.#parts;
    try {
      return await query({ kind: 'deletions', server: self, after: this.#cursor, countMax: PAGE });
    } catch (error) {
      // The catalog's primary runs an earlier release.
      if (error instanceof ServiceError && error.code === 'bad-request') return NOT_WRITTEN;
      throw error;
    }
  }
}
