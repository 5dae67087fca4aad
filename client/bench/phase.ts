import { createHistogram } from 'node:perf_hooks';
import { systemWorld } from '../../world/system-world.ts';

/** A measurement: each of several workers performs one operation after another. */
export interface Phase {
  readonly name: string;
  readonly operationBytes: number;
  step(worker: number, count: number): Promise<void>;
}

export interface PhaseResult {
  readonly name: string;
  readonly operations: number;
  readonly errors: number;
  readonly seconds: number;
  readonly perSecond: number;
  readonly bytesPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

const US_PER_MS = 1000;
const NOTHING_US = 1;

/** Measures a phase for `durationMs`, or until `signal`. A failed operation counts as an error and has no time. */
export async function runPhase(
  phase: Phase,
  options: {
    readonly workers: number;
    readonly durationMs: number;
    readonly signal: AbortSignal;
    failed(error: unknown): void;
  },
): Promise<PhaseResult> {
  const { workers, durationMs, signal, failed } = options;
  const times = createHistogram();
  let errors = 0;
  const beganMs = systemWorld.nowMs();
  const work = async (worker: number): Promise<void> => {
    for (let count = 0; !signal.aborted && systemWorld.nowMs() - beganMs < durationMs; count++) {
      const stepMs = systemWorld.nowMs();
      try {
        await phase.step(worker, count);
        times.record(Math.max(NOTHING_US, Math.round((systemWorld.nowMs() - stepMs) * US_PER_MS)));
      } catch (error) {
        if (signal.aborted) return;
        errors += 1;
        failed(error);
      }
    }
  };
  await Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)));
  const seconds = (systemWorld.nowMs() - beganMs) / 1000;
  const operations = times.count;
  const milliseconds = (us: number): number => (operations === 0 ? 0 : us / US_PER_MS);
  return {
    name: phase.name,
    operations,
    errors,
    seconds: rounded(seconds),
    perSecond: rounded(operations / seconds),
    bytesPerSecond: Math.round((operations * phase.operationBytes) / seconds),
    p50Ms: rounded(milliseconds(times.percentile(50))),
    p99Ms: rounded(milliseconds(times.percentile(99))),
    maxMs: rounded(milliseconds(times.max)),
  };
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
