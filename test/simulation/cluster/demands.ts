/** What the seeds of the short form must have together. */
import { FAST_PATHS } from './fast-paths.ts';
import type { Fault } from './fault.ts';
import { FAULTS } from './faults.ts';
import type { Workload } from './workload.ts';
import { WORKLOADS } from './workloads/all.ts';

const HTTP_FAULTS = ['requestLost', 'answerLost', 'late', 'afterCallerGone'].map((name) => `http ${name}`);
/** Errors that servers must return while the faults of the table happen. */
const REFUSALS = ['exists', 'not-found', 'not-primary', 'no-majority', 'recovering'].map(
  (code) => `refused ${code}`,
);

/** @returns names of counts */
export function demandsOf(
  workloads: readonly Workload[] = WORKLOADS,
  faults: readonly Fault[] = FAULTS,
): string[] {
  return [
    ...faults.map(({ name }) => name),
    ...workloads.flatMap(({ demands }) => demands),
    ...[...HTTP_FAULTS, ...REFUSALS, ...FAST_PATHS, 'power of all', 'views', 'converged'],
  ];
}

/** @returns the demands that the counts do not meet */
export function missedIn(coverage: ReadonlyMap<string, number>, demands = demandsOf()): string[] {
  return demands.filter((name) => (coverage.get(name) ?? 0) === 0);
}
