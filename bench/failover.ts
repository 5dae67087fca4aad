import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../client/cluster/cluster-client.ts';
import { type RealCluster, until } from '../test/cluster/real-cluster.ts';
import { systemWorld } from '../world/system-world.ts';

export interface FailoverFigures {
  /** Time without an acknowledged write around each kill, as a client sees it, in milliseconds. */
  readonly gapsMs: readonly number[];
  /** Lease, clock skew, and half a second for an election and a reset on a busy machine. */
  readonly boundMs: number;
}

const ELECTION_AND_RESET_MS = 500;

/** Kills the primary of a file that is written without pause, again and again. */
export async function measureFailover(cluster: RealCluster, kills: number): Promise<FailoverFigures> {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls, operationTimeoutMs: 30_000 });
  const { timing } = await client.status();
  const created = await client.command({
    kind: 'create-file',
    place: { volume: 'main', path: '/failover' },
    mode: 0o644,
    uid: 0,
    gid: 0,
    exclusive: true,
  });
  const file = await client.openFile(created.attributes.inode, { replicas: created.attributes.replicas });
  let lastMs = performance.now();
  let longestMs = 0;
  let writing = true;
  const writer = (async () => {
    for (let number = 0; writing; number++) {
      await file.write((number % 64) * 4096, Buffer.alloc(4096, number));
      const nowMs = performance.now();
      longestMs = Math.max(longestMs, nowMs - lastMs);
      lastMs = nowMs;
    }
  })();
  const gapsMs: number[] = [];
  for (let kill = 0; kill < kills; kill++) {
    await until('all replicas are current', async () => {
      const info = await cluster.info(cluster.ids[kill % cluster.ids.length] as string, 'main/failover');
      return info.primary !== null && info.replicas.every((replica) => replica.state === 'current');
    });
    const { primary } = await cluster.info(cluster.ids[0] as string, 'main/failover');
    if (primary === null) throw new Error('The file has no primary');
    longestMs = 0;
    await cluster.kill(primary);
    const killedMs = performance.now();
    while (lastMs < killedMs + 50) await delay(5);
    gapsMs.push(longestMs);
    cluster.spawn(primary);
    await cluster.ready();
  }
  writing = false;
  await writer;
  await client.close();
  return { gapsMs, boundMs: timing.leaseMs + timing.clockSkewMaxMs + ELECTION_AND_RESET_MS };
}
