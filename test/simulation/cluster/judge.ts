import { ConvergenceJudge } from './judges/convergence.ts';
import { HistoryJudge } from './judges/history.ts';
import { MembersJudge } from './judges/members.ts';
import type { Run } from './run.ts';

/** What must hold of each run, whatever its workloads. */
export interface Judge {
  /** While faults happen and programs run. */
  look?(run: Run): void;
  /** The cluster has no faults and no programs any more. */
  quiet?(run: Run): Promise<void>;
  /** At the end. */
  judge?(run: Run): void;
}

/** @returns the judges of one run, in the order in which they judge */
export function judges(): readonly Judge[] {
  return [new ConvergenceJudge(), new MembersJudge(), new HistoryJudge()];
}
