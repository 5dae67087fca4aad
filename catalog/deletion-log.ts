import type { Statements } from './statements.ts';

/** Rows kept for a server that does not read them. Without a row that it needs, it compares all of its replicas. */
const ROWS_MAX = 250_000;
/** Rows deleted by one call: a bounded part of a batch. */
const ROWS_TRIMMED_MAX = 1_000;

/** `seq`: number of the row in its server's log. */
export interface DeletionRow {
  readonly seq: number;
  readonly inode: number;
}

interface LogRow {
  readonly lastSeq: number;
  readonly trimmedSeq: number;
  readonly rowsMax: number;
}

const LOG_COLUMNS = 'last_seq AS lastSeq, trimmed_seq AS trimmedSeq, rows_max AS rowsMax';

/**
 * For each server, the files whose replicas it may no longer need: deleted files, and files moved to other servers.
 * Garbage collection reads it instead of comparing all replicas. A row only says which file to examine: the server
 * removes nothing without asking for the file's servers again. A server trims its log when it has finished with the
 * rows; a log that grows beyond its bound loses its oldest row. The log of a server that is out keeps no rows.
 */
export class DeletionLog {
  readonly #statements: Statements;
  /** Whether all members write the log; the same at all replicas executing a command. */
  isWritten = false;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** @param servers ids of servers, separated by commas */
  append(inode: number, servers: string): void {
    if (!this.isWritten || servers === '') return;
    for (const server of servers.split(',')) this.#appendFor(server, inode);
  }

  #appendFor(server: string, inode: number): void {
    const log = this.#statements.get<LogRow>(
      `INSERT INTO deletion_logs
         SELECT ?, 1, 0, CASE WHEN EXISTS (SELECT 1 FROM servers WHERE id = ? AND state = 'out') THEN 0 ELSE ${ROWS_MAX} END
         WHERE true
       ON CONFLICT (server) DO UPDATE SET last_seq = last_seq + 1 RETURNING ${LOG_COLUMNS}`,
      server,
      server,
    ) as LogRow;
    if (log.rowsMax > 0)
      this.#statements.run('INSERT INTO deletions VALUES (?, ?, ?)', server, log.lastSeq, inode);
    if (log.lastSeq - log.trimmedSeq > log.rowsMax) this.trim(server, log.trimmedSeq + 1);
  }

  /** @returns the server's rows after `after`; all up to `trimmed` are gone, and `last` is the latest one */
  rows(
    server: string,
    after: number,
    countMax: number,
  ): { readonly rows: DeletionRow[]; readonly trimmed: number; readonly last: number } {
    const log = this.#log(server);
    const rows = this.#statements.all<DeletionRow>(
      'SELECT seq, inode FROM deletions WHERE server = ? AND seq > ? ORDER BY seq LIMIT ?',
      server,
      Math.max(after, log.trimmedSeq),
      countMax,
    );
    return { rows, trimmed: log.trimmedSeq, last: log.lastSeq };
  }

  /** Forgets the server's rows up to `through`. Deletes a bounded number of them; `sweep` deletes the rest. */
  trim(server: string, through: number): void {
    const { lastSeq, trimmedSeq } = this.#log(server);
    const trimmed = Math.min(through, lastSeq);
    if (trimmed <= trimmedSeq) return;
    this.#statements.run('UPDATE deletion_logs SET trimmed_seq = ? WHERE server = ?', trimmed, server);
    this.#deleteRows(server, trimmed);
  }

  /** From now on the server's log keeps rows, or none. */
  setKept(server: string, isKept: boolean): void {
    this.#statements.run(
      'UPDATE deletion_logs SET rows_max = ? WHERE server = ?',
      isKept ? ROWS_MAX : 0,
      server,
    );
    if (!isKept) this.trim(server, Number.MAX_SAFE_INTEGER);
  }

  /** Deletes rows that are trimmed: a bounded number for each server. */
  sweep(): void {
    for (const { server, trimmed } of this.#withTrimmedRows()) this.#deleteRows(server, trimmed);
  }

  hasTrimmedRows(): boolean {
    return this.#withTrimmedRows().length > 0;
  }

  #withTrimmedRows(): readonly { readonly server: string; readonly trimmed: number }[] {
    return this.#statements.all(
      `SELECT server, trimmed_seq AS trimmed FROM deletion_logs l
       WHERE EXISTS (SELECT 1 FROM deletions d WHERE d.server = l.server AND d.seq <= l.trimmed_seq)`,
    );
  }

  #deleteRows(server: string, trimmed: number): void {
    this.#statements.run(
      `DELETE FROM deletions WHERE server = ? AND seq IN
         (SELECT seq FROM deletions WHERE server = ? AND seq <= ? ORDER BY seq LIMIT ${ROWS_TRIMMED_MAX})`,
      server,
      server,
      trimmed,
    );
  }

  #log(server: string): LogRow {
    return (
      this.#statements.get<LogRow>(`SELECT ${LOG_COLUMNS} FROM deletion_logs WHERE server = ?`, server) ?? {
        lastSeq: 0,
        trimmedSeq: 0,
        rowsMax: ROWS_MAX,
      }
    );
  }
}
