/** The recent operations of the catalog, kept in its database for replicas that lag. */
import type Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { type CatalogRecord, formatEpoch, parseEpoch, statement } from './catalog-database.ts';
import type { CatalogTail, LogEntry, LogPosition } from './catalog-transfer.ts';

/**
 * What the log keeps: the newest `bytesMin` in any case, and up to `bytesMax` of what is not older than `ageMaxMs`. The
 * age is that of the operations, by the clock of the primary that executed them, so that all replicas keep the same.
 */
export interface LogBounds {
  readonly bytesMin: number;
  readonly bytesMax: number;
  readonly ageMaxMs: number;
}

export const LOG_BOUNDS: LogBounds = {
  bytesMin: 16 * 1024 * 1024,
  bytesMax: 256 * 1024 * 1024,
  ageMaxMs: 30 * 60_000,
};

/** The part of the free space that the log may have. */
const FREE_PART = 1 / 16;

/** @returns the bounds on a disk with so much free space */
export function boundsWithin(bounds: LogBounds, freeBytes: number): LogBounds {
  const bytesMax = Math.max(bounds.bytesMin, Math.min(bounds.bytesMax, freeBytes * FREE_PART));
  return { ...bounds, bytesMax };
}

/** An operation removes so many of the oldest ones at most, and no more bytes than this, or twice its own. */
const TRIMMED_ROWS_MAX = 64;
const TRIMMED_BYTES_MAX = 256 * 1024;

/** A row of `replica_log_sizes`; operations that an earlier release wrote have none. */
interface LogSize {
  readonly seq: number;
  readonly at_ms: number;
  readonly bytes: number;
  readonly end_bytes: number;
}

/** Adds an operation, executed at `atMs` (0 if unknown), and removes some of those beyond the bounds. */
export function appendToLog(
  writer: Database.Database,
  bounds: LogBounds,
  { seq, epoch, body, view }: LogEntry,
  atMs: number,
): void {
  const row = [
    seq,
    formatEpoch(epoch),
    Buffer.from(body.buffer, body.byteOffset, body.byteLength),
    view === null ? null : JSON.stringify(view),
  ];
  statement(writer, 'INSERT INTO replica_log (seq, epoch, body, view) VALUES (?, ?, ?, ?)').run(...row);
  const before = statement(writer, 'SELECT * FROM replica_log_sizes WHERE seq = ?').get(seq - 1);
  const { at_ms, end_bytes } = (before ?? { at_ms: 0, end_bytes: 0 }) as LogSize;
  const bytes = body.length;
  const newest: LogSize = { seq, at_ms: atMs === 0 ? at_ms : atMs, bytes, end_bytes: end_bytes + bytes };
  statement(writer, 'INSERT OR REPLACE INTO replica_log_sizes VALUES (?, ?, ?, ?)').run(
    ...[seq, newest.at_ms, bytes, newest.end_bytes],
  );
  trim(writer, bounds, newest);
}

/** The cost is that of what is removed. More is removed than added, so the log soon keeps to changed bounds. */
function trim(writer: Database.Database, bounds: LogBounds, newest: LogSize): void {
  const oldest = statement(
    writer,
    `
    SELECT log.seq, COALESCE(at_ms, 0) AS at_ms, COALESCE(bytes, 0) AS bytes, COALESCE(end_bytes, 0) AS end_bytes
    FROM replica_log AS log LEFT JOIN replica_log_sizes AS size ON size.seq = log.seq
    WHERE log.seq < ? ORDER BY log.seq LIMIT ${TRIMMED_ROWS_MAX}`,
  );
  const bytesMax = Math.max(TRIMMED_BYTES_MAX, 2 * newest.bytes);
  let last = 0;
  let bytes = 0;
  for (const row of oldest.iterate(newest.seq) as IterableIterator<LogSize>) {
    bytes += row.bytes;
    if (!isBeyond(bounds, row, newest) || (last > 0 && bytes > bytesMax)) break;
    last = row.seq;
  }
  if (last === 0) return;
  for (const table of ['replica_log', 'replica_log_sizes'])
    statement(writer, `DELETE FROM ${table} WHERE seq <= ?`).run(last);
}

function isBeyond({ bytesMin, bytesMax, ageMaxMs }: LogBounds, row: LogSize, newest: LogSize): boolean {
  const bytesAfter = newest.end_bytes - row.end_bytes;
  // An earlier release has continued the log of this one, without sums.
  if (bytesAfter < 0) return true;
  if (bytesAfter < bytesMin) return false;
  return bytesAfter + row.bytes > bytesMax || newest.at_ms - row.at_ms > ageMaxMs;
}

/** @returns the bytes of the operations after `seq`, up to `lastSeq` */
export function logBytesAfter(reader: Database.Database, seq: number, lastSeq: number): number {
  const end = statement(reader, 'SELECT end_bytes FROM replica_log_sizes WHERE seq = ?').pluck();
  const endOf = (at: number): number => (end.get(at) as number | undefined) ?? 0;
  return endOf(lastSeq) - endOf(seq);
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
