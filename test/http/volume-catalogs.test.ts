/**
 * Goal: requests about a volume with a catalog of its own ask and flush this catalog, and no other: an unavailable root
 * catalog delays none of them, and what they answer survives a loss of power.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fastify } from 'fastify';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import type { CreateWithContents } from '../../server/file/create-with-contents.ts';
import { creationRoutes } from '../../server/http/creation-routes.ts';
import { type Answer, ask } from './ask.ts';
import { FakeCluster, type FakeOptions } from './fake-services.ts';

const CATALOG = 3 as CatalogNumber;
const FILES = '/v1/files/main/';
const TUS = { 'tus-resumable': '1.0.0' };

async function started(t: TestContext, options: FakeOptions = {}) {
  const cluster = await FakeCluster.start({ catalog: CATALOG, ...options });
  t.after(() => cluster.close());
  // Not the catalog's primary: it forwards.
  const { url } = cluster.server(1);
  const send = (method: string, path: string, body?: string, headers: Record<string, string> = {}) =>
    ask(url, method, path.startsWith('/') ? path : `${FILES}${path}`, {
      headers,
      ...(body === undefined ? {} : { body }),
    });
  return { cluster, url, send };
}

async function assertStatus(expected: number, sent: Promise<Answer>): Promise<Answer> {
  const answer = await sent;
  assert.equal(answer.status, expected, answer.text);
  return answer;
}

test('files, directories and their changes need no other catalog', async (t) => {
  for (const createsWithContents of [false, true]) {
    const { cluster, send } = await started(t, { createsWithContents });
    await assertStatus(201, send('PUT', 'a/'));
    await assertStatus(204, send('PUT', 'a/'));
    await assertStatus(201, send('PUT', 'a/b/file?parents=true', 'contents'));
    await assertStatus(204, send('PATCH', 'a/b/file?append', ' more'));
    await assertStatus(201, send('POST', 'a/b/file?copy-to=/copy'));
    await assertStatus(200, send('POST', 'a/?copy-to=/c/'));
    await assertStatus(204, send('POST', 'c/?move-to=/d/'));
    assert.equal((await assertStatus(200, send('GET', 'd/b/file'))).text, 'contents more');
    assert.deepEqual(JSON.parse((await send('GET', '')).text).entries?.length, 3);
    await assertStatus(204, send('DELETE', 'copy'));
    await assertStatus(204, send('DELETE', 'a/?recursive=true'));
    await assertStatus(200, send('GET', '/v1/trash/main'));
    await assertStatus(200, send('GET', '/v1/snapshots/main'));
    assert.deepEqual(cluster.rootSeen, []);
    // Each server's own session begins at a position of this catalog; the root catalog's is far ahead.
    for (const { since } of cluster.commands) assert.ok(since === undefined || since < 1_000, `${since}`);
  }
});

test('requests with a key, and uploads in pieces, are executed once in the catalog of their volume', async (t) => {
  const { cluster, send } = await started(t);
  const key = { 'idempotency-key': 'one' };
  for (const [method, path, body] of [
    ['PUT', 'file', 'contents'],
    ['PATCH', 'file?append', ' more'],
    ['POST', 'file?move-to=/moved', undefined],
  ] as const) {
    const { status } = await send(method, path, body, key);
    const { length } = cluster.commands;
    assert.equal((await send(method, path, body, key)).status, status);
    assert.equal(cluster.commands.length, length, `${method} again`);
  }
  assert.equal((await send('GET', 'moved')).text, 'contents more');
  const begun = await assertStatus(
    201,
    send('POST', 'piecemeal', undefined, { ...TUS, 'upload-length': '3' }),
  );
  const upload = new URL(String(begun.headers.location), 'http://any').pathname;
  const piece = { ...TUS, 'content-type': 'application/offset+octet-stream', 'upload-offset': '0' };
  await assertStatus(204, send('PATCH', upload, 'abc', piece));
  const naming = cluster.commands.findLast(({ command }) => command.kind === 'replace');
  assert.equal(typeof naming?.since, 'number', "The upload's session has a position");
  await assertStatus(200, send('HEAD', upload, undefined, TUS));
  assert.equal((await send('GET', 'piecemeal')).text, 'abc');
  assert.deepEqual(cluster.rootSeen, []);
});

test('a removal is done if this catalog has lost nothing, whatever the epochs of others', async (t) => {
  const { cluster, send } = await started(t);
  await assertStatus(201, send('PUT', 'file', 'x'));
  cluster.intercept = ({ method }) => {
    if (method === 'flush-catalog') cluster.catalogEpoch++;
  };
  const removed = await assertStatus(202, send('DELETE', '?recursive=true'));
  assert.deepEqual(JSON.parse(removed.text), { removed: 1, more: true }, 'Its flush is of another epoch');
  cluster.intercept = () => {};
  await assertStatus(204, send('DELETE', '?recursive=true'));
  assert.deepEqual(cluster.rootSeen, []);
});

test('a client changes the catalog that it names; without a name, it can only read volumes of others', async (t) => {
  const { cluster, send } = await started(t);
  const json = { 'content-type': 'application/json' };
  const post = (path: string, body: object, catalog: number | null) =>
    send('POST', `/v1/catalog/${path}`, JSON.stringify(body), {
      ...json,
      ...(catalog === null ? {} : { 'leasehold-catalog': String(catalog) }),
    });
  const { first: inode } = inodesOf(CATALOG);
  const owner = { mode: 0o755, uid: 0, gid: 0 };
  const places = [
    { volume: 'main', path: '/d' },
    { parent: inode, name: 'd' },
  ];
  const commandAt = (place: object) => ({
    ...{ session: 5, number: 1, since: 1, command: { kind: 'make-directory', place, ...owner } },
  });
  const before = cluster.seen.length;
  for (const place of places)
    for (const other of [null, 0]) {
      const { status, text } = await post('commands', commandAt(place), other);
      assert.equal(status, 409);
      const { code, detail } = JSON.parse(text);
      assert.equal(code, 'read-only');
      assert.match(detail, /has a catalog of its own, .*\(leasehold-catalog: 3\): upgrade the client/);
    }
  assert.equal(cluster.seen.length, before);
  // The root catalog may have executed an earlier attempt, before the volume moved.
  assert.deepEqual(cluster.rootSeen.splice(0), ['make-directory', 'make-directory']);
  await assertStatus(200, post('queries', { query: { kind: 'attributes', inode } }, null));
  // A client that names another catalog learns which one has the inode.
  const { headers } = await post('queries', { query: { kind: 'attributes', inode } }, ROOT_CATALOG);
  assert.equal(headers['leasehold-catalog'], String(CATALOG));
  await assertStatus(200, post('commands', commandAt(places[0] as object), CATALOG));
  await assertStatus(200, post('flush', { answered: [{ session: 5, numbers: [1] }] }, CATALOG));
  assert.deepEqual(cluster.rootSeen, []);
  assert.equal(cluster.flushed.length, 1);
  // A client that names no catalog has no command in this one, and does not wait for it.
  await post('flush', { answered: [{ session: 5, numbers: [1] }] }, null);
  await post('flush', { answered: [] }, null);
  assert.deepEqual(cluster.rootSeen, ['flush', 'flush']);
  assert.equal(cluster.flushed.length, 1);
});

test('a watch continues after an event of this catalog, and begins anew after one of another', async (t) => {
  const { cluster, url, send } = await started(t);
  await assertStatus(201, send('PUT', 'w/'));
  const eventsAfter = async (id: string | null): Promise<string> => {
    const headers = id === null ? {} : { 'last-event-id': id };
    const ended = new AbortController();
    const response = await fetch(`${url}${FILES}w/?watch`, { headers, signal: ended.signal });
    const { value } = await (response.body as ReadableStream<Uint8Array>).getReader().read();
    ended.abort();
    return Buffer.from(value ?? new Uint8Array()).toString();
  };
  const [, first] = /^id: (3-[0-9]+)\nevent: ready/.exec(await eventsAfter(null)) ?? [];
  assert.ok(first !== undefined);
  await assertStatus(201, send('PUT', 'w/new', 'x'));
  const missed = await eventsAfter(first);
  assert.match(missed, /event: change/);
  assert.ok(!missed.includes('resync'));
  const [, last] = /^id: 3-([0-9]+)\nevent: change/m.exec(missed) ?? [];
  assert.ok(!(await eventsAfter(`3-${last}`)).includes('event: change'));
  for (const other of [last, `4-${last}`])
    assert.match(await eventsAfter(String(other)), /event: resync/, 'It counts operations of another log');
  for (const wrong of ['3-', '-1', '3-x', '1-2-3']) {
    const { status } = await ask(url, 'GET', `${FILES}w/?watch`, { headers: { 'last-event-id': wrong } });
    assert.equal(status, 400, wrong);
  }
  assert.deepEqual(cluster.rootSeen, []);
});

test('numbers for new files are given to a client that names the catalog of their volume', async (t) => {
  const app = fastify();
  t.after(() => app.close());
  const reserved = { first: inodesOf(CATALOG).first + 1, count: 1, sets: [['s1']], creatingServer: 's1' };
  const creations: Pick<CreateWithContents, 'reserve'> = {
    reserve: async (_, assertAllowed) => {
      assertAllowed?.(CATALOG);
      return { ...reserved, named: true, validMs: 1_000 };
    },
  };
  creationRoutes(app, creations as unknown as CreateWithContents);
  const reserve = (headers: Record<string, string>) =>
    app.inject({
      ...{ method: 'POST', url: '/v1/births/numbers' },
      ...{ headers, payload: { owner: 7, count: 1, volume: 'main' } },
    });
  for (const headers of [{}, { 'leasehold-catalog': '0' }] as Record<string, string>[])
    assert.match((await reserve(headers)).body, /has a catalog of its own/);
  const { statusCode, body } = await reserve({ 'leasehold-catalog': String(CATALOG) });
  assert.equal(statusCode, 200, body);
  assert.equal(JSON.parse(body).first, reserved.first);
});
