import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { type RunReport, runCluster } from './cluster-run.ts';

/** Seeds of the form that runs with every change; others find what these do not. */
const SEEDS = 12;
const SECONDS = 15;
/** Of every so many seeds one has more servers than a file has members, so that replicas move. */
const LARGER = 3;
const MAIN = join(import.meta.dirname, 'main.ts');

const options = (seed: number) => {
  return { seed, servers: seed % LARGER === 0 ? 5 : 3, clients: 2, forMs: SECONDS * 1_000 };
};

function summed(reports: readonly RunReport[]): Map<string, number> {
  const sum = new Map<string, number>();
  for (const { coverage } of reports) {
    for (const [what, count] of coverage) sum.set(what, (sum.get(what) ?? 0) + count);
  }
  return sum;
}

test('composed servers and client libraries keep their promises on every seed', async () => {
  const reports: RunReport[] = [];
  for (let seed = 1; seed <= SEEDS; seed++) {
    const report = await runCluster(options(seed));
    assert.deepEqual(
      report.violations,
      [],
      `npm run simulate:cluster -- --seed ${seed} --servers ${options(seed).servers} --for ${SECONDS}s`,
    );
    reports.push(report);
  }
  const coverage = summed(reports);
  for (const what of [
    'kill',
    'power',
    'pause',
    'isolate',
    'cut',
    'part',
    'slow-link',
    'foul',
    'slow-disk',
    'full-disk',
    'kill-client',
    'flush',
    'move',
    'power of all',
  ]) {
    assert.ok((coverage.get(what) ?? 0) > 0, `No seed had ${what}`);
  }
  for (const what of ['requestLost', 'answerLost', 'late', 'afterCallerGone']) {
    assert.ok((coverage.get(`http ${what}`) ?? 0) > 0, `No request met ${what}`);
  }
  const operations = reports.reduce((sum, report) => sum + report.operations, 0);
  assert.ok(operations > 10 * SEEDS * SECONDS, `Only ${operations} operations were done`);
});

test('a seed gives the same trace, in this process and in another one', async () => {
  const first = await runCluster({ ...options(77), servers: 3, forMs: 8_000 });
  const second = await runCluster({ ...options(77), servers: 3, forMs: 8_000 });
  assert.equal(second.traceHash, first.traceHash);
  const other = spawnSync(process.execPath, [MAIN, '--seed', '77', '--for', '8s'], { encoding: 'utf8' });
  assert.match(other.stdout, new RegExp(`hash ${first.traceHash}`), other.stderr);
});
