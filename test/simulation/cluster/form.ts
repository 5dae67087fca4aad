/** Plays the seeds of a form in two processes, and judges what they met together. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { costText } from './arguments.ts';
import type { RunOptions } from './cluster-run.ts';
import { missedIn } from './demands.ts';
import { runSeeds, type SeedLine } from './seed-pool.ts';

const JOBS = 2;

/**
 * @param demands names of the coverage: each is to happen in one of the runs
 * @returns the lines of all runs, none of which has a violation
 */
export async function playForm(
  t: TestContext,
  runs: readonly RunOptions[],
  demands: readonly string[],
): Promise<SeedLine[]> {
  const left = [...runs];
  const lines: SeedLine[] = [];
  const coverage = new Map<string, number>();
  const failed: { readonly command: string; readonly violations: readonly string[] }[] = [];
  await runSeeds(
    JOBS,
    () => (failed.length > 0 ? null : (left.shift() ?? null)),
    (line) => {
      lines.push(line);
      if (line.violations.length > 0) failed.push(line);
      for (const [what, count] of Object.entries(line.coverage))
        coverage.set(what, (coverage.get(what) ?? 0) + count);
    },
  );
  const sum = (amount: (line: SeedLine) => number): number =>
    lines.reduce((all, line) => all + amount(line), 0);
  const [simulatedS, operations, events] = [
    ...[sum((line) => line.simulatedS), sum((line) => line.operations), sum((line) => line.events)],
  ] as [number, number, number];
  const cost = costText(
    simulatedS * 1_000,
    operations,
    events,
    sum(({ cpuS }) => cpuS),
  );
  t.diagnostic(
    `${lines.length} seeds, ${simulatedS.toFixed(0)} s, ${operations} operations, ${events} events; ${cost}`,
  );
  assert.deepEqual(
    failed.map(({ command, violations }) => ({ command, violations })),
    [],
  );
  const all = JSON.stringify(Object.fromEntries([...coverage].sort()));
  assert.deepEqual(missedIn(coverage, [...demands]), [], `Of ${all}`);
  return lines;
}
