import type { RunOptions } from './cluster-run.ts';
import { derived } from './derived.ts';
import { CACHES } from './simulated-machine.ts';
import type { Workload } from './workload.ts';
import { WORKLOADS } from './workloads/all.ts';

/** The most workloads of one run: more would leave each with too few operations. */
const WORKLOADS_MAX = 4;

/** The share of seeds that have only workloads during which all servers may lose their power at once. */
const TOLERANT = 0.15;

/** The parameters of a run, without its seed and its time. */
export type Shape = Required<
  Pick<RunOptions, 'servers' | 'clients' | 'mounts' | 'cache' | 'volumes' | 'workloads'>
>;

type Machines = Omit<Shape, 'workloads'>;

/** @returns names of the workloads that a cluster of this shape can run */
function fitting(shape: Machines, table: readonly Workload[] = WORKLOADS): string[] {
  return table
    .filter(
      ({ fits, client, mount }) =>
        (fits?.({ seed: 0, ...shape }) ?? true) &&
        ((client !== undefined && shape.clients > 0) || (mount !== undefined && shape.mounts > 0)),
    )
    .map(({ name }) => name);
}

/** @returns a shape drawn from the seed: small ones more often, as they are fast */
export function shapeOf(seed: number): Shape {
  const draw = derived(seed, 'shape');
  const mounts = draw.pick([0, 1, 2, 2, 2, 3, 4]);
  const machines: Machines = {
    servers: draw.pick([3, 3, 3, 4, 5, 5, 6, 7]),
    clients: mounts === 0 ? 2 : draw.pick([0, 1, 1, 2]),
    mounts,
    cache: draw.pick(CACHES),
    volumes: draw.pick([1, 1, 2, 3]),
  };
  const isTolerant = draw.chance(TOLERANT);
  const left = fitting(
    machines,
    WORKLOADS.filter(({ toleratesPowerOfAll }) => !isTolerant || toleratesPowerOfAll === true),
  );
  // Other workloads use its files, too.
  const workloads = left.includes('files') ? left.splice(left.indexOf('files'), 1) : [];
  while (left.length > 0 && workloads.length < WORKLOADS_MAX)
    workloads.push(...left.splice(draw.integer(0, left.length - 1), 1));
  return { ...machines, workloads };
}

const SHORT_FORM: readonly Machines[] = [
  { servers: 3, clients: 2, mounts: 0, cache: 'leases', volumes: 1 },
  { servers: 3, clients: 1, mounts: 2, cache: 'leases', volumes: 1 },
  { servers: 5, clients: 1, mounts: 1, cache: 'strict', volumes: 1 },
  { servers: 3, clients: 1, mounts: 2, cache: 'ttl', volumes: 1 },
  { servers: 5, clients: 2, mounts: 2, cache: 'leases', volumes: 2 },
  { servers: 3, clients: 0, mounts: 2, cache: 'strict', volumes: 1 },
];

/** @returns the shapes of seeds 1 to `count` of the short form, with the workloads in turn */
export function shortForm(count: number, table: readonly Workload[] = WORKLOADS): Shape[] {
  const turns = new Map<string, number>();
  return Array.from({ length: count }, (_, index) => {
    const machines = SHORT_FORM[index % SHORT_FORM.length] as Machines;
    const workloads = fitting(machines, table)
      .sort((a, b) => (turns.get(a) ?? 0) - (turns.get(b) ?? 0))
      .filter((name) => name !== 'files')
      .slice(0, WORKLOADS_MAX - 1);
    for (const name of workloads) turns.set(name, (turns.get(name) ?? 0) + 1);
    return { ...machines, workloads: ['files', ...workloads] };
  });
}
