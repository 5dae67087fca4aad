import type { Prng } from '../../../base/prng.ts';
import type { ClusterShape, SimulatedCluster } from './simulated-cluster.ts';

/** Something that goes wrong with a cluster for a while. */
export interface Fault {
  readonly name: string;
  /** How often it is drawn, relative to the others. */
  readonly weight: number;
  /** It happens where there are workloads of mounts, which demand it, and not in other runs. */
  readonly isOfMountWork?: true;
  /** A cluster of this shape can meet it; unless this is given, each can. */
  readonly fits?: (shape: ClusterShape) => boolean;
  /**
   * Begins it, and schedules its end with `cluster.later`; `cluster.heal()` ends it, too.
   *
   * @param draw of this one fault
   * @returns whether it happened; then `cluster.tell` has a sentence that says what
   */
  inject(cluster: SimulatedCluster, draw: Prng, durationMs: number): boolean;
}

/** In a cluster of any shape. */
export const ANYWHERE = {};

/** A row of the table of faults. @param where it can happen */
export function fault(
  name: string,
  weight: number,
  where: Pick<Fault, 'fits' | 'isOfMountWork'>,
  inject: Fault['inject'],
): Fault {
  return { name, weight, ...where, inject };
}
