/**
 * Goal: a client for one catalog names it in each request about names, the root catalog too, so that it depends on no
 * other; and it uses no position of another catalog: each has a log and epochs of its own.
 * Method: a server that records the requests, and reports positions of the catalogs.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import { CachingClient } from '../../client/cluster/caching-client.ts';
import { CatalogSubject } from '../../client/cluster/catalog-subject.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { CommandRequest, FlushRequest, QueryRequest } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG, HEADER_CATALOG_EPOCH, HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import { until } from '../cluster/real-cluster.ts';
import { patientWorld } from '../patient-world.ts';
import { FakeCluster, type Reaction, type SeenRequest } from './fake-cluster.ts';

const CATALOG = 3 as CatalogNumber;
const ROOT_POSITION = { seq: 900, epoch: 9 };
const POSITION = { seq: 12, epoch: 2 };
const PLACE = { volume: 'own', path: '/directory' };
const NEW_DIRECTORY = { kind: 'make-directory', place: PLACE, mode: 0o755, uid: 0, gid: 0 } as const;

function headersOf(number: CatalogNumber, { seq, epoch } = number === CATALOG ? POSITION : ROOT_POSITION) {
  return {
    ...(number === ROOT_CATALOG ? {} : { [HEADER_CATALOG]: String(number) }),
    [HEADER_CATALOG_SEQ]: String(seq),
    [HEADER_CATALOG_EPOCH]: String(epoch),
  };
}

/** A server whose answers have the position of the catalog that the request names. */
async function started(t: TestContext) {
  const cluster = await FakeCluster.start(1);
  t.after(() => cluster.stop());
  const { seen } = cluster.server(0);
  cluster.server(0).intercept = ({ path, headers, body }: SeenRequest): Reaction => {
    const isJson = path !== '/v1/births' && body.length > 0;
    const text = JSON.stringify(answerTo(path, isJson ? JSON.parse(body.toString()) : {}));
    const number = Number(headers[HEADER_CATALOG] ?? ROOT_CATALOG) as CatalogNumber;
    return { kind: 'answer', status: 200, text, headers: headersOf(number) };
  };
  const options = { world: patientWorld, servers: cluster.urls };
  const seenAt = (path: string): SeenRequest[] => seen.filter((request) => request.path === path);
  return { options, seen, seenAt };
}

function answerTo(path: string, body: Partial<QueryRequest>): object {
  if (path === '/v1/catalog/flush') return { missing: [] };
  if (path === '/v1/catalog/cache') return { session: 1, validMs: 0, recalls: [], through: 0, fenced: true };
  if (path === '/v1/births/numbers')
    return { first: 5, count: 1, sets: [['s1']], bearer: 's1', named: true, validMs: 1000 };
  if (path === '/v1/births') return { outcomes: [{ kind: 'unborn' }] };
  if (body.query?.kind === 'volume') return { volume: { name: 'own', root: inodesOf(CATALOG).first } };
  if (body.cache !== undefined) return { result: null, granted: null };
  return { attributes: { inode: inodesOf(CATALOG).first, kind: 'directory' } };
}

const commandsIn = (requests: readonly SeenRequest[]): CommandRequest[] =>
  requests.map(({ body }) => JSON.parse(body.toString()) as CommandRequest);

test('every request about names has the catalog of its volume, also that of the root', async (t) => {
  const { options, seen } = await started(t);
  for (const catalog of [CATALOG, ROOT_CATALOG]) {
    seen.length = 0;
    await using client = new CachingClient({ ...options, catalog });
    await client.command(NEW_DIRECTORY);
    await client.query({ kind: 'attributes', inode: 5 });
    await client.queryForCache({ kind: 'attributes', inode: 5 }, 1).catch(() => undefined);
    await client.flushCatalog();
    await client.reserveInodes(1, { volume: 'own' });
    const inode = inodesOf(catalog).first + 5;
    const file = { parent: 1, name: 'a', inode, mode: 0o644, uid: 0, gid: 0, contents: Buffer.alloc(1) };
    await client.createWithContents('s1', [{ ...file, accessedNs: null, modifiedNs: null, changedNs: null }]);
    await until('the cache session is renewed', async () =>
      seen.some(({ path }) => path === '/v1/catalog/cache'),
    );
    const paths = new Set(seen.map(({ path }) => path));
    for (const path of ['commands', 'queries', 'flush', 'cache']) assert.ok(paths.has(`/v1/catalog/${path}`));
    assert.ok(paths.has('/v1/births') && paths.has('/v1/births/numbers'));
    for (const { path, headers, body } of seen) {
      // Any client asks for the list of servers at times.
      const isSearch = body.includes('"servers"') && headers[HEADER_CATALOG] === undefined;
      if (!isSearch) assert.equal(headers[HEADER_CATALOG], String(catalog), path);
    }
  }
});

test('a client of no volume changes the root catalog, and its queries are about all catalogs', async (t) => {
  const { options, seenAt } = await started(t);
  await using client = new ClusterClient(options);
  await client.command({ kind: 'cluster-set', catalogReplicas: 3 });
  await client.query({ kind: 'volumes' });
  await client.flushCatalog();
  for (const path of ['/v1/catalog/commands', '/v1/catalog/flush'])
    for (const { headers } of seenAt(path)) assert.equal(headers[HEADER_CATALOG], '0', path);
  const queries = seenAt('/v1/catalog/queries').map(({ body, headers }) => [
    (JSON.parse(body.toString()) as QueryRequest).query.kind,
    headers[HEADER_CATALOG],
  ]);
  assert.deepEqual(queries.at(-1), ['volumes', undefined]);
  assert.ok(queries.some(([kind, catalog]) => kind === 'servers' && catalog === '0'));
});

test('a session begins by a query that only its catalog answers', async (t) => {
  const { options, seenAt } = await started(t);
  for (const [catalog, kind] of [
    [CATALOG, 'volumes'],
    [ROOT_CATALOG, 'servers'],
  ] as const) {
    await using client = new ClusterClient({ ...options, catalog });
    await client.command(NEW_DIRECTORY);
    const { body, headers } = seenAt('/v1/catalog/queries').at(-1) as SeenRequest;
    const { query } = JSON.parse(body.toString()) as QueryRequest;
    assert.equal(query.kind, kind);
    if (query.kind === 'servers') assert.equal(query.counts, false);
    assert.equal(headers[HEADER_CATALOG], String(catalog));
  }
});

test('a client that knows its catalog finds that of another volume', async (t) => {
  const { options, seenAt } = await started(t);
  await using client = new ClusterClient({ ...options, catalog: ROOT_CATALOG });
  await client.useVolume('own');
  const [asked] = seenAt('/v1/catalog/queries');
  assert.equal(asked?.headers[HEADER_CATALOG], undefined);
  await client.command(NEW_DIRECTORY);
  assert.equal(seenAt('/v1/catalog/commands')[0]?.headers[HEADER_CATALOG], String(CATALOG));
});

test('a session begins at the position of its catalog', async (t) => {
  const { options, seenAt } = await started(t);
  for (const catalog of [CATALOG, ROOT_CATALOG]) {
    await using client = new ClusterClient({ ...options, catalog });
    await client.command(NEW_DIRECTORY);
  }
  const commands = commandsIn(seenAt('/v1/catalog/commands'));
  assert.deepEqual(
    commands.map(({ since }) => since),
    [POSITION.seq, ROOT_POSITION.seq],
  );
});

test('a client that learns the catalog of a volume begins a session in it, and flushes it', async (t) => {
  const { options, seenAt } = await started(t);
  await using client = new ClusterClient(options);
  assert.equal(await client.catalogOfVolume('own'), CATALOG);
  await client.command(NEW_DIRECTORY);
  await client.flushCatalog();
  await client.useVolume('own');
  await client.useVolume('own');
  await client.command(NEW_DIRECTORY);
  await client.useVolume('own');
  await client.flushCatalog();
  const [before, after] = commandsIn(seenAt('/v1/catalog/commands'));
  assert.notEqual(before?.session, after?.session);
  assert.deepEqual([before?.since, after?.since], [ROOT_POSITION.seq, POSITION.seq]);
  const flushes = seenAt('/v1/catalog/flush');
  assert.deepEqual(
    flushes.map(({ headers }) => headers[HEADER_CATALOG]),
    ['0', String(CATALOG)],
  );
  const named = flushes.map(
    ({ body }) => (JSON.parse(body.toString()) as FlushRequest).answered?.[0]?.session,
  );
  assert.deepEqual(named, [before?.session, after?.session]);
});

test('positions of another catalog do not count, however new they are', () => {
  for (const [own, other] of [
    [CATALOG, ROOT_CATALOG],
    [ROOT_CATALOG, CATALOG],
  ] as const) {
    const subject = new CatalogSubject(own, () => undefined);
    subject.received(headersOf(own, POSITION));
    subject.received(headersOf(other, ROOT_POSITION));
    subject.received({});
    assert.deepEqual({ seq: subject.seq, epoch: subject.epoch }, POSITION);
    subject.received(headersOf(own, { seq: 4, epoch: 1 }));
    assert.deepEqual({ seq: subject.seq, epoch: subject.epoch }, { seq: 4, epoch: POSITION.epoch });
  }
});
