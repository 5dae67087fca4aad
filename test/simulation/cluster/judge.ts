import { ConvergenceJudge } from './judges/convergence.ts';
import { HistoryJudge } from './judges/history.ts';
import { MembersJudge } from './judges/members.ts';
import type { Run } from './run.ts';

/** A rule of each run, whatever its workloads. */
export interface Judge {
  /** Checks while faults happen and programs run. */
  look?(run: Run): void;
  /** Checks after all faults and programs have ended. */
  quiet?(run: Run): Promise<void>;
  /** Checks at the end. */
  judge?(run: Run): void;
}

/** @returns the judges of one run, in the order in which they judge */
export function judges(): readonly Judge[] {
  return [new ConvergenceJudge(), new MembersJudge(), new HistoryJudge()];
}
