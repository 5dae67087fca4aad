import type { Report } from '../lease/report.ts';
import type { ReplicaCluster, Timing } from './replica-cluster.ts';

/** What a section needs to run. */
export interface Bench {
  /** Small amounts: to see that it works, not how fast. */
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly runs: number;
  /** Starts three servers for one section, which must stop them. */
  servers(timing: Timing): Promise<ReplicaCluster>;
  /** Prints what is being measured. */
  progress(text: string): void;
}

export interface Section {
  readonly title: string;
  run(bench: Bench): Promise<Report>;
}
