import { Recount } from '../../catalog/recount.ts';
import { SLICE_ROWS } from '../../server/catalog/counter-check.ts';
import { FilledCatalog, processorUs } from './filled-catalog.ts';

export interface RecountFigures {
  readonly files: number;
  /** Processor time of the whole recount, without its pauses. */
  readonly totalMs: number;
  readonly slices: number;
  /** Processor time of the longest slice but one in a hundred. */
  readonly slice99Ms: number;
}

/** Measures the daily recount of the catalog's counters. */
export function measureRecount(files: number): RecountFigures {
  const { db } = new FilledCatalog(files);
  const recount = new Recount(db);
  const slices: number[] = [];
  for (let isEnd = false; !isEnd; ) {
    const beganUs = processorUs();
    isEnd = recount.step(SLICE_ROWS);
    slices.push((processorUs() - beganUs) / 1_000);
  }
  if (recount.wrongCounters().length > 0) throw new Error('A counter is wrong');
  db.close();
  const slice99Ms = slices.toSorted((a, b) => a - b)[Math.floor(slices.length * 0.99)] ?? 0;
  return { files, totalMs: slices.reduce((sum, ms) => sum + ms, 0), slices: slices.length, slice99Ms };
}

if (import.meta.main) {
  const { files, totalMs, slices, slice99Ms } = measureRecount(300_000);
  process.stdout.write(
    `${files} files: ${totalMs.toFixed(0)} ms of processor time in ${slices} slices, 99 % of them within ${slice99Ms.toFixed(1)} ms\n`,
  );
}
