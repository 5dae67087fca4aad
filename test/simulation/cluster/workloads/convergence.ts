import { converge } from '../judges/convergence.ts';
import type { Workload } from '../workload.ts';

/** Does nothing, and waits at the end until there is nothing left to be done. To be the last. */
export const convergence: Workload = { name: 'convergence', demands: ['converged'], settle: converge };
