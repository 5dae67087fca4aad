/**
 * Goal: a page of a foreign site whose name resolves to a server without credentials reads nothing and changes nothing
 * there.
 * Method: a real server; requests, streams and upgrades with the `Host` that a browser would send.
 */
import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { after, before, test } from 'node:test';
import { CONTENTS_PATH, CONTENTS_PROTOCOL } from '../../wire/http-api.ts';
import { ask, problemIn, sendRaw } from '../http/ask.ts';
import { OneServer } from '../server/one-server.ts';

let server: OneServer;
let base: string;
let port: string;

before(async () => {
  server = await OneServer.start(['--host-names', 'files.example,*.wild.example']);
  base = server.url;
  ({ port } = new URL(base));
});
after(() => server.stop());

const FOREIGN = [
  'evil.example',
  'files.example.evil.example',
  'wild.example',
  'xfiles.example',
  'evil.example.',
  '127.0.0.1.evil.example',
  'localhost.evil.example',
];
const OWN = [
  'localhost',
  'LOCALHOST',
  'app.localhost',
  'files.example',
  'FILES.example.',
  'a.wild.example',
  'a.b.wild.example',
  '127.0.0.1',
  '[::1]',
  '10.1.2.3',
  hostname(),
];

for (const name of FOREIGN) {
  test(`nothing is read, changed or followed as ${name}`, async () => {
    const headers = { host: `${name}:${port}`, origin: `http://${name}:${port}` };
    for (const [method, path] of [
      ['GET', '/'],
      ['GET', '/livez'],
      ['GET', '/v1/status'],
      ['GET', '/v1/events'],
      ['GET', '/v1/files/main/?watch'],
      ['GET', '/nothing'],
      ['PUT', '/v1/files/main/a'],
      ['DELETE', '/v1/files/main/a'],
      ['POST', '/v1/catalog/commands'],
      ['OPTIONS', '/v1/files/main/a'],
    ] as const) {
      const answer = await ask(base, method, path, { headers, ...(method === 'PUT' ? { body: 'x' } : {}) });
      assert.equal(answer.status, 403, `${method} ${path}`);
      if (method !== 'OPTIONS') assert.match(problemIn(answer).detail, /--host-names/);
      assert.equal(answer.headers['access-control-allow-origin'], undefined);
    }
  });
}

for (const name of OWN) {
  test(`the server answers as ${name}`, async () => {
    for (const host of [name, `${name}:${port}`]) {
      assert.equal((await ask(base, 'GET', '/livez', { headers: { host } })).status, 200, host);
    }
  });
}

test('a WebSocket and a connection for contents of a foreign page are refused before all else', async () => {
  for (const [path, protocol] of [
    ['/v1/peer', 'websocket'],
    [CONTENTS_PATH, CONTENTS_PROTOCOL],
  ]) {
    const head = (host: string): string =>
      `GET ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: upgrade\r\nupgrade: ${protocol}\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;
    assert.match(await sendRaw(base, head('evil.example')), /^HTTP\/1\.1 403 /, path);
    assert.match(await sendRaw(base, head('localhost')), /^HTTP\/1\.1 (?:400|101) /, path);
  }
});

test('a request with several hosts, a malformed one, or another one in its target', async () => {
  const get = (...lines: string[]): Promise<string> =>
    sendRaw(base, [...lines, 'connection: close', '', ''].join('\r\n'));
  assert.match(await get('GET /livez HTTP/1.1', 'host: localhost', 'Host: evil.example'), /^HTTP\/1\.1 400 /);
  assert.match(await get('GET /livez HTTP/1.1', 'host: localhost', 'host: localhost'), /^HTTP\/1\.1 400 /);
  assert.match(await get('GET /livez HTTP/1.1', 'host: a b'), /^HTTP\/1\.1 400 /);
  assert.match(await get('GET /livez HTTP/1.1', 'host: me@localhost'), /^HTTP\/1\.1 400 /);
  assert.match(await get('GET /livez HTTP/1.1'), /^HTTP\/1\.1 400 /);
  assert.match(await get('GET http://evil.example/livez HTTP/1.1', 'host: localhost'), /^HTTP\/1\.1 403 /);
  assert.match(await get('GET http://localhost/livez HTTP/1.1', 'host: evil.example'), /^HTTP\/1\.1 200 /);
  assert.match(await get('GET /livez HTTP/1.0'), /^HTTP\/1\.1 200 /);
});
