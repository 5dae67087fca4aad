import type { Prng } from '../../../base/prng.ts';
import type { ClusterShape, SimulatedCluster } from './simulated-cluster.ts';

/** A fault of a cluster for a while. */
export interface Fault {
  readonly name: string;
  /** Its weight in the random choice. */
  readonly weight: number;
  /** It happens only in runs with workloads of mounts, which demand it. */
  readonly isOfMountWork?: true;
  /** Whether a cluster of this shape can have it; absent: each can. */
  readonly fits?: (shape: ClusterShape) => boolean;
  /**
   * Injects the fault, and schedules its end with `cluster.later`; `cluster.heal()` ends it, too.
   *
   * @param draw a generator for this fault
   * @returns whether it happened; then `cluster.tell` has been called with a sentence about it
   */
  inject(cluster: SimulatedCluster, draw: Prng, durationMs: number): boolean;
}

/** In a cluster of any shape. */
export const ANYWHERE = {};

/** @param where it can happen @returns a row of the table of faults */
export function fault(
  name: string,
  weight: number,
  where: Pick<Fault, 'fits' | 'isOfMountWork'>,
  inject: Fault['inject'],
): Fault {
  return { name, weight, ...where, inject };
}
