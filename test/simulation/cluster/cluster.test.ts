/**
 * Goal: composed servers, clients of the library and mounts keep their promises on every seed, and the seeds together meet each
 * fault and what the workloads demand.
 * Method: a short form of `npm run simulate:cluster`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { commandOf } from './arguments.ts';
import { type RunOptions, type RunReport, runCluster } from './cluster-run.ts';
import { FAULTS } from './faults.ts';
import { WORKLOADS } from './workloads/all.ts';

const SECONDS = 12;
/** The seeds of the form that runs with every change; others find what these do not. */
const SHAPES = [
  { servers: 3, clients: 2 },
  { servers: 5, clients: 2 },
  { servers: 3, clients: 1, mounts: 2, cache: 'leases' },
  { servers: 3, clients: 1, mounts: 2, cache: 'strict' },
  { servers: 5, clients: 1, mounts: 2, cache: 'leases', volumes: 2 },
  { servers: 3, clients: 1, mounts: 2, cache: 'ttl' },
] as const;
const ROUNDS = 2;
const OPERATIONS_PER_SECOND_MIN = 10;
const HTTP_FAULTS = ['requestLost', 'answerLost', 'late', 'afterCallerGone'].map((name) => `http ${name}`);
const MAIN = join(import.meta.dirname, 'main.ts');

function summed(reports: readonly RunReport[]): Map<string, number> {
  const sum = new Map<string, number>();
  for (const { coverage } of reports) {
    for (const [what, count] of coverage) sum.set(what, (sum.get(what) ?? 0) + count);
  }
  return sum;
}

test('servers, clients and mounts keep their promises on every seed', { timeout: 900_000 }, async () => {
  const reports: RunReport[] = [];
  for (let index = 0; index < SHAPES.length * ROUNDS; index++) {
    const shape = SHAPES[index % SHAPES.length] as (typeof SHAPES)[number];
    const options: RunOptions = { seed: index + 1, ...shape, forMs: SECONDS * 1_000 };
    const report = await runCluster(options);
    assert.deepEqual(report.violations, [], commandOf(options));
    reports.push(report);
  }
  const coverage = summed(reports);
  const demands = [
    ...FAULTS.map(({ name }) => name),
    ...WORKLOADS.flatMap(({ demands }) => demands),
    ...[...HTTP_FAULTS, 'power of all', 'views'],
  ];
  const missed = demands.filter((what) => (coverage.get(what) ?? 0) === 0);
  assert.deepEqual(missed, [], `Of ${JSON.stringify(Object.fromEntries([...coverage].sort()))}`);
  const operations = reports.reduce((sum, report) => sum + report.operations, 0);
  assert.ok(operations > OPERATIONS_PER_SECOND_MIN * reports.length * SECONDS, `${operations} operations`);
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
