/**
 * Goal: named leases of a cluster that began with one server survive the loss of that server once there are three. A
 * lease is held while the voters change, and the next holder has a larger token.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { GrantedLease } from '../../wire/named-lease-api.ts';
import { RealCluster, until } from './real-cluster.ts';

const TTL_MS = 5_000;
const cluster = await RealCluster.start({
  servers: 1,
  flags: ['--named-lease-max', `${TTL_MS}ms`, '--replace-after', '1h'],
});
after(() => cluster.stop());

/**
 * Acquires the lease, or refreshes it if the session holds it.
 * @returns null if the outcome is unknown, or it is refused
 */
async function acquire(at: string, session: number): Promise<GrantedLease | null> {
  const answer = await fetch(`${cluster.url(at)}/v1/leases/jobs%2Fnightly`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'leasehold-session': String(session) },
    body: JSON.stringify({ owner: `session ${session}`, ttlMs: TTL_MS }),
  });
  if (answer.ok) return (await answer.json()) as GrantedLease;
  await answer.text();
  return null;
}

async function voters(at: string): Promise<readonly (number | undefined)[]> {
  const { servers } = await cluster.status(at);
  return servers.map(({ namedLeases }) => namedLeases?.voters);
}

test('three voters follow one as servers join while a lease is held, and the first one can be removed', async () => {
  let token = 0;
  /** The lease is held all the time. On a busy machine it may end: then the session acquires it again. */
  const hold = async (): Promise<boolean> => {
    const lease = await acquire('s1', 1);
    if (lease === null) return false;
    assert.ok(lease.token >= token, `${lease.token} follows ${token}`);
    ({ token } = lease);
    return true;
  };
  await until('a lease is held', hold);
  assert.deepEqual(await voters('s1'), [1]);
  await cluster.join('s2', ['s1']);
  await cluster.join('s3', ['s1']);
  await until('three servers vote', async () => {
    await hold();
    const counts = await voters('s3');
    return counts.length === 3 && counts.every((count) => count === 3);
  });
  await until('status has no reasons left', async () => (await cluster.status('s3')).verdict === 'healthy');

  await cluster.kill('s1');
  let next = 0;
  await until('another session holds the lease', async () => {
    next = (await acquire('s2', 2))?.token ?? 0;
    return next > 0;
  });
  assert.ok(next > token, `${next} follows ${token}`);

  // A release that votes only by the first view refuses the folder.
  const meta = JSON.parse(readFileSync(join(cluster.data('s1'), 'META'), 'utf8')) as { format: number };
  assert.equal(meta.format, 2);
  await cluster.restart('s1');
  await until('it votes by the later view', async () => (await voters('s1')).every((count) => count === 3));
});
