/**
 * Goal: a cluster that began with one server survives the loss of that server once there are three, and a member of the
 * catalog that loses its disk gets its replica again, whichever server began the cluster; until then `status` and
 * `/readyz` say what is missing.
 */
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { RealCluster, until } from './real-cluster.ts';

const cluster = await RealCluster.start({ servers: 1, flags: ['--replace-after', '1h'] });
after(() => cluster.stop());
await cluster.createVolume('main');

async function put(at: string, name: string): Promise<void> {
  const answer = await fetch(`${cluster.url(at)}/v1/files/main/${name}`, { method: 'PUT', body: name });
  assert.equal(answer.status, 201, await answer.text());
}

test('the catalog gets replicas on three servers as they join, and its first one can be removed', async () => {
  await put('s1', 'a');
  assert.equal((await cluster.status('s1')).verdict, 'healthy');
  await cluster.join('s2', ['s1']);
  await until('status says on how few servers names are', async () => {
    const { verdict, reasons } = await cluster.status('s2');
    return (
      verdict === 'degraded' &&
      reasons.some((reason) => reason.startsWith('Names are on 1 of 2 servers: one more failure loses them'))
    );
  });
  await cluster.join('s3', ['s1']);
  await until('the catalog is on three servers', async () => {
    const { verdict, catalog } = await cluster.status('s3');
    return verdict === 'healthy' && catalog.members.length === 3;
  });
  await cluster.kill('s1');
  await until('names are served without the first server', async () => {
    const answer = await fetch(`${cluster.url('s2')}/v1/files/main/?limit=1`, {
      signal: AbortSignal.timeout(5_000),
    });
    return answer.status === 200;
  });
  await cluster.restart('s1');
});

test('a member that was not in the first configuration gets its replica again after it has lost its disk', async () => {
  await put('s1', 'b');
  await cluster.kill('s2');
  rmSync(cluster.data('s2'), { recursive: true });
  await cluster.restart('s2');
  await until('s2 has a replica of the catalog that counts', async () => {
    const { verdict, servers } = await cluster.status('s1');
    const s2 = servers.find(({ id }) => id === 's2');
    if (verdict === 'healthy') assert.deepEqual([s2?.state, s2?.catalogReplica], ['serving', undefined]);
    return verdict === 'healthy' && existsSync(join(cluster.data('s2'), 'catalog.db'));
  });
  const ready = await (await fetch(`${cluster.url('s2')}/readyz?verbose`)).text();
  assert.match(ready, /catalog-replica ok/);
  // Two of three are a majority only if the replica of s2 is one of them.
  await cluster.kill('s3');
  await until('names are changed with the replica that restarted', async () => {
    const answer = await fetch(`${cluster.url('s2')}/v1/files/main/c`, {
      method: 'PUT',
      body: 'c',
      signal: AbortSignal.timeout(5_000),
    });
    return answer.status < 300;
  });
});
