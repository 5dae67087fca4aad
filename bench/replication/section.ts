import type { Report } from '../lease/report.ts';
import type { ReplicaCluster, Timing } from './replica-cluster.ts';

/** What a section finds when it runs. */
export interface Bench {
  /** Everything small: to see that it works, not how fast. */
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly runs: number;
  /** Three servers of a section's own, to be stopped by it. */
  servers(timing: Timing): Promise<ReplicaCluster>;
  /** Tells whoever waits what is being done. */
  progress(text: string): void;
}

export interface Section {
  readonly title: string;
  run(bench: Bench): Promise<Report>;
}
