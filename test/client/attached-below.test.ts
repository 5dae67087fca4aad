/**
 * Goal: the notice of volumes that a snapshot or backup ends at costs only what it needs, and never fails the command.
 * Method: answers about volumes of three catalogs, each of which may be refused.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import { attachedBelow } from '../../client/cluster/attached-volumes.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { Query } from '../../wire/catalog-api.ts';
import { FakeCluster } from './fake-cluster.ts';
import { runCli } from './run-cli.ts';

const [OWN, OTHER] = [3 as CatalogNumber, 4 as CatalogNumber];
/** Directories at which volumes are attached. */
const PATHS = [
  { inode: 50, volume: 'main', path: '/projects/a' },
  { inode: 51, volume: 'own', path: '/from-before-it-moved' },
  { inode: inodesOf(OWN).first + 5, volume: 'own', path: '/projects/b' },
  { inode: inodesOf(OTHER).first + 5, volume: 'other', path: '/c' },
];
const VOLUMES = [
  { name: 'main', root: 1, catalog: ROOT_CATALOG },
  { name: 'own', root: 7, catalog: OWN },
  { name: 'other', root: inodesOf(OTHER).first, catalog: OTHER },
  ...PATHS.map(({ inode }) => ({ name: `at-${inode}`, root: 1, catalog: ROOT_CATALOG, attached: inode })),
];

/** @param refused what is answered to one kind of query */
function clientThat(refused: Readonly<Partial<Record<Query['kind'], ErrorCode>>> = {}) {
  const asked: number[] = [];
  const query = async (sent: Query): Promise<object> => {
    const code = refused[sent.kind];
    if (code !== undefined) throw new ServiceError(code, 'refused');
    if (sent.kind === 'volumes') return { volumes: VOLUMES };
    assert.ok(sent.kind === 'paths');
    asked.push(...sent.inodes);
    return { paths: PATHS.filter(({ inode }) => sent.inodes.includes(inode)) };
  };
  return { client: { query } as unknown as Pick<ClusterClient, 'query'>, asked };
}

test('only directories that the volume can have are searched for', async () => {
  const { client, asked } = clientThat();
  const own = await attachedBelow(client, { volume: 'own', path: '/' }, {});
  assert.deepEqual(
    own.map(({ path }) => path),
    ['from-before-it-moved', 'projects/b'],
  );
  assert.deepEqual(asked.splice(0), [50, 51, inodesOf(OWN).first + 5]);
  const below = await attachedBelow(client, { volume: 'main', path: '/projects' }, {});
  assert.deepEqual(below, [{ path: 'a', volume: 'at-50' }]);
  assert.deepEqual(asked, [50, 51]);
  assert.deepEqual(await attachedBelow(client, { volume: 'unseen', path: '/' }, {}), []);
});

test('there is no notice if a catalog does not answer, or the caller may not see the names', async () => {
  for (const kind of ['volumes', 'paths'] as const)
    for (const code of ['no-majority', 'forbidden'] as const) {
      const { client } = clientThat({ [kind]: code });
      assert.deepEqual(await attachedBelow(client, { volume: 'own', path: '/' }, {}), []);
    }
  const { client } = clientThat({ volumes: 'internal' });
  await assert.rejects(attachedBelow(client, { volume: 'own', path: '/' }, {}), { code: 'internal' });
});

test('a snapshot that is printed as JSON needs no notice', async () => {
  await using cluster = await FakeCluster.start(1);
  const server = cluster.server(0);
  const snapshot = { name: 'now', madeNs: '1' };
  server.intercept = ({ path, body }) =>
    path === '/v1/catalog/commands' && body.includes('"snapshot-create"')
      ? { kind: 'answer', status: 200, text: JSON.stringify({ snapshot }) }
      : null;
  const servers = ['--servers', cluster.urls.join()];
  assert.equal((await runCli(['volume', 'create', ...servers, 'main'])).code, 0);
  server.seen.length = 0;
  const { code, stdout, stderr } = await runCli(['snapshot', 'create', ...servers, 'main@now', '--json']);
  assert.equal(code, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), snapshot);
  assert.ok(!server.seen.some(({ body }) => body.includes('"volumes"')));
});
