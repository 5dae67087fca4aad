/** Goal: a mount finds the catalog that has its volume, and all its requests about names are for that catalog. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import { parseMountOptions } from '../../client/mounts/mount-options.ts';
import { Access } from '../../client/transport/access.ts';
import { NAMELESS_USERS } from '../../fuse/cluster/users.ts';
import { mountCluster } from '../../fuse/composition.ts';
import { WRITTEN_BYTES_LEAST } from '../../fuse/contents/written-pages.ts';
import type { QueryRequest } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG } from '../../wire/http-api.ts';
import { FakeCluster, type Reaction, type SeenRequest } from '../client/fake-cluster.ts';
import { patientWorld } from '../patient-world.ts';
import { idleTransport } from './nested-mount.ts';

const CATALOG = 3 as CatalogNumber;
const ROOT = {
  ...{
    inode: inodesOf(CATALOG).first,
    volume: 'own',
    kind: 'directory',
    mode: 0o755,
    uid: 0,
    gid: 0,
    links: 2,
  },
  ...{ sizeBytes: 0, target: '', device: 0, accessedNs: '1', modifiedNs: '1', changedNs: '1', replicas: [] },
  ...{ live: false, xattrs: 0, contents: { epoch: 0, seq: 0 }, snapshot: 1 },
};

function answerTo(path: string, text: string): object | null {
  if (path === '/v1/catalog/cache') return { session: 7, validMs: 0, recalls: [], through: 0, fenced: true };
  if (path !== '/v1/catalog/queries') return null;
  const { query, cache } = JSON.parse(text) as QueryRequest;
  if (query.kind === 'volume') return { volume: { name: 'own', root: ROOT.inode, quotaBytes: 0 } };
  if (query.kind === 'servers') return { servers: [] };
  return cache === undefined
    ? { attributes: ROOT }
    : { result: { attributes: ROOT }, granted: { session: cache, refused: [] } };
}

test('after the volume is found, each request about names has its catalog', async () => {
  const settings = parseMountOptions(['cache=leases']);
  for (const volume of ['own', 'own@yesterday']) {
    await using cluster = await FakeCluster.start(1);
    const server = cluster.server(0);
    server.intercept = ({ path, body }: SeenRequest): Reaction | null => {
      const answer = answerTo(path, body.toString());
      return answer === null ? null : { kind: 'answer', status: 200, text: JSON.stringify(answer) };
    };
    const mounted = await mountCluster(
      { ...settings, servers: cluster.urls, volume, path: '/', directory: '/', readOnly: true },
      {
        ...{
          world: patientWorld,
          access: Access.NONE,
          transport: idleTransport(),
          expiresNames: true,
          isRoot: true,
        },
        ...{ users: NAMELESS_USERS, writtenBytesMax: WRITTEN_BYTES_LEAST, log: () => undefined },
      },
    );
    await mounted.unmount();
    await mounted.ended;
    const [found, ...others] = server.seen.filter(({ path }) => path.startsWith('/v1/catalog/'));
    assert.deepEqual(JSON.parse(String(found?.body)), { query: { kind: 'volume', name: 'own' } });
    assert.equal(found?.headers[HEADER_CATALOG], undefined);
    assert.ok(others.length > 0);
    for (const { headers, body } of others) assert.equal(headers[HEADER_CATALOG], String(CATALOG), `${body}`);
  }
});
