import type { BenchFile, ReplicaCluster } from './replica-cluster.ts';
import { WriteSession } from './write-session.ts';

const WRITERS = 32;

/** The writes of one filling. */
export interface Filling {
  readonly count: number;
  /** The distance between the offsets of two writes. */
  readonly strideBytes: number;
  /** The bytes of each write. */
  readonly bytes: Uint8Array;
  /** No write begins later than this after the first. */
  readonly limitMs?: number;
}

/** Writes to many offsets of a file, with many concurrent clients. @returns the number of acknowledged writes */
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
