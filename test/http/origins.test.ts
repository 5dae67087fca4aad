import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ask, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

describe('which pages a browser lets use a server', () => {
  let cluster: FakeCluster;
  let base: string;
  let other: string;

  before(async () => {
    cluster = await FakeCluster.start();
    base = cluster.server(0).url;
    other = cluster.server(1).url;
  });
  after(() => cluster.close());

  test('a page of another server of the cluster may read', async () => {
    const { status, headers } = await ask(base, 'GET', '/v1/status', { headers: { origin: other } });
    assert.equal(status, 200);
    assert.equal(headers['access-control-allow-origin'], other);
    assert.equal(headers.vary, 'Origin');
    assert.equal(headers['access-control-allow-credentials'], undefined);
  });

  test('and a preflight answers whether it may change something', async () => {
    const headers = {
      origin: other,
      'access-control-request-method': 'PUT',
      'access-control-request-headers': 'authorization',
    };
    const answer = await ask(base, 'OPTIONS', '/v1/files/main/a', { headers });
    assert.equal(answer.status, 204);
    assert.equal(answer.headers['access-control-allow-origin'], other);
    assert.match(answer.headers['access-control-allow-methods'] ?? '', /\bPUT\b/);
    assert.match(answer.headers['access-control-allow-headers'] ?? '', /\bauthorization\b/);
  });

  test('a page of the server itself needs no header, by whatever host name it is loaded', async () => {
    const named = { origin: 'https://files.example', host: 'files.example' };
    const answer = await ask(base, 'PUT', '/v1/files/main/own', { headers: named, body: 'x' });
    assert.equal(answer.status, 201);
    assert.equal(answer.headers['access-control-allow-origin'], undefined);
  });

  test('a form of a page without an origin, as the browser confirms, is accepted', async () => {
    const headers = { origin: 'null', 'sec-fetch-site': 'same-origin' };
    assert.equal((await ask(base, 'PUT', '/v1/files/main/form', { headers, body: 'x' })).status, 201);
    const foreign = { origin: 'null', 'sec-fetch-site': 'cross-site' };
    assert.equal(
      (await ask(base, 'PUT', '/v1/files/main/form', { headers: foreign, body: 'x' })).status,
      400,
    );
  });

  for (const origin of ['https://evil.example', 'null', 'http://127.0.0.1:1', 'not an origin']) {
    test(`a page from ${origin} reads nothing and changes nothing`, async () => {
      const read = await ask(base, 'GET', '/v1/status', { headers: { origin } });
      assert.equal(read.headers['access-control-allow-origin'], undefined, 'The browser hides the answer');
      const preflight = await ask(base, 'OPTIONS', '/v1/files/main/a', { headers: { origin } });
      assert.equal(preflight.headers['access-control-allow-origin'], undefined);
      const write = await ask(base, 'PUT', '/v1/files/main/evil', { headers: { origin }, body: 'x' });
      assert.equal(write.status, 400);
      assert.match(problemIn(write).detail, /is not a server of this cluster/);
      assert.equal((await ask(base, 'GET', '/v1/files/main/evil')).status, 404);
    });
  }

  test('programs, which send no origin, are not affected', async () => {
    const answer = await ask(base, 'PUT', '/v1/files/main/program', { body: 'x' });
    assert.equal(answer.status, 201);
    assert.equal(answer.headers.vary, undefined);
  });
});
