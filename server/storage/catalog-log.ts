/** The recent operations of the catalog, kept in its database for replicas that lag. */
import type Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { type CatalogRecord, formatEpoch, parseEpoch, statement } from './catalog-database.ts';
import type { CatalogTail, LogEntry, LogPosition } from './catalog-transfer.ts';

/** Bounds of the log, in batches and in bytes of them. */
export const LOG_BATCHES_MAX = 1000;
export const LOG_BYTES_MAX = 16 * 1024 * 1024;

export class CatalogLog {
  #bytes: number;
  #committedBytes: number;

  constructor(db: Database.Database) {
    this.#bytes = readLogBytes(db);
    this.#committedBytes = this.#bytes;
  }

  /** Recounts the bytes, after SQLite undid a transaction by itself or another database replaced this one. */
  recount(db: Database.Database): void {
    this.#bytes = readLogBytes(db);
    this.#committedBytes = this.#bytes;
  }

  begin(): void {
    this.#committedBytes = this.#bytes;
  }

  undo(): void {
    this.#bytes = this.#committedBytes;
  }

  /** Adds an operation, and removes the oldest ones beyond the bounds of the log. */
  append(writer: Database.Database, { seq, epoch, body, view }: LogEntry): void {
    const row = [
      seq,
      formatEpoch(epoch),
      Buffer.from(body.buffer, body.byteOffset, body.byteLength),
      view === null ? null : JSON.stringify(view),
    ];
    statement(writer, 'INSERT INTO replica_log (seq, epoch, body, view) VALUES (?, ?, ?, ?)').run(...row);
    this.#bytes += body.length;
    const trimmed = statement(
      writer,
      'DELETE FROM replica_log WHERE seq <= ? RETURNING LENGTH(body) AS bytes',
    );
    for (const { bytes } of trimmed.all(seq - LOG_BATCHES_MAX) as { bytes: number }[]) this.#bytes -= bytes;
    const oldest = statement(
      writer,
      `DELETE FROM replica_log WHERE seq = (SELECT MIN(seq) FROM replica_log) AND seq < ?
       RETURNING LENGTH(body) AS bytes`,
    );
    while (this.#bytes > LOG_BYTES_MAX) {
      const row = oldest.get(seq) as { bytes: number } | undefined;
      if (row === undefined) break;
      this.#bytes -= row.bytes;
    }
  }
}

/** @returns the operations after `from`; null if this replica was never in that state, or its log begins later */
export function logTail(
  reader: Database.Database,
  { installed, last }: CatalogRecord,
  from: LogPosition,
  bytesMax: number,
): CatalogTail | null {
  if (from.seq > 0) {
    const here = reader.prepare('SELECT epoch FROM replica_log WHERE seq = ?').pluck().get(from.seq);
    if (typeof here !== 'string' || !epochEqual(parseEpoch(here), from.epoch)) return null;
  }
  const entries: LogEntry[] = [];
  let bytes = 0;
  const rows = reader
    .prepare('SELECT seq, epoch, body, view FROM replica_log WHERE seq > ? ORDER BY seq')
    .iterate(from.seq) as IterableIterator<{
    seq: number;
    epoch: string;
    body: Buffer;
    view: string | null;
  }>;
  for (const row of rows) {
    // The log may begin after the first operation.
    if (row.seq !== from.seq + 1 + entries.length) return null;
    bytes += row.body.length;
    if (entries.length > 0 && bytes > bytesMax) return { installed, entries, more: true };
    const view = row.view === null ? null : (JSON.parse(row.view) as View);
    entries.push({ seq: row.seq, epoch: parseEpoch(row.epoch), body: row.body, view });
  }
  assert(from.seq + entries.length === last.seq, 'The log ends with the last operation');
  return { installed, entries, more: false };
}

function readLogBytes(db: Database.Database): number {
  return db.prepare('SELECT COALESCE(SUM(LENGTH(body)), 0) FROM replica_log').pluck().get() as number;
}
