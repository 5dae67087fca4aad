import { setTimeout as delay } from 'node:timers/promises';
import type { ClusterMount } from '../cluster/cluster-mount.ts';
import { type RealCluster, until } from '../cluster/real-cluster.ts';

/** Faults of a cluster and its mounts during use. */
export const FAULTS = ['kill', 'freeze', 'freeze-mount'] as const;
export type Fault = (typeof FAULTS)[number];

/** Longer than any cache session. */
const FROZEN_MS = 7_000;
const BETWEEN_MS = 2_000;

async function catalogPrimary(cluster: RealCluster): Promise<string> {
  let found: string | null = null;
  await until('the catalog has a primary', async () => {
    for (const id of cluster.ids) {
      if (!cluster.isRunning(id)) continue;
      ({ primary: found } = (await cluster.status(id)).catalog);
      if (found !== null && cluster.isRunning(found)) return true;
    }
    return false;
  });
  if (found === null) throw new Error('unreachable');
  return found;
}

async function once(
  fault: Fault,
  cluster: RealCluster,
  mounts: readonly ClusterMount[],
  turn: number,
): Promise<void> {
  switch (fault) {
    case 'kill': {
      const primary = await catalogPrimary(cluster);
      await cluster.kill(primary);
      await delay(BETWEEN_MS);
      cluster.spawn(primary);
      await cluster.ready([primary]);
      return;
    }
    case 'freeze':
      return freeze(cluster.pid(await catalogPrimary(cluster)));
    case 'freeze-mount':
      return freeze((mounts[turn % mounts.length] as ClusterMount).pid);
  }
}

async function freeze(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  try {
    await delay(FROZEN_MS);
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

/** Injects faults one after the other, with pauses. @returns their number, once `signal` is aborted */
export async function befall(
  faults: readonly Fault[],
  cluster: RealCluster,
  mounts: readonly ClusterMount[],
  signal: AbortSignal,
): Promise<number> {
  let count = 0;
  while (!signal.aborted) {
    const fault = faults[count % faults.length];
    if (fault === undefined) return count;
    await delay(BETWEEN_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return count;
    process.stderr.write(`${Math.round(performance.now())} ms: ${fault}\n`);
    await once(fault, cluster, mounts, count);
    count++;
  }
  return count;
}
