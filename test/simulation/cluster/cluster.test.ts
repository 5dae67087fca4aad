/**
 * Goal: composed servers, clients of the library and mounts keep their promises on every seed, and the seeds together meet each
 * fault and what the workloads demand.
 * Method: a short form of `npm run simulate:cluster`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { isLong } from '../../long.ts';
import { commandOf } from './arguments.ts';
import { type RunOptions, runCluster } from './cluster-run.ts';
import { demandsOf, missedIn } from './demands.ts';
import { FAULTS } from './faults.ts';
import { runSeeds } from './seed-pool.ts';
import { shortForm } from './shapes.ts';
import { BASIC_WORKLOADS } from './workloads/all.ts';

/** Seeds, and virtual seconds of the work of each; `npm run simulate:cluster:night` runs others. */
const [SEEDS, SECONDS] = isLong ? [300, 60] : [18, 16];
/** Processes that run them. */
const JOBS = 2;
const OPERATIONS_PER_SECOND_MIN = 10;
const MAIN = join(import.meta.dirname, 'main.ts');

test('servers, clients and mounts keep their promises on every seed', { timeout: 3_600_000 }, async () => {
  const coverage = new Map<string, number>();
  let operations = 0;
  const failed: { readonly command: string; readonly violations: readonly string[] }[] = [];
  const left: RunOptions[] = shortForm(SEEDS, BASIC_WORKLOADS).map((shape, index) => ({
    ...{ seed: index + 1, ...shape, forMs: SECONDS * 1_000 },
  }));
  await runSeeds(
    JOBS,
    () => (failed.length > 0 ? null : (left.shift() ?? null)),
    (line) => {
      const { command, violations } = line;
      if (violations.length > 0) failed.push({ command, violations });
      for (const [what, count] of Object.entries(line.coverage))
        coverage.set(what, (coverage.get(what) ?? 0) + count);
      operations += line.operations;
    },
  );
  assert.deepEqual(failed, []);
  const demands = demandsOf(
    BASIC_WORKLOADS,
    FAULTS.filter(({ isOfMountWork }) => isOfMountWork !== true),
  );
  assert.deepEqual(missedIn(coverage, demands), [], JSON.stringify(Object.fromEntries([...coverage].sort())));
  assert.ok(operations > OPERATIONS_PER_SECOND_MIN * SEEDS * SECONDS, `${operations} operations`);
});

test('a seed gives the same trace, in this process and in another one', async () => {
  const options: RunOptions = {
    ...{ seed: 77, servers: 3, clients: 1, mounts: 2, cache: 'leases', volumes: 1, forMs: 4_000 },
    workloads: ['files', 'names', 'mutexes'],
  };
  const first = await runCluster(options);
  const second = await runCluster(options);
  assert.equal(second.traceHash, first.traceHash);
  const words = commandOf(options).split(' -- ')[1] as string;
  const other = spawnSync(process.execPath, [MAIN, ...words.split(' ')], { encoding: 'utf8' });
  assert.match(other.stdout, new RegExp(`hash ${first.traceHash}`), other.stderr);
});
