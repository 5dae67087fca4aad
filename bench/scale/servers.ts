import { readFileSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { LOOP_SAMPLE_MS } from '../../server/telemetry/metrics.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import { processCpuMs } from '../lease/cpu.ts';

const MIB = 2 ** 20;
const KIB_PER_MIB = 1_024;

/** Processor time of all running servers since their start, in milliseconds, by id. */
export function cpuOf(cluster: RealCluster, ids: readonly string[]): ReadonlyMap<string, number> {
  return new Map(ids.map((id) => [id, processCpuMs([{ pid: cluster.pid(id) }])]));
}

/** What servers have used between two samples, in milliseconds. */
export function cpuBetween(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
): { readonly all: number; readonly busiest: number } {
  const used = [...after].map(([id, ms]) => ms - (before.get(id) ?? 0));
  return { all: used.reduce((sum, ms) => sum + ms, 0), busiest: Math.max(...used) };
}

/** Free bytes of the disk that the servers share. */
export function freeBytes(cluster: RealCluster): number {
  const { bavail, bsize } = statfsSync(cluster.folder);
  return bavail * bsize;
}

export interface Memory {
  readonly now: number;
  readonly most: number;
  /** The part of `now` that is pages of files, such as the program: processes share it, and the kernel can drop it. */
  readonly ofFiles: number;
}

/** Memory of a server's process, in MiB. */
export function memoryOf(cluster: RealCluster, id: string): Memory {
  const status = readFileSync(`/proc/${cluster.pid(id)}/status`, 'utf8');
  const field = (name: string): number =>
    Math.round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]) / KIB_PER_MIB);
  return { now: field('VmRSS'), most: field('VmHWM'), ofFiles: field('RssFile') };
}

/** A server's databases with their logs, in MiB. */
export function databasesOf(cluster: RealCluster, id: string): string {
  return ['catalog.db', 'index.db']
    .map((name) => {
      const bytes = ['', '-wal'].reduce(
        (sum, end) => sum + sizeOf(join(cluster.data(id), `${name}${end}`)),
        0,
      );
      return `${name} ${(bytes / MIB).toFixed(0)} MiB`;
    })
    .join(', ');
}

/**
 * The longest tick of a server's event loop since it was last asked, in milliseconds; asking begins a new period. A
 * tick that ends between two samples is not seen, and of one that includes a sample only what follows.
 */
export async function longestTickOf(cluster: RealCluster, id: string): Promise<number> {
  const text = await (await fetch(`${cluster.url(id)}/metrics`)).text();
  const seconds = /^nodejs_eventloop_lag_max_seconds (\S+)$/m.exec(text)?.[1];
  return Math.max(0, Number(seconds) * 1_000 - LOOP_SAMPLE_MS);
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
