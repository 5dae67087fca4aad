import fs from 'node:fs';
import path from 'node:path';
import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
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
  /**
   * CPU time of this thread in the longest one, and in all, in milliseconds; without pauses of the garbage collector,
   * which come also from what the process did before.
   */
  readonly longestMs: number;
  readonly totalMs: number;
}

interface Tick {
  readonly endMs: number;
  cpuMs: number;
}

/** Runs `work`, and measures each tick of the event loop until it, and all that it has queued, is done. */
export async function tickCosts(work: () => Promise<void>): Promise<TickCosts> {
  const pauses: PerformanceEntry[] = [];
  const observer = new PerformanceObserver((list) => void pauses.push(...list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  let isDone = false;
  const ticks: Tick[] = [];
  const beganMs = performance.now();
  let before = cpuMs();
  const running = work().finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await turn();
    const now = cpuMs();
    ticks.push({ endMs: performance.now(), cpuMs: now - before });
    before = now;
  }
  await running;
  // Node tells of the last pauses in a later tick.
  await turn();
  await turn();
  observer.disconnect();
  for (const { startTime, duration } of pauses) {
    const tick = startTime < beganMs ? undefined : ticks.find(({ endMs }) => startTime < endMs);
    if (tick !== undefined) tick.cpuMs = Math.max(0, tick.cpuMs - duration);
  }
  const costs = ticks.map((tick) => tick.cpuMs);
  return {
    ticks: ticks.length,
    longestMs: costs.reduce((longest, ms) => Math.max(longest, ms), 0),
    totalMs: costs.reduce((sum, ms) => sum + ms, 0),
  };
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
