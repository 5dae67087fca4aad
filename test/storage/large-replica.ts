import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { FileId } from '../../base/ids.ts';
import { containerName } from '../../wire/locations.ts';
import { begin, epoch, NO_SESSIONS } from '../conformance/store.ts';
import type { DiskFixture } from './stores.ts';

export const LARGE_OBJECT_BYTES = 128 * 1024;
const ROWS_PER_TRANSACTION = 100_000;

/**
 * Makes a replica of `sizeBytes` in operation 1 of epoch 1, whose first `objectCount` objects the index has, written
 * directly into it. The container is a hole, so the objects cannot be read: this shows the costs of the index, and
 * neither those of contents nor of a disk that is that full.
 */
export async function makeLargeReplica(
  fixture: DiskFixture,
  file: FileId,
  sizeBytes: number,
  objectCount: number,
): Promise<void> {
  await begin(fixture.store, file, LARGE_OBJECT_BYTES);
  const size = { kind: 'truncate', sizeBytes, modifiedNs: 1n } as const;
  await fixture.store.apply(file, epoch(1), 1, size, NO_SESSIONS);
  await fixture.store.flush(file);
  await fixture.close();
  const index = new Database(path.join(fixture.path, 'index.db'));
  const insert = index.prepare(
    `WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
      INSERT INTO objects (file, idx, version_epoch, version_seq, length, crc32, slot)
      SELECT ?, n, 1, 1, ?, n, n FROM numbers`,
  );
  for (let at = 0; at < objectCount; at += ROWS_PER_TRANSACTION) {
    insert.run(at, Math.min(objectCount, at + ROWS_PER_TRANSACTION), file, LARGE_OBJECT_BYTES);
  }
  index.close();
  const container = path.join(fixture.path, 'objects', containerName(file));
  fs.closeSync(fs.openSync(container, 'w'));
  fs.truncateSync(container, objectCount * LARGE_OBJECT_BYTES);
  await fixture.open();
}

export interface TickCosts {
  /** Ticks of the event loop. */
  readonly ticks: number;
  /** CPU time of this thread in the longest one, and in all, in milliseconds. */
  readonly longestMs: number;
  readonly totalMs: number;
}

/** Runs `work`, and measures each tick of the event loop until it, and all that it has queued, is done. */
export async function tickCosts(work: () => Promise<void>): Promise<TickCosts> {
  let isDone = false;
  let [ticks, longestMs, totalMs] = [0, 0, 0];
  let before = cpuMs();
  const running = work().finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await new Promise((resolve) => setImmediate(resolve));
    const now = cpuMs();
    longestMs = Math.max(longestMs, now - before);
    totalMs += now - before;
    before = now;
    ticks++;
  }
  await running;
  return { ticks, longestMs, totalMs };
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
