/**
 * Goal: volumes with catalogs of their own keep the rules of all volumes, on every seed: also while they are created,
 * moved and removed, and while a volume of the root catalog moves to one of its own, or directories become volumes.
 * Method: a short form of `npm run simulate:cluster --own-catalogs`.
 */
import { test } from 'node:test';
import type { RunOptions } from './cluster-run.ts';
import { playForm } from './form.ts';

const COMMON = { servers: 3, mounts: 0, cache: 'leases', volumes: 1, ownCatalogs: true, gapMs: 900 } as const;
const LIVES = { ...COMMON, clients: 2, forMs: 8_000, workloads: ['volume-lives'] };
const MOVES = { ...COMMON, ownCatalogs: false, clients: 2, mounts: 2, volumes: 2, forMs: 8_000 };

const RUNS: readonly RunOptions[] = [
  { ...COMMON, seed: 1, clients: 1, mounts: 2, volumes: 2, forMs: 4_000, workloads: ['files', 'names'] },
  { ...COMMON, seed: 2, clients: 2, forMs: 6_000, workloads: ['quotas', 'snapshots', 'sealed-files'] },
  { ...LIVES, seed: 3 },
  { ...COMMON, seed: 4, clients: 4, forMs: 8_000, workloads: ['attachments'] },
  { ...MOVES, seed: 1, workloads: ['files', 'names', 'volume-moves'] },
  { ...MOVES, seed: 2, workloads: ['small-files', 'synced-files', 'volume-moves'] },
  { ...MOVES, seed: 1, workloads: ['small-files', 'volume-splits'] },
  { ...MOVES, seed: 2, workloads: ['small-files', 'volume-splits'] },
  { ...LIVES, seed: 5, faults: ['kill', 'power', 'part', 'damaged-database', 'kill-answering'] },
];

test("volumes' own catalogs keep the rules of all volumes", { timeout: 900_000 }, async (t) => {
  const ofVolumes = ['volume filled', 'snapshot made', 'quota write', 'attached alone', 'path followed'];
  await playForm(t, RUNS, ['converged', ...ofVolumes, 'volume moved', 'volume split', 'power of all']);
});
