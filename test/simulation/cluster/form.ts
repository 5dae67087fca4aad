/** Runs the seeds of a form in two processes, and judges them together. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { costText } from './arguments.ts';
import type { RunOptions } from './cluster-run.ts';
import { missedIn } from './demands.ts';
import { runSeeds, type SeedLine, Totals } from './seed-pool.ts';

const JOBS = 2;

/**
 * @param demands names of counts: each must be counted in one of the runs
 * @returns the lines of all runs, none of which has a violation
 */
export async function playForm(
  t: TestContext,
  runs: readonly RunOptions[],
  demands: readonly string[],
): Promise<readonly SeedLine[]> {
  const left = [...runs];
  const totals = new Totals();
  const next = (): RunOptions | null => (totals.failed.length > 0 ? null : (left.shift() ?? null));
  await runSeeds(JOBS, next, (line) => totals.add(line));
  const { cpuS, simulatedS, operations, events } = totals.sum;
  const cost = costText(simulatedS * 1_000, operations, events, cpuS);
  t.diagnostic(
    `${totals.lines.length} seeds, ${simulatedS.toFixed(0)} s, ${operations} operations, ${events} events; ${cost}`,
  );
  const failed = totals.failed.map(({ command, violations }) => ({ command, violations }));
  assert.deepEqual(failed, []);
  const all = JSON.stringify(Object.fromEntries([...totals.coverage].sort()));
  assert.deepEqual(missedIn(totals.coverage, [...demands]), [], `Of ${all}`);
  return totals.lines;
}
