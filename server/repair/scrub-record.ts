import fs from 'node:fs';
import { errorCode } from '../storage/failures.ts';
import type { DamagedObject } from './repairer.ts';

/** A scrubber's progress, kept across restarts. Times are milliseconds since 1970. */
export interface ScrubRecord {
  /** Start of the pass in progress, or of the last one; null before the first. */
  readonly startedMs: number | null;
  /** End of the last pass; null while one is in progress. */
  readonly finishedMs: number | null;
  readonly file: number;
  readonly index: number;
  readonly objects: number;
  readonly bytes: number;
  readonly damaged: number;
  readonly repaired: number;
  readonly unrepairable: readonly DamagedObject[];
}

/** Returns the record of a server that never scrubbed: as if a pass had just ended. */
export function scrubRecordNew(nowMs: number): ScrubRecord {
  return { ...scrubRecordStart(nowMs), startedMs: null, finishedMs: nowMs };
}

export function scrubRecordStart(nowMs: number): ScrubRecord {
  return {
    startedMs: nowMs,
    finishedMs: null,
    file: 0,
    index: -1,
    objects: 0,
    bytes: 0,
    damaged: 0,
    repaired: 0,
    unrepairable: [],
  };
}

/** Null if there is none, or it is unreadable: only a pass is lost with it. */
export function scrubRecordRead(path: string): ScrubRecord | null {
  let value: unknown;
  try {
    value = JSON.parse(fs.readFileSync(path, 'utf8'));
  } catch (error) {
    if (errorCode(error) === 'ENOENT' || error instanceof SyntaxError) return null;
    throw error;
  }
  return isRecord(value) ? value : null;
}

/** Replaces the record atomically. It is not synced: after a loss of power an older one suffices. */
export function scrubRecordWrite(path: string, record: ScrubRecord): void {
  fs.writeFileSync(`${path}.new`, `${JSON.stringify(record)}\n`, { mode: 0o600 });
  fs.renameSync(`${path}.new`, path);
}

function isRecord(value: unknown): value is ScrubRecord {
  if (typeof value !== 'object' || value === null) return false;
  const fields = value as Record<string, unknown>;
  const isTime = (time: unknown) => time === null || Number.isFinite(time);
  const counts = ['file', 'index', 'objects', 'bytes', 'damaged', 'repaired'];
  return (
    isTime(fields.startedMs) &&
    isTime(fields.finishedMs) &&
    counts.every((name) => Number.isSafeInteger(fields[name])) &&
    Array.isArray(fields.unrepairable) &&
    fields.unrepairable.every(
      (object) => Number.isSafeInteger(object?.file) && Number.isSafeInteger(object?.index),
    )
  );
}
