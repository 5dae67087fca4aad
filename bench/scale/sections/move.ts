import { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import { RealCluster } from '../../../test/cluster/real-cluster.ts';
import { systemWorld } from '../../../world/system-world.ts';
import type { Wanted } from '../arguments.ts';
import { Filler } from '../filler.ts';
import { quiet } from '../measures.ts';
import type { Report } from '../report.ts';
import { cpuBetween, cpuOf, longestTickOf } from '../servers.ts';

const VOLUME = 'moved';
const CHANGE_MS_MAX = 3_600_000;
const TICK_MS_MAX = 20;

interface Longest {
  changeMs: number;
  readMs: number;
}

/** A volume of many files moves out of the root catalog: how long its changes wait, and what that costs. */
export async function moveSection({ files, bytes }: Wanted, report: Report): Promise<void> {
  const cluster = await RealCluster.start({ lease: '5s' });
  try {
    await cluster.createVolume(VOLUME);
    await new Filler(cluster, VOLUME, bytes).fillTo(files);
    await quiet(cluster, cluster.ids);
    for (const id of cluster.ids) await longestTickOf(cluster, id);
    const before = cpuOf(cluster, cluster.ids);
    const beganMs = performance.now();
    const longest = await moved(cluster);
    const seconds = (performance.now() - beganMs) / 1_000;
    const { all } = cpuBetween(before, cpuOf(cluster, cluster.ids));
    const ticks = await Promise.all(cluster.ids.map((id) => longestTickOf(cluster, id)));
    const perFile = (ms: number): string => `${((ms * 1_000) / files).toFixed(0)} µs a file`;
    report.row(
      `a volume of ${files} files moves to a catalog of its own`,
      `${seconds.toFixed(1)} s, of processor ${perFile(all)}`,
    );
    report.row(
      'the longest wait of a change during the move',
      `${(longest.changeMs / 1_000).toFixed(1)} s, ${perFile(longest.changeMs)}`,
    );
    report.row('the longest read of a name during the move', `${longest.readMs.toFixed(0)} ms`);
    const tickMs = Math.max(...ticks);
    report.row(
      'the longest tick during the move',
      `${tickMs.toFixed(0)} ms`,
      `${TICK_MS_MAX} ms`,
      tickMs <= TICK_MS_MAX,
    );
  } finally {
    await cluster.stop();
  }
}

/** Moves the volume while one client changes it and another reads it, one request after the other. */
async function moved(cluster: RealCluster): Promise<Longest> {
  const longest: Longest = { changeMs: 0, readMs: 0 };
  const options = { world: systemWorld, servers: cluster.urls, operationTimeoutMs: CHANGE_MS_MAX };
  await using changing = new ClusterClient(options);
  await using reading = new ClusterClient(options);
  await changing.useVolume(VOLUME);
  let isOver = false;
  const repeated = async (of: keyof Longest, work: (round: number) => Promise<unknown>): Promise<void> => {
    for (let round = 0; !isOver; round++) {
      const beganMs = performance.now();
      await work(round);
      longest[of] = Math.max(longest[of], performance.now() - beganMs);
    }
  };
  const load = Promise.all([
    repeated('changeMs', (round) =>
      changing.command({
        ...{ kind: 'make-directory', place: { volume: VOLUME, path: `/meanwhile-${round}` } },
        ...{ mode: 0o755, uid: 0, gid: 0 },
      } as const),
    ),
    repeated('readMs', () => reading.resolve(VOLUME, '/d0')),
  ]);
  await using client = new ClusterClient(options);
  await client.command({ kind: 'volume-move', name: VOLUME });
  while ((await client.catalogOfVolume(VOLUME)) === 0) await systemWorld.sleep(100);
  isOver = true;
  await load;
  return longest;
}
