/** Runs many seeds in several threads. */
import { Worker } from 'node:worker_threads';
import { type Counts, countsAdd, type Layer } from './layer-runs.ts';
import type { LeaseRunOptions } from './lease-run.ts';

/** The seeds of one thread. */
export interface SeedShare {
  readonly layers: readonly Layer[];
  readonly options: LeaseRunOptions;
  readonly firstSeed: number;
  readonly step: number;
  readonly count: number;
}

export interface SeedFailure {
  readonly layer: Layer;
  readonly seed: number;
  readonly violation: string;
}

/** By layer; `runs` is one of the counts. */
export type LayerCounts = Readonly<Record<Layer, Counts>>;

/** The report of a thread, about once a second: the counts since its last one. */
export interface SeedReport {
  readonly counts: LayerCounts;
  readonly failure: SeedFailure | null;
}

export interface SeedsOptions {
  readonly layers: readonly Layer[];
  readonly options?: LeaseRunOptions;
  readonly firstSeed: number;
  /** Infinity: until one fails. */
  readonly count: number;
  readonly jobs: number;
  /** Called about once a second with the counts so far. */
  readonly progress?: (counts: LayerCounts) => void;
}

export interface SeedsResult {
  readonly counts: LayerCounts;
  /** The failure with the smallest seed among those of all threads. */
  readonly failure: SeedFailure | null;
}

export const NO_COUNTS: LayerCounts = { lease: {}, claim: {}, replica: {} };

export function layerCountsAdd(sum: LayerCounts, added: LayerCounts): LayerCounts {
  const layers = (Object.keys(sum) as Layer[]).map((layer) => [layer, countsAdd(sum[layer], added[layer])]);
  return Object.fromEntries(layers) as LayerCounts;
}

/** Runs `count` seeds in `jobs` threads. The first failure ends all of them. */
export async function seedsRun(wanted: SeedsOptions): Promise<SeedsResult> {
  const { layers, options = {}, firstSeed, count, jobs, progress } = wanted;
  let counts = NO_COUNTS;
  const failures: SeedFailure[] = [];
  const workers: Worker[] = [];
  const step = Math.min(jobs, count);
  const ends = Array.from({ length: step }, (_, index) => {
    const own = count === Infinity ? Infinity : Math.ceil((count - index) / step);
    const share: SeedShare = { layers, options, firstSeed: firstSeed + index, step, count: own };
    const worker = new Worker(new URL('seed-worker.ts', import.meta.url), { workerData: share });
    workers.push(worker);
    return new Promise<void>((resolve, reject) => {
      worker.on('error', reject);
      worker.on('exit', () => resolve());
      worker.on('message', (report: SeedReport) => {
        counts = layerCountsAdd(counts, report.counts);
        progress?.(counts);
        if (report.failure === null) return;
        failures.push(report.failure);
        for (const other of workers) void other.terminate();
      });
    });
  });
  await Promise.all(ends);
  failures.sort((a, b) => a.seed - b.seed);
  return { counts, failure: failures[0] ?? null };
}
