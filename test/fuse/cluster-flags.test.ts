/**
 * Goal: flags that the cluster cannot store yet fail with EOPNOTSUPP and the cluster's reason.
 * Method: the client library over servers that answer as an earlier release, and as a release that knows of a member
 * of an earlier release.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ErrorCode } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { errnoName } from '../../fuse/errno.ts';
import { systemWorld } from '../../world/system-world.ts';
import { FakeCluster } from '../client/fake-cluster.ts';

const REFUSALS: readonly (readonly [what: string, code: ErrorCode, extra: object, errno: string])[] = [
  ['a primary of an earlier release', 'bad-request', {}, 'EOPNOTSUPP'],
  ['a member of an earlier release', 'precondition-failed', { outdated: ['s2'] }, 'EOPNOTSUPP'],
  ['another precondition', 'precondition-failed', {}, 'EBUSY'],
  ['a file that was removed', 'not-found', {}, 'ENOENT'],
];

test('setting flags fails with EOPNOTSUPP while a catalog server does not know them', async (t) => {
  const cluster = await FakeCluster.start(1);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  t.after(async () => {
    await client.close();
    await cluster.stop();
  });
  const backend = clusterBackend(client, 'v');
  for (const [what, code, extra, errno] of REFUSALS) {
    let asked = 0;
    for (const server of cluster.servers)
      server.intercept = ({ path }) => {
        if (path !== '/v1/catalog/commands') return null;
        asked++;
        return { kind: 'problem', code, extra };
      };
    const failure = await backend.setFlags(7, ['immutable']).then(
      () => undefined,
      (error: Error) => error,
    );
    assert.equal(errnoName(failure), errno, what);
    assert.match(String(failure), new RegExp(`fake ${code}`), what);
    assert.equal(asked, 1, what);
  }
});
