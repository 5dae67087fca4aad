/**
 * Goal: without a majority, the last of several programs that change one directory waits hardly longer than the first,
 * although the kernel runs their calls one after the other; and with a majority again, all are served.
 * Method: real servers, two of three killed, and several programs at once on a real mount.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClusterMount, run } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const PROGRAMS = 6;
const LIMIT = '3s';

test('programs that change one directory do not wait for each other without a majority', async (t) => {
  const cluster = await RealCluster.start();
  t.after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main', '--op-timeout', LIMIT);
  t.after(() => mount.stop());
  const make = (name: string) => run('mkdir', [mount.path(name)]);
  assert.equal((await make('before')).code, 0);
  const [one, other] = cluster.ids as [string, string];
  await Promise.all([cluster.kill(one), cluster.kill(other)]);

  const made = await Promise.all(Array.from({ length: PROGRAMS }, (_, place) => make(`d${place}`)));
  for (const { code, text } of made) {
    assert.equal(code, 1);
    assert.match(text, /timed out/);
  }
  const tookMs = made.map((program) => program.tookMs).sort((a, b) => a - b);
  const [firstMs = 0] = tookMs;
  const lastMs = tookMs.at(-1) ?? 0;
  assert.ok(
    lastMs < (firstMs * PROGRAMS) / 2,
    `one after the other: ${tookMs.map(Math.round).join(', ')} ms`,
  );

  await Promise.all([cluster.restart(one), cluster.restart(other)]);
  await until('a directory is made', async () => (await make('after')).code === 0);
  assert.equal((await make('and-later')).code, 0);
});
