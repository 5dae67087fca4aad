/**
 * Goal: programs on mounts that fill, edit, append, lock and sync files see what each cache mode guarantees, find what
 * they synced after all servers have lost their power, and get an error for everything that is lost.
 * Method: a short form of `npm run simulate:cluster` with the workloads of mounts.
 */
import { test } from 'node:test';
import { MOUNT_PATHS } from './fast-paths.ts';
import { playForm } from './form.ts';
import { MOUNT_WORKLOADS } from './workloads/all.ts';

const SECONDS = 8;
/** The longest time between two faults. */
const GAP_MS = 900;
const TOLERANT = MOUNT_WORKLOADS.filter(({ toleratesPowerOfAll }) => toleratesPowerOfAll === true);
const namesOf = (workloads: typeof MOUNT_WORKLOADS): string[] => workloads.map(({ name }) => name);
/** The seeds of the short form. */
const RUNS = [
  { seed: 1, clients: 0, cache: 'leases', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 2, clients: 0, cache: 'ttl', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 3, clients: 0, cache: 'strict', workloads: namesOf(MOUNT_WORKLOADS) },
  { seed: 4, clients: 1, cache: 'ttl', workloads: namesOf(TOLERANT) },
  { seed: 5, clients: 1, cache: 'leases', workloads: namesOf(TOLERANT) },
  // Losses of all power, and of locks of a mount that is disconnected for longer than they last: few of the seeds
  // above have them.
  {
    ...({ seed: 6, clients: 1, cache: 'leases', workloads: namesOf(TOLERANT) } as const),
    faults: ['power-of-all', 'power', 'kill', 'failing-disk'],
  },
  {
    ...({ seed: 6, clients: 0, cache: 'leases', workloads: ['file-locks'] } as const),
    ...{ faults: ['lose-mount'], forMs: 40_000, gapMs: 4_000 },
  },
] as const;

test('mounts keep their rules for all programs', { timeout: 900_000 }, async (t) => {
  const common = { servers: 3, mounts: 2, volumes: 1, forMs: SECONDS * 1_000, gapMs: GAP_MS };
  const runs = RUNS.map((run) => ({ ...common, ...run }));
  const faults = ['remount', 'memory-pressure', 'power-of-all', 'lose-mount', 'converged'];
  await playForm(t, runs, [...MOUNT_WORKLOADS.flatMap(({ demands }) => demands), ...faults, ...MOUNT_PATHS]);
});
