import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import { systemWorld } from '../../world/system-world.ts';
import { DIRECTORY_FILES, type Filler } from './filler.ts';
import { cpuBetween, cpuOf, longestTickOf, type Memory, memoryOf } from './servers.ts';

const LISTINGS = 21;
const CREATES = 2_000;
const CREATORS = 8;

/** Median time of a listing of a whole directory, in milliseconds. */
export async function listingMs(cluster: RealCluster, volume: string, filler: Filler): Promise<number> {
  await using client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const times: number[] = [];
  for (let round = 0; round < LISTINGS; round++) {
    const { inode } = await client.resolve(volume, filler.randomDirectory());
    const beganMs = performance.now();
    const { entries } = await client.query({ kind: 'list', inode, after: '', countMax: DIRECTORY_FILES });
    times.push(performance.now() - beganMs);
    if (entries.length !== DIRECTORY_FILES) throw new Error(`A directory lists ${entries.length} names`);
  }
  return times.sort((a, b) => a - b)[(LISTINGS - 1) / 2] as number;
}

export interface CreateCost {
  /** Milliseconds of processor of all servers for a thousand creates. */
  readonly cpuMs: number;
  /** The same of the server that used most. */
  readonly busiestMs: number;
  readonly perSecond: number;
}

/** Creates empty files, one command each, in new directories of volumes in turn. */
export async function createCost(
  cluster: RealCluster,
  volumes: readonly string[],
  label: string,
  count = CREATES,
): Promise<CreateCost> {
  await using client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const owner = { uid: 0, gid: 0 };
  for (const volume of volumes)
    await client.command({
      ...{ kind: 'make-directory', place: { volume, path: `/${label}` }, mode: 0o755, ...owner },
    } as const);
  const running = cluster.ids.filter((id) => cluster.isRunning(id));
  const before = cpuOf(cluster, running);
  const beganMs = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const number = next++;
      const volume = volumes[number % volumes.length] as string;
      const place = { volume, path: `/${label}/${number}` };
      await client.command({
        ...{ kind: 'create-file', place, mode: 0o644, exclusive: true, ...owner },
      } as const);
    }
  };
  await Promise.all(Array.from({ length: CREATORS }, worker));
  const seconds = (performance.now() - beganMs) / 1_000;
  const { all, busiest } = cpuBetween(before, cpuOf(cluster, running));
  const perThousand = (ms: number): number => (ms / count) * 1_000;
  return { cpuMs: perThousand(all), busiestMs: perThousand(busiest), perSecond: count / seconds };
}

const QUIET_PERIOD_MS = 3_000;
const QUIET_PART = 0.05;
const QUIET_LIMIT_MS = 600_000;

/** Waits while servers finish what a load has left: syncs, sizes, comparisons. @returns the seconds that it took */
export async function quiet(cluster: RealCluster, ids: readonly string[]): Promise<number> {
  const beganMs = performance.now();
  for (;;) {
    const { largestPart } = await idleOf(cluster, ids, QUIET_PERIOD_MS / 1_000);
    const waitedMs = performance.now() - beganMs;
    if (largestPart < QUIET_PART || waitedMs > QUIET_LIMIT_MS) return waitedMs / 1_000;
  }
}

export interface Idle {
  /** Part of one core, by server: the mean and the largest. */
  readonly meanPart: number;
  readonly largestPart: number;
  readonly tickMs: number;
  /** The most of one server, with garbage that is not yet collected. */
  readonly memoryMiB: number;
}

/** Observes servers that no client uses. */
export async function idleOf(cluster: RealCluster, ids: readonly string[], seconds: number): Promise<Idle> {
  for (const id of ids) await longestTickOf(cluster, id);
  const before = cpuOf(cluster, ids);
  const beganMs = performance.now();
  await delay(seconds * 1_000);
  const { all, busiest } = cpuBetween(before, cpuOf(cluster, ids));
  const ms = performance.now() - beganMs;
  const ticks = await Promise.all(ids.map((id) => longestTickOf(cluster, id)));
  return {
    meanPart: all / ids.length / ms,
    largestPart: busiest / ms,
    tickMs: Math.max(...ticks),
    memoryMiB: Math.max(...ids.map((id) => memoryOf(cluster, id).now)),
  };
}

const SAMPLE_MS = 10_000;
/** V8 lets garbage grow to three times what is in use, and returns its memory after 100 s without a collection. */
const STEADY_MS = 150_000;
const STEADY_LIMIT_MS = 1_200_000;
/** A smaller change is none. */
const STEADY_PART = 0.98;

/** The largest memory of servers that no client uses, once it does not decrease any more. */
export async function restedMemory(cluster: RealCluster, ids: readonly string[]): Promise<Memory> {
  const largest = (): Memory => {
    const all = ids.map((id) => memoryOf(cluster, id));
    return all.reduce((most, memory) => (memory.now > most.now ? memory : most));
  };
  const beganMs = performance.now();
  let least = largest();
  let leastAtMs = beganMs;
  while (performance.now() - leastAtMs < STEADY_MS && performance.now() - beganMs < STEADY_LIMIT_MS) {
    await delay(SAMPLE_MS);
    const memory = largest();
    if (memory.now < STEADY_PART * least.now) leastAtMs = performance.now();
    if (memory.now < least.now) least = memory;
  }
  return least;
}
