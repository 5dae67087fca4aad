/** What the seeds of the CI form must have met together. */
import { FAST_PATHS } from './fast-paths.ts';
import { FAULTS } from './faults.ts';
import { WORKLOADS } from './workloads/all.ts';

const HTTP_FAULTS = ['requestLost', 'answerLost', 'late', 'afterCallerGone'].map((name) => `http ${name}`);
/** Failures of the catalogue that servers answer while the faults of the table happen. */
const REFUSALS = [
  ...['exists', 'not-found', 'not-primary', 'no-majority', 'recovering', 'unknown', 'busy', 'no-space'],
].map((code) => `refused ${code}`);

export const DEMANDS: readonly string[] = [
  ...FAULTS.map(({ name }) => name),
  ...WORKLOADS.flatMap(({ demands }) => demands),
  ...[...HTTP_FAULTS, ...REFUSALS, ...FAST_PATHS, 'power of all', 'views'],
];

/** @returns the demands that a coverage does not meet */
export function missedIn(coverage: ReadonlyMap<string, number>): string[] {
  return DEMANDS.filter((name) => (coverage.get(name) ?? 0) === 0);
}
