/** A thread that runs every n-th seed and reports about once a second; see `seeds.ts`. */
import { parentPort, workerData } from 'node:worker_threads';
import { layerRun, tallyEmpty } from './layer-runs.ts';
import { ReplicaCoverage } from './replica-coverage.ts';
import type { SeedReport, SeedShare } from './seeds.ts';

const REPORT_EVERY_MS = 500;

const { layers, options, firstSeed, step, count } = workerData as SeedShare;

let sum = tallyEmpty();
const marks = new Set<string>();
let coverage = new ReplicaCoverage();
let reportedMs = performance.now();

function report(rest: Partial<SeedReport>): void {
  parentPort?.postMessage({
    sum,
    marks: [...marks],
    counts: coverage.counts(),
    failure: null,
    done: false,
    ...rest,
  });
  sum = tallyEmpty();
  coverage = new ReplicaCoverage();
  reportedMs = performance.now();
}

function work(): void {
  for (let i = 0; i < count; i++) {
    const seed = firstSeed + i * step;
    for (const layer of layers) {
      const violation = layerRun(layer, seed, options, sum, marks, coverage);
      if (violation === null) continue;
      report({ failure: { layer, seed, violation }, done: true });
      return;
    }
    if (performance.now() - reportedMs >= REPORT_EVERY_MS) report({});
  }
  report({ done: true });
}

work();
