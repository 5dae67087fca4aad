/** Many seeds, in this thread or dealt out to several. */
import { Worker } from 'node:worker_threads';
import { type Tally, tallyAddTo, tallyEmpty } from './layer-runs.ts';
import type { LeaseRunOptions } from './lease-run.ts';
import type { PlantedLayer } from './planted.ts';
import { ReplicaCoverage } from './replica-coverage.ts';

export interface SeedShare {
  readonly layers: readonly PlantedLayer[];
  readonly options: LeaseRunOptions;
  readonly firstSeed: number;
  readonly step: number;
  readonly count: number;
}

export interface SeedFailure {
  readonly layer: PlantedLayer;
  readonly seed: number;
  readonly violation: string;
}

/** What a thread says now and then: what happened since it last did. */
export interface SeedReport {
  readonly sum: Tally;
  /** What the cores have traced, since the beginning. */
  readonly marks: readonly string[];
  /** How often everything happened that runs of the replica layer count. */
  readonly counts: Readonly<Record<string, number>>;
  readonly failure: SeedFailure | null;
  readonly done: boolean;
}

export interface SeedsOptions {
  readonly layers: readonly PlantedLayer[];
  readonly options: LeaseRunOptions;
  readonly firstSeed: number;
  /** Infinity: until one fails. */
  readonly count: number;
  readonly jobs: number;
  /** Called about once a second with everything so far. */
  readonly progress: (sum: Tally) => void;
}

export interface SeedsResult {
  readonly sum: Tally;
  readonly marks: ReadonlySet<string>;
  readonly counts: Readonly<Record<string, number>>;
  /** The failure of the smallest seed among those that threads have met. */
  readonly failure: SeedFailure | null;
}

/** Runs `count` seeds in `jobs` threads. The first failure ends all of them. */
export async function seedsRun(options: SeedsOptions): Promise<SeedsResult> {
  const { layers, firstSeed, count, jobs, progress } = options;
  const sum = tallyEmpty();
  const marks = new Set<string>();
  const coverage = new ReplicaCoverage();
  const failures: SeedFailure[] = [];
  const workers: Worker[] = [];
  const threads = Math.min(jobs, count);
  const ends = Array.from({ length: threads }, (_, index) => {
    const share: SeedShare = {
      layers,
      options: options.options,
      firstSeed: firstSeed + index,
      step: threads,
      count: count === Infinity ? Infinity : Math.ceil((count - index) / threads),
    };
    const worker = new Worker(new URL('seed-worker.ts', import.meta.url), { workerData: share });
    workers.push(worker);
    return new Promise<void>((resolve, reject) => {
      worker.on('error', reject);
      worker.on('exit', () => resolve());
      worker.on('message', (report: SeedReport) => {
        tallyAddTo(sum, report.sum);
        for (const mark of report.marks) marks.add(mark);
        coverage.addAll(0, report.counts);
        if (report.failure !== null) failures.push(report.failure);
        progress(sum);
        if (report.failure !== null) for (const other of workers) void other.terminate();
      });
    });
  });
  await Promise.all(ends);
  failures.sort((a, b) => a.seed - b.seed);
  return { sum, marks, counts: coverage.counts(), failure: failures[0] ?? null };
}
