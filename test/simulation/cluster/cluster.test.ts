/**
 * Goal: composed servers, clients of the library and mounts keep their rules on every seed, and the seeds together
 * have each fault and what the workloads demand.
 * Method: a short form of `npm run simulate:cluster`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { isLong } from '../../long.ts';
import { commandOf } from './arguments.ts';
import { type RunOptions, runCluster } from './cluster-run.ts';
import { demandsOf } from './demands.ts';
import { FAULTS } from './faults.ts';
import { playForm } from './form.ts';
import { ANSWERED_BY_BACKUP } from './member-reads.ts';
import { shortForm } from './shapes.ts';
import { BASIC_WORKLOADS } from './workloads/all.ts';

/**
 * Seeds, virtual seconds of work in each, and the longest time between two faults: short runs have more faults per
 * second of processor time. `npm run simulate:cluster:night` runs long ones.
 */
const { seeds, seconds, gap } = isLong
  ? { seeds: 300, seconds: 60, gap: {} }
  : { seeds: 16, seconds: 5, gap: { gapMs: 900 } };
/** The least mean number of faults in a seed. */
const FAULTS_MIN = 3;
/** The least rate of operations of each mount. */
const OPERATIONS_PER_SECOND_MIN = 10;
const MAIN = join(import.meta.dirname, 'main.ts');

test('servers, clients and mounts keep their rules on every seed', { timeout: 3_600_000 }, async (t) => {
  const runs: RunOptions[] = shortForm(seeds, BASIC_WORKLOADS).map((shape, index) => ({
    ...{ seed: index + 1, ...shape, ...gap, forMs: seconds * 1_000 },
  }));
  const faults = FAULTS.filter(({ isOfMountWork }) => isOfMountWork !== true);
  const lines = await playForm(t, runs, demandsOf(BASIC_WORKLOADS, faults));
  const sum = (amounts: readonly number[]): number => amounts.reduce((all, amount) => all + amount, 0);
  const happened = sum(lines.flatMap(({ coverage }) => faults.map(({ name }) => coverage[name] ?? 0)));
  assert.ok(happened >= FAULTS_MIN * seeds, `${happened} faults`);
  const operations = sum(lines.map((line) => line.operations));
  const mounts = sum(runs.map(({ mounts = 0 }) => mounts));
  assert.ok(operations >= OPERATIONS_PER_SECOND_MIN * mounts * seconds, `${operations} operations`);
});

test('names that backups of the catalog answer keep their rules', { timeout: 3_600_000 }, async (t) => {
  const runs: RunOptions[] = Array.from({ length: isLong ? 60 : 3 }, (_, index) => ({
    ...{ seed: index + 1, servers: 5, clients: 3, mounts: 1, cache: 'ttl', volumes: 1, ...gap },
    ...{ workloads: ['names'], forcesMemberReads: true, forMs: seconds * 1_000 },
  }));
  await playForm(t, runs, [ANSWERED_BY_BACKUP]);
});

test('a seed has the same trace in this process and in another one', async () => {
  const options: RunOptions = {
    ...{ seed: 77, servers: 3, clients: 1, mounts: 2, cache: 'leases', volumes: 1, forMs: 2_000 },
    workloads: ['files', 'names', 'sealed-files'],
  };
  const first = await runCluster(options);
  const second = await runCluster(options);
  assert.equal(second.traceHash, first.traceHash);
  const words = commandOf(options).split(' -- ')[1] as string;
  const other = spawnSync(process.execPath, [MAIN, ...words.split(' ')], { encoding: 'utf8' });
  assert.match(other.stdout, new RegExp(`hash ${first.traceHash}`), other.stderr);
});
