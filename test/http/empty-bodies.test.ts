/**
 * Goal: libraries that label every request as JSON can use every route.
 * Method: each route of a real server gets a request without a body, with the label and without it.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { until } from '../cluster/real-cluster.ts';
import { OneServer } from '../server/one-server.ts';
import { type Answer, ask, askJson, problemIn } from './ask.ts';

const JSON_LABEL = { 'content-type': 'application/json', 'content-length': '0' };
const MALFORMED = /cannot be empty|media type/i;
let server: OneServer;
let base: string;

before(async () => {
  server = await OneServer.start(['--named-lease-max', '1s']);
  base = server.url;
  await until('there is a volume', async () => {
    const command = { kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 131072 };
    return (await post('/v1/catalog/commands', { session: 1, number: 1, command })).status === 200;
  });
});
after(() => server.stop());

function post(path: string, body: object): Promise<Answer> {
  return ask(base, 'POST', path, {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

test('every route accepts a label for a missing body', async () => {
  const { paths } = await askJson<{ readonly paths: Readonly<Record<string, object>> }>(
    base,
    '/openapi.json',
  );
  let asked = 0;
  for (const [template, operations] of Object.entries(paths)) {
    const path = template.replace(/\{file\}/, '7').replaceAll(/\{[a-z]+\+?\}/gi, 'none');
    for (const method of Object.keys(operations).map((name) => name.toUpperCase())) {
      // Streams have no end, and the body of a GET is not read.
      if (method === 'GET' || method === 'HEAD') continue;
      for (const label of [
        'application/json',
        'text/plain',
        'application/x-www-form-urlencoded',
        'no label',
      ]) {
        const plain = await ask(base, method, path, { headers: { 'content-length': '0' } });
        const labelled = await ask(base, method, path, { headers: { ...JSON_LABEL, 'content-type': label } });
        const told = `${method} ${path} ${label}: ${labelled.status} ${labelled.text}`;
        assert.equal(labelled.status, plain.status, told);
        if (labelled.status === 400) assert.doesNotMatch(problemIn(labelled).detail, MALFORMED, told);
        assert.notEqual(labelled.status, 415, told);
      }
      asked++;
    }
  }
  assert.ok(asked > 40, `${asked} routes`);
});

test('a lease is released and a snapshot created and removed, also with an empty chunked body', async () => {
  const body = { owner: 'me', ttlMs: 1_000 };
  const own = { 'leasehold-session': '7' };
  await until('the lease is granted', async () => {
    const headers = { ...own, 'content-type': 'application/json' };
    return (await ask(base, 'POST', '/v1/leases/x', { headers, body: JSON.stringify(body) })).status === 201;
  });
  const headers = { ...JSON_LABEL, ...own };
  assert.equal((await ask(base, 'DELETE', '/v1/leases/x', { headers })).status, 204);
  assert.equal((await ask(base, 'PUT', '/v1/snapshots/main/a', { headers: JSON_LABEL })).status, 201);
  assert.equal((await ask(base, 'DELETE', '/v1/snapshots/main/a', { headers: JSON_LABEL })).status, 204);
  const chunked = { 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
  assert.equal((await ask(base, 'PUT', '/v1/snapshots/main/b', { headers: chunked })).status, 201);
  assert.equal((await ask(base, 'DELETE', '/v1/snapshots/main/b', { headers: chunked })).status, 204);
});
