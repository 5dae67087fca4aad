import type { BenchFile, ReplicaCluster } from './replica-cluster.ts';
import { WriteSession } from './write-session.ts';

const WRITERS = 32;

/** Where the writes of one filling go. */
export interface Filling {
  readonly count: number;
  /** From the begin of one write to that of the next. */
  readonly strideBytes: number;
  /** What each of them writes. */
  readonly bytes: Uint8Array;
  /** No write begins later than this after the first. */
  readonly limitMs?: number;
}

/** Writes to many places of a file from many clients at a time. @returns how many writes were acknowledged */
export async function fill(
  servers: ReplicaCluster,
  { file, path }: BenchFile,
  { count, strideBytes, bytes, limitMs = Number.POSITIVE_INFINITY }: Filling,
): Promise<number> {
  const pool = servers.pool(await servers.cluster.primaryOf(path));
  const deadlineMs = performance.now() + limitMs;
  let next = 0;
  const writer = async (): Promise<void> => {
    const session = await WriteSession.begin(servers, file);
    while (next < count && performance.now() < deadlineMs) {
      const place = next;
      next += 1;
      await session.write(pool, place * strideBytes, bytes);
    }
  };
  await Promise.all(Array.from({ length: Math.min(WRITERS, count) }, writer));
  return next;
}
