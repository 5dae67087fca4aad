/** A thread that runs every n-th seed and reports about once a second; see `seeds.ts`. */
import { parentPort, workerData } from 'node:worker_threads';
import { countsAdd, LAYER_RUNS } from './layer-runs.ts';
import { NO_COUNTS, type SeedFailure, type SeedReport, type SeedShare } from './seeds.ts';

const REPORT_EVERY_MS = 500;

const { layers, options, firstSeed, step, count } = workerData as SeedShare;

let counts = NO_COUNTS;
let reportedMs = performance.now();

function report(failure: SeedFailure | null): void {
  parentPort?.postMessage({ counts, failure } satisfies SeedReport);
  counts = NO_COUNTS;
  reportedMs = performance.now();
}

/** @returns the first failure */
function work(): SeedFailure | null {
  for (let i = 0; i < count; i++) {
    const seed = firstSeed + i * step;
    for (const layer of layers) {
      const { violation, counts: added } = LAYER_RUNS[layer](seed, options);
      counts = { ...counts, [layer]: countsAdd(counts[layer], { runs: 1, ...added }) };
      if (violation !== null) return { layer, seed, violation };
    }
    if (performance.now() - reportedMs >= REPORT_EVERY_MS) report(null);
  }
  return null;
}

report(work());
