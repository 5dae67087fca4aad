import type { Run } from './run.ts';

/** What must hold of each run, whatever its workloads. */
export interface Judge {
  /** While faults happen and programs run. */
  look?(run: Run): void;
  /** The cluster has been without faults and programs for a while. */
  quiet?(run: Run): Promise<void>;
  /** At the end. */
  judge?(run: Run): void;
}
