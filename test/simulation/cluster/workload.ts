import type { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import type { ClientProgram, MountProgram } from './program.ts';
import type { Run } from './run.ts';
import type { ClusterShape } from './simulated-cluster.ts';

/** What programs do with a cluster, and what must hold of it. */
export interface Workload {
  readonly name: string;
  /** Names of the coverage that the seeds of the CI form must have counted. */
  readonly demands: readonly string[];
  /** A cluster of this shape has something to do for it; unless this is given, each has. */
  readonly fits?: (shape: ClusterShape) => boolean;
  /** It knows what was synced: all servers may lose their power at once while it works. */
  readonly toleratesPowerOfAll?: boolean;
  /** Before all programs. */
  prepare?(run: Run, client: ClusterClient): Promise<void>;
  /** One thread of a client of the library, until `program.isEnding`. */
  client?(program: ClientProgram): Promise<void>;
  /** One process on a mount, until `program.isEnding`. */
  mount?(program: MountProgram): Promise<void>;
  /** After all faults and all programs have ended. */
  settle?(run: Run, client: ClusterClient): Promise<void>;
  /**
   * Before all servers lose their power at once: flushes something.
   *
   * @returns a check that it is still there
   */
  flush?(run: Run, client: ClusterClient): Promise<(client: ClusterClient) => Promise<void>>;
  /** At the end, in addition to the judges of each run. */
  judge?(run: Run): void;
}
