/** All servers restart with their wall clocks set back by an hour: epochs and fencing tokens still rise. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { GrantedLease } from '../../wire/named-lease-api.ts';
import { type Answer, ask, problemIn } from '../http/ask.ts';
import { RealCluster, until } from './real-cluster.ts';

const HOUR_MS = 3_600_000;
const WALL_CLOCK = fileURLToPath(new URL('wall-clock.ts', import.meta.url));
const SET_BACK = { NODE_OPTIONS: `--import=${WALL_CLOCK}`, WALL_CLOCK_OFF_MS: String(-HOUR_MS) };

const cluster = await RealCluster.start({ lease: '2s', flags: ['--named-lease-max', '2s'] });
after(() => cluster.stop());
await cluster.createVolume('main');

function acquire(session: number): Promise<Answer> {
  return ask(cluster.url('s1'), 'POST', '/v1/leases/nightly', {
    headers: { 'content-type': 'application/json', 'leasehold-session': String(session) },
    body: JSON.stringify({ owner: 'test', ttlMs: 1_000 }),
  });
}

/**
 * Acquires the lease as soon as it is free.
 * @returns its fencing token
 */
async function token(session: number): Promise<number> {
  let granted: GrantedLease | null = null;
  await until('the lease is granted', async () => {
    const answer = await acquire(session);
    if (answer.status !== 201) throw new Error(answer.text);
    granted = JSON.parse(answer.text) as GrantedLease;
    return true;
  });
  return (granted as unknown as GrantedLease).token;
}

/** @returns the counter of the catalog's epoch in which the file was written */
async function write(text: string): Promise<number> {
  await until(`"${text}" is written`, async () => {
    const answer = await ask(cluster.url('s2'), 'PUT', '/v1/files/main/file', { body: text });
    if (answer.status !== 201 && answer.status !== 204) throw new Error(`${answer.status} ${answer.text}`);
    return true;
  });
  return (await cluster.status('s2')).catalog.epoch;
}

async function restartAll(environment: NodeJS.ProcessEnv): Promise<void> {
  await Promise.all(cluster.ids.map((id) => cluster.kill(id)));
  for (const id of cluster.ids) cluster.spawn(id, environment);
  await cluster.ready();
}

test('fencing tokens and epochs rise over restarts of all servers, whatever their wall clocks show', async () => {
  const first = await token(1);
  const firstEpoch = await write('one');
  await restartAll(SET_BACK);
  const refused = await acquire(2);
  assert.equal(refused.status, 503, refused.text);
  assert.equal(problemIn(refused).code, 'recovering');
  assert.match(refused.text, /ms behind its earlier readings/);
  const secondEpoch = await write('two');
  assert.ok(secondEpoch > firstEpoch, 'Epochs are counted, not read from a clock');
  await restartAll({});
  assert.ok((await token(3)) > first, 'The clocks are right again, and the token has risen');
});
