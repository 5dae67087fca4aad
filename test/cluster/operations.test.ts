import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { ask } from '../http/ask.ts';
import {
  alertRules,
  assertAnswered,
  assertConventions,
  assertRunbooks,
  dashboardPanels,
  metricsTogether,
  RULES,
} from '../packaging/monitoring.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: what operators are given to look at a cluster and to care for it does what it says with real servers.
 * Method: one cluster for all cases; each has a volume or a folder of its own.
 */
const run = promisify(execFile);

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');
const [url = ''] = cluster.urls;

test('alerts and dashboard ask for what servers tell', async () => {
  // By way of each server, so that some are forwarded.
  for (const [place, each] of cluster.urls.entries()) {
    const put = await ask(each, 'PUT', `/v1/files/main/watched-${place}`, { body: 'seen' });
    assert.equal(put.status, 201, put.text);
    for (const from of cluster.urls)
      assert.equal((await ask(from, 'GET', `/v1/files/main/watched-${place}`)).status, 200);
  }
  const read = async () =>
    metricsTogether(
      await Promise.all(cluster.urls.map(async (each) => (await ask(each, 'GET', '/metrics')).text)),
    );
  // Clocks are compared now and then; a file is led by somebody for a while.
  await until(
    'the clocks are compared',
    async () => (await read()).get('leasehold_clock_offset_seconds')?.series.length === 6,
  );
  const families = await read();
  assertConventions(families);
  for (const { expr, annotations } of alertRules()) assertAnswered(expr, families, annotations.summary);
  for (const { targets } of dashboardPanels())
    for (const { expr, legendFormat } of targets) assertAnswered(expr, families, legendFormat);
  assertRunbooks(alertRules());
});

test('a rule that asks for what nobody has is found', async () => {
  const families = metricsTogether([(await ask(url, 'GET', '/metrics')).text]);
  assert.throws(
    () => assertAnswered('leasehold_nothing > 0', families, ''),
    /no server has leasehold_nothing/,
  );
  assert.throws(() => assertAnswered('leasehold_lag_files{color="red"} > 0', families, ''), /no label color/);
  assert.throws(
    () => assertAnswered('leasehold_server_state{state="asleep"} > 0', families, ''),
    /no series of leasehold_server_state has state="asleep"/,
  );
  assert.throws(() => assertAnswered('sum by (color) (leasehold_lag_files)', families, ''), /label color/);
  assert.throws(() => assertAnswered('rate(leasehold_lag_files', families, ''), /not understood/);
});

const promtool = await run('promtool', ['--version']).then(
  () => false,
  () => 'promtool is not installed',
);

test('promtool finds nothing wrong with the rules', { skip: promtool }, async () => {
  const { stdout } = await run('promtool', ['check', 'rules', RULES]);
  assert.match(stdout, /SUCCESS/);
});
