import fs from 'node:fs';
import { errorCode } from '../storage/failures.ts';
import type { DamagedObject } from './repairer.ts';

/** What a scrubber remembers over restarts. Times are milliseconds since 1970. */
export interface ScrubRecord {
  /** Begin of the pass under way, or of the last one; null before the first. */
  readonly startedMs: number | null;
  /** End of the last pass; null while one is under way. */
  readonly finishedMs: number | null;
  /** The pass goes on behind this object of this file. */
  readonly file: number;
  readonly index: number;
  readonly objects: number;
  readonly bytes: number;
  readonly damaged: number;
  readonly repaired: number;
  /** Objects that no server had whole, a bounded number of them. */
  readonly unrepairable: readonly DamagedObject[];
}

/** @returns the record of a server that never scrubbed: as if a pass had just ended */
export function scrubRecordNew(nowMs: number): ScrubRecord {
  return { ...scrubRecordStart(nowMs), startedMs: null, finishedMs: nowMs };
}

/** @returns the record of a pass that begins now */
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

/** @returns null where there is none, or none that can be read: nothing but a pass is lost with it */
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

/** Replaces the record as a whole. It is not synced: after a loss of power an older one will do. */
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
