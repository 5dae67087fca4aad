import type { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import type { ClientProgram, MountProgram } from './program.ts';
import type { Run } from './run.ts';
import type { ClusterShape } from './simulated-cluster.ts';

/** The work of programs with a cluster, and its rules. */
export interface Workload {
  readonly name: string;
  /** Names of counts that the seeds of the short form must have. */
  readonly demands: readonly string[];
  /** Whether a cluster of this shape can run it; absent: each can. */
  readonly fits?: (shape: ClusterShape) => boolean;
  /** It knows what was synced: all servers may lose their power at once during it. */
  readonly toleratesPowerOfAll?: boolean;
  /** Called before all programs. */
  prepare?(run: Run, client: ClusterClient): Promise<void>;
  /** One thread of a client of the library, until `program.isEnding`. */
  client?(program: ClientProgram): Promise<void>;
  /** One process on a mount, until `program.isEnding`. */
  mount?(program: MountProgram): Promise<void>;
  /** Called after all faults and all programs have ended. */
  settle?(run: Run, client: ClusterClient): Promise<void>;
  /**
   * Called before all servers lose their power at once: flushes something.
   *
   * @returns a check that it is still there
   */
  flush?(run: Run, client: ClusterClient): Promise<(client: ClusterClient) => Promise<void>>;
  /** Called at the end, in addition to the judges of each run. */
  judge?(run: Run): void;
}
