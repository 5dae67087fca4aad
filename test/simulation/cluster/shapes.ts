import type { RunOptions } from './cluster-run.ts';
import { derived } from './derived.ts';
import { CACHES } from './simulated-machine.ts';
import { WORKLOADS } from './workloads/all.ts';

/** Workloads of one run: more would leave each with too few operations. */
const WORKLOADS_MAX = 4;

/** What a run is made of, but for its seed and its time. */
export type Shape = Required<
  Pick<RunOptions, 'servers' | 'clients' | 'mounts' | 'cache' | 'volumes' | 'workloads'>
>;

/** @returns a shape that is drawn from the seed: small ones more often, for they are cheap */
export function shapeOf(seed: number): Shape {
  const draw = derived(seed, 'shape');
  const mounts = draw.pick([0, 1, 2, 2, 2, 3, 4]);
  const shape = {
    servers: draw.pick([3, 3, 3, 4, 5, 5, 6, 7]),
    clients: mounts === 0 ? 2 : draw.pick([0, 1, 1, 2]),
    mounts,
    cache: draw.pick(CACHES),
    volumes: draw.pick([1, 1, 2, 3]),
  };
  const left = WORKLOADS.filter(
    ({ fits, client, mount }) =>
      (fits?.({ seed, ...shape }) ?? true) &&
      ((client !== undefined && shape.clients > 0) || (mount !== undefined && mounts > 0)),
  ).map(({ name }) => name);
  // Others use its files, too.
  const workloads = left.splice(left.indexOf('files'), 1);
  while (left.length > 0 && workloads.length < WORKLOADS_MAX)
    workloads.push(...left.splice(draw.integer(0, left.length - 1), 1));
  return { ...shape, workloads };
}
