import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { ask, sendRaw } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

let cluster: FakeCluster;
let base: string;

before(async () => {
  cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  base = cluster.server(0).url;
  assert.equal((await ask(base, 'PUT', '/v1/files/main/there', { body: 'contents' })).status, 201);
});
after(() => cluster.close());

function head(method: string, path: string, ...lines: string[]): string {
  const all = [`${method} ${path} HTTP/1.1`, 'host: localhost', 'expect: 100-continue', ...lines];
  return `${all.join('\r\n')}\r\n\r\n`;
}

/** @returns what is received before the other side ends, or until `wanted` is received */
async function heard(socket: Socket, wanted: RegExp): Promise<string> {
  let text = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (wanted.test(text)) break;
  }
  return text;
}

async function dialed(text: string): Promise<Socket> {
  const { hostname, port } = new URL(base);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(text);
  return socket;
}

for (const [name, status, text] of [
  ['an upload', 412, head('PUT', '/v1/files/main/there', 'if-none-match: *', 'content-length: 4')],
  ['a write', 412, head('PATCH', '/v1/files/main/there?append', 'if-match: "x"', 'content-length: 4')],
  ['a range', 412, head('PUT', '/v1/files/main/there', 'content-range: bytes 0-3/9', 'content-length: 4')],
  ['a missing file', 404, head('PATCH', '/v1/files/main/none?append', 'content-length: 4')],
  ['a missing volume', 404, head('PUT', '/v1/files/none/a', 'content-length: 4')],
  [
    'what is too large',
    413,
    head('POST', '/v1/catalog/queries', 'content-type: application/json', 'content-length: 9999999'),
  ],
] as const) {
  test(`${name} that is refused gets no request for its body, and its connection ends`, async () => {
    const answer = await heard(await dialed(text), /$^/);
    assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.match(answer, /\r\nconnection: close\r\n/i);
  });
}

for (const [method, path, line] of [
  ['PUT', '/v1/files/main/new', 'if-none-match: *'],
  ['PATCH', '/v1/files/main/there?append', 'x: y'],
  ['PUT', '/v1/files/main/there', 'content-range: bytes 0-3/*'],
] as const) {
  test(`${method} ${path} with ${line} gets a request for its body once it is allowed`, async (context) => {
    const socket = await dialed(head(method, path, line, 'content-length: 4'));
    context.after(() => socket.destroy());
    assert.equal(await heard(socket, /\r\n\r\n/), 'HTTP/1.1 100 Continue\r\n\r\n');
    socket.write('body');
    const answer = await heard(socket, /\r\n\r\n/);
    assert.match(answer, /^HTTP\/1\.1 20[14] /);
    assert.doesNotMatch(answer, /connection: close/i);
  });
}

test('a client that does not wait gets one answer', async () => {
  const text = `${head('PUT', '/v1/files/main/hasty', 'content-length: 4', 'connection: close')}body`;
  assert.match(await sendRaw(base, text), /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201 /);
});

test('another expectation is refused', async () => {
  const text = head('PUT', '/v1/files/main/odd', 'content-length: 0').replace('100-continue', 'tea');
  assert.match(await sendRaw(base, text), /^HTTP\/1\.1 417 /);
});

test('a volume without free space is reported before the body is sent, to tus at the beginning of an upload', async () => {
  const { gateway } = cluster.server(0);
  const quota = (quotaBytes: number) => gateway.command({ kind: 'volume-set', name: 'main', quotaBytes });
  const { volume } = await gateway.queryCatalog({ kind: 'volume', name: 'main' });
  await quota(volume.namedBytes + 10);
  const tus = (path: string, bytes: number) =>
    ask(base, 'POST', path, { headers: { 'tus-resumable': '1.0.0', 'upload-length': String(bytes) } });
  assert.equal((await tus('/v1/files/main/t', 11)).status, 507);
  assert.equal((await tus('/v1/files/main/t', 10)).status, 201);
  const there = (await ask(base, 'HEAD', '/v1/files/main/there')).headers['content-length'];
  assert.equal((await tus('/v1/files/main/there', 10 + Number(there))).status, 201, 'It replaces a file');
  assert.equal((await tus('/v1/files/main/there', 11 + Number(there))).status, 507);
  const waiting = await dialed(head('PUT', '/v1/files/main/t', 'content-length: 11'));
  assert.match(await heard(waiting, /$^/), /^HTTP\/1\.1 507 /);
  await quota(0);
});
