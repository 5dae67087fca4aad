/**
 * Goal: a server that was away while the catalog changed by more than its log keeps fetches the pages that differ,
 * checks them in a thread, and counts again.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { RealCluster, until } from './real-cluster.ts';

/** Attributes of 60,000 bytes; in the log a third more. */
const CHANGES = 300;

const cluster = await RealCluster.start({ flags: ['--catalog-log', '16MiB'] });
after(() => cluster.stop());
await cluster.createVolume('main');

test('a server that missed more than the log of the catalog fetches the pages that differ', async () => {
  await using client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const { attributes } = await client.query({ kind: 'resolve', volume: 'main', path: '/', follow: false });
  const { inode } = attributes;
  const set = (at: number, fill: number) =>
    client.command({
      ...{ kind: 'set-xattr', inode, name: `user.${at % 20}`, mode: 'set' },
      value: Buffer.alloc(60_000, fill).toString('base64'),
    });
  for (let at = 0; at < 20; at++) await set(at, 1);
  await cluster.kill('s3');
  for (let at = 0; at < CHANGES; at++) await set(at, 2);
  await cluster.restart('s3');
  await until('no replica is behind', async () => (await cluster.status('s1')).verdict === 'healthy');
  await until('s3 has fetched a copy', async () =>
    cluster.log('s3').includes('fetched a copy of the catalog'),
  );
  const [line = ''] = cluster
    .log('s3')
    .split('\n')
    .filter((text) => text.includes('fetched a copy'));
  const { pagesFetched, bytesFetched } = JSON.parse(line) as Record<string, number>;
  assert.ok((pagesFetched ?? 0) > 0 && (bytesFetched ?? 0) > 0, line);
  // Two of three are a majority only with the replica of s3.
  await cluster.kill('s1');
  await until('names are changed with the replica of s3', async () => {
    const answer = await fetch(`${cluster.url('s3')}/v1/files/main/after`, {
      ...{ method: 'PUT', body: 'after', signal: AbortSignal.timeout(5_000) },
    });
    return answer.status < 300;
  });
});
