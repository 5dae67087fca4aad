import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { Access } from '../../client/transport/access.ts';
import { Endpoint } from '../../client/transport/endpoint.ts';
import { addressReportedBy, findServers } from '../../client/transport/server-search.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';
import { FakeCluster, type FakeServer } from './fake-cluster.ts';

const OPERATION_MS = 20_000;

function infoOf({ id, url }: FakeServer, change: Partial<ServerInfo> = {}): ServerInfo {
  const room = { freeBytes: 1e9, totalBytes: 2e9, registeredNs: '1' };
  return { id, url, zone: '', state: 'in', storageId: `store of ${id}`, bornAt: 1, ...room, ...change };
}

/** A client that was given only the first server of a cluster, and whose primary is another server. */
async function withClient(
  listed: (cluster: FakeCluster) => readonly ServerInfo[],
  action: (cluster: FakeCluster, client: ClusterClient) => Promise<void>,
): Promise<void> {
  await using cluster = await FakeCluster.start();
  cluster.primary = 's2';
  cluster.listed = listed(cluster);
  await using client = new ClusterClient({
    world: systemWorld,
    servers: [cluster.server(0).url],
    operationTimeoutMs: OPERATION_MS,
  });
  await action(cluster, client);
}

const listQueries = (server: FakeServer) =>
  server.seen.filter(({ path, body }) => path === '/v1/catalog/queries' && body.includes('"servers"')).length;

/** Reads until the client has searched for servers, and has had time to use what it found. */
async function search(cluster: FakeCluster, client: ClusterClient): Promise<void> {
  const file = client.openFile(cluster.addFile('x'));
  // The first search begins when an answer names an unknown primary; the known servers have to be asked first.
  await until('the client searches for other servers', async () => {
    await file.read(0, 1);
    return listQueries(cluster.server(0)) > 0;
  });
}

test('a primary that was not given is found, and asked directly', () =>
  withClient(
    (cluster) => cluster.servers.map((server) => infoOf(server)),
    async (cluster, client) => {
      await search(cluster, client);
      await until('all are known', async () => client.servers.length === 3);
      assert.equal(client.servers[0], cluster.server(0).url, 'Given servers come first');
      const file = client.openFile(cluster.addFile('y'));
      await file.read(0, 1);
      const asked = cluster.server(1).asked;
      await file.read(0, 1);
      assert.equal(cluster.server(1).asked, asked + 1);
    },
  ));

test('when the given servers have ended, the others serve', () =>
  withClient(
    (cluster) => cluster.servers.map((server) => infoOf(server)),
    async (cluster, client) => {
      await search(cluster, client);
      await until('all are known', async () => client.servers.length === 3);
      await cluster.server(0).stop();
      cluster.primary = 's3';
      assert.equal(
        Buffer.from((await client.openFile(cluster.addFile('y')).read(0, 1)).bytes).toString(),
        'y',
      );
    },
  ));

for (const { what, change } of [
  { what: 'was removed', change: { state: 'out' } },
  { what: 'is being drained', change: { state: 'draining' } },
  { what: 'never registered', change: { storageId: '' } },
  { what: 'is listed under an address that is none', change: { url: 'file:///etc/passwd' } },
  { what: 'answers by another name', change: { id: 's9' } },
] as const) {
  test(`a server that ${what} is not used`, () =>
    withClient(
      (cluster) => [infoOf(cluster.server(0)), infoOf(cluster.server(1), change), infoOf(cluster.server(2))],
      async (cluster, client) => {
        await search(cluster, client);
        await until('the other one is found', async () => client.servers.length === 2);
        assert.deepEqual(client.servers, [cluster.server(0).url, cluster.server(2).url]);
        for (let count = 0; count < 5; count++) await client.openFile(cluster.addFile('y')).read(0, 1);
        assert.equal(cluster.server(1).seen.filter(({ path }) => path.startsWith('/v1/data/')).length, 0);
      },
    ));
}

test('a server of the same name in another cluster is not used', async () => {
  await using other = await FakeCluster.start();
  other.listed = other.servers.map((server) =>
    infoOf(server, { storageId: `another store of ${server.id}` }),
  );
  await withClient(
    (cluster) => [
      infoOf(cluster.server(0)),
      infoOf(cluster.server(1), { url: other.server(1).url }),
      infoOf(cluster.server(2)),
    ],
    async (cluster, client) => {
      await search(cluster, client);
      await until('the other one is found', async () => client.servers.length === 2);
      assert.ok(listQueries(other.server(1)) > 0, 'It was asked which cluster it belongs to');
      assert.ok(!client.servers.includes(other.server(1).url));
      for (let count = 0; count < 5; count++) await client.openFile(cluster.addFile('y')).read(0, 1);
      assert.equal(other.server(1).seen.filter(({ path }) => path.startsWith('/v1/data/')).length, 0);
    },
  );
});

/** What a search finds, with endpoints that are made for it. */
async function searchAmong(
  cluster: FakeCluster,
  prepare: (given: Endpoint, found: Endpoint) => Promise<void> | void,
): Promise<{ joined: string[]; left: string[] }> {
  const events = { unreachable: () => undefined, hasAlternative: () => false };
  const given = new Endpoint(systemWorld, cluster.server(0).url, true, events, Access.NONE);
  const found = new Endpoint(systemWorld, cluster.server(1).url, false, events, Access.NONE);
  given.id = 's1';
  found.id = 's2';
  await prepare(given, found);
  const { joined, left } = await findServers([given, found], found, events, new AbortController().signal);
  const urls = [joined, left].map((list) => list.map(({ url }) => url));
  await Promise.all([given, found, ...joined].map((endpoint) => endpoint.close()));
  return { joined: urls[0] ?? [], left: urls[1] ?? [] };
}

test('a found server is forgotten when it leaves the cluster', async () => {
  await using cluster = await FakeCluster.start();
  cluster.listed = cluster.servers.map((server) => infoOf(server));
  const [, second, third] = cluster.urls;
  assert.deepEqual(await searchAmong(cluster, () => undefined), { joined: [third], left: [] });
  cluster.listed = [0, 2].map((index) => infoOf(cluster.server(index)));
  assert.deepEqual(await searchAmong(cluster, () => undefined), { joined: [third], left: [second] });
  cluster.listed = cluster.servers.map((server, index) =>
    infoOf(server, index === 1 ? { state: 'out' } : {}),
  );
  assert.deepEqual(await searchAmong(cluster, () => undefined), { joined: [third], left: [second] });
});

test('a server is found at another address only while its given address does not answer', async () => {
  await using cluster = await FakeCluster.start();
  await using moved = await FakeCluster.start(1);
  // The same server, as its id and store say, at its own address.
  const url = moved.server(0).url;
  cluster.listed = [infoOf(cluster.server(0), { url }), infoOf(cluster.server(1))];
  moved.listed = cluster.listed;
  assert.deepEqual(await searchAmong(cluster, () => undefined), { joined: [], left: [] });
  const dead = (given: Endpoint) => given.markDead(systemWorld.nowMs());
  assert.deepEqual(await searchAmong(cluster, dead), { joined: [url], left: [] });
  const back = (_given: Endpoint, found: Endpoint) => {
    found.id = 's1';
  };
  assert.deepEqual((await searchAmong(cluster, back)).left, [cluster.server(1).url]);
});

test('while the catalog cannot be queried, no server is found and none is forgotten', async () => {
  await using cluster = await FakeCluster.start();
  cluster.listed = [];
  for (const server of cluster.servers) server.intercept = () => ({ kind: 'problem', code: 'no-majority' });
  assert.deepEqual(await searchAmong(cluster, () => undefined), { joined: [], left: [] });
});

test('a server that did not prove its identity in time causes another search', async () => {
  await using cluster = await FakeCluster.start();
  cluster.listed = cluster.servers.map((server) => infoOf(server));
  const events = { unreachable: () => undefined, hasAlternative: () => false };
  const given = new Endpoint(systemWorld, cluster.server(0).url, true, events, Access.NONE);
  const { signal } = new AbortController();
  cluster.server(1).intercept = () => ({ kind: 'problem', code: 'busy' });
  const first = await findServers([given], given, events, signal);
  assert.deepEqual([first.joined.map(({ url }) => url), first.unproven], [[cluster.server(2).url], true]);
  cluster.server(1).intercept = () => null;
  const second = await findServers([given, ...first.joined], given, events, signal);
  assert.deepEqual([second.joined.map(({ url }) => url), second.unproven], [[cluster.server(1).url], false]);
  await Promise.all([given, ...first.joined, ...second.joined].map((endpoint) => endpoint.close()));
});

test('an invalid list, or none at all, changes nothing', () =>
  withClient(
    () =>
      [
        null,
        5,
        {},
        { id: 's2' },
        { id: 's2', url: 7, state: 'in', storageId: 'x' },
      ] as unknown as ServerInfo[],
    async (cluster, client) => {
      await search(cluster, client);
      for (let count = 0; count < 5; count++) await client.openFile(cluster.addFile('y')).read(0, 1);
      assert.deepEqual(client.servers, [cluster.server(0).url]);
      assert.equal(listQueries(cluster.server(0)), 1, 'It is not requested again at once');
    },
  ));

test('addresses that cannot be meant for this host are ignored, and the scheme stays', () => {
  const far = 'http://files.example:7401';
  assert.equal(addressReportedBy('http://10.0.0.7:7402', far), 'http://10.0.0.7:7402');
  for (const told of [
    'http://127.0.0.1:7402',
    'http://127.8.8.8:7402',
    'http://localhost:7402',
    'http://[::1]:7402',
  ]) {
    assert.equal(addressReportedBy(told, far), null, told);
    assert.equal(addressReportedBy(told, 'http://127.0.0.1:7401'), told, 'From this machine to itself');
  }
  assert.equal(addressReportedBy('http://[::ffff:127.0.0.1]:7402', far), null);
  assert.equal(addressReportedBy('http://0.0.0.0:7402', 'http://127.0.0.1:7401'), null);
  assert.equal(addressReportedBy('http://[::]:7402', 'http://127.0.0.1:7401'), null);
  assert.equal(addressReportedBy('http://10.0.0.7:7402', 'https://files.example'), 'https://10.0.0.7:7402');
  for (const told of ['', '10.0.0.7:7402', 'ftp://10.0.0.7/', 'nonsense'])
    assert.equal(addressReportedBy(told, far), null);
});
