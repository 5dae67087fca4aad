/**
 * Goal: a cluster whose leases run PaxosLease replaces a dead primary although its servers' wall clocks are hours
 * apart.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ask } from '../http/ask.ts';
import { isLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';

const WALL_CLOCK = fileURLToPath(new URL('./wall-clock.ts', import.meta.url));
const ROUNDS = isLong ? [1, 2, 3] : [1];
const OFF_MS = [-7_200_000, 0, 10_800_000];

const cluster = await RealCluster.start({
  lease: '2s',
  clockSkew: '100ms',
  flags: ['--lease-algorithm', 'paxoslease'],
  environment: (place) => ({
    NODE_OPTIONS: `--import ${WALL_CLOCK}`,
    WALL_CLOCK_OFF_MS: `${OFF_MS[place]}`,
  }),
});
after(() => cluster.stop());
await cluster.createVolume('main');

async function put(url: string, text: string): Promise<boolean> {
  const answer = await ask(url, 'PUT', '/v1/files/main/log', { body: text });
  return answer.status < 300;
}

test('primaries are killed, and every acknowledged write exists', async () => {
  let written = 'at first';
  await until('the first write is acknowledged', () => put(cluster.url(cluster.ids[0] as string), written));
  for (const round of ROUNDS) {
    const primary = await cluster.primaryOf('main/log');
    await cluster.kill(primary);
    const others = cluster.ids.filter((id) => id !== primary);
    const url = cluster.url(others[0] as string);
    await until('another primary serves', async () => {
      const answer = await ask(url, 'GET', '/v1/files/main/log');
      if (answer.status !== 200) return false;
      assert.equal(answer.bytes.toString(), written);
      return true;
    });
    written = `after death ${round}`;
    await until('another primary writes', () => put(url, written));
    cluster.spawn(primary);
    await cluster.ready([primary]);
    await cluster.current('main/log');
  }
  for (const id of cluster.ids) {
    const answer = await ask(cluster.url(id), 'GET', '/v1/files/main/log');
    assert.equal(answer.bytes.toString(), written, id);
  }
});
