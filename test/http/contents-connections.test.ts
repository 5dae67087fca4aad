/**
 * Goal: what a client writes over a connection for contents arrives unchanged, in whatever pieces, and after each
 * outcome of a request the connection is usable or closed.
 * Method: the real listener and the real client, or a socket that misbehaves.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { type FastifyInstance, fastify } from 'fastify';
import { Access } from '../../client/transport/access.ts';
import { DirectHttp, NoWriteConnectionsError } from '../../client/transport/direct-http.ts';
import { Endpoint } from '../../client/transport/endpoint.ts';
import { Traffic } from '../../client/transport/traffic.ts';
import { ContentsConnections } from '../../server/http/contents-connections.ts';
import { readOctets } from '../../server/http/octets.ts';
import { CONTENTS_PATH, CONTENTS_PROTOCOL } from '../../wire/http-api.ts';
import { patientWorld } from '../patient-world.ts';

const BODY_BYTES_MAX = 4 * 1024 * 1024;
const CONNECT_MS = 5_000;
const UPGRADE = `GET ${CONTENTS_PATH} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: ${CONTENTS_PROTOCOL}\r\n\r\n`;

interface Served {
  readonly url: URL;
  readonly app: FastifyInstance;
  /** Connections over which requests arrived. */
  readonly sockets: Set<Socket>;
  /** Why bodies could not be read. */
  readonly failures: string[];
}

/** A server that answers with the digest of the body, or refuses before it has read it. */
async function serve(context: TestContext, isOffered = true): Promise<Served> {
  const sockets = new Set<Socket>();
  const failures: string[] = [];
  const app = fastify({ forceCloseConnections: true });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', readOctets);
  app.addHook('onRequest', async (request, reply) => {
    sockets.add(request.raw.socket);
    if (request.headers['x-refused'] !== undefined) await reply.code(403).send('refused');
  });
  app.setErrorHandler((error: Error, _request, reply) => {
    failures.push(error.message);
    return reply.code(400).send('failed');
  });
  app.put('/v1/data/:file', { bodyLimit: BODY_BYTES_MAX }, async (request, reply) => {
    const closed = once(reply.raw, 'close');
    context.after(() => closed);
    return digestOf(request.body as Buffer);
  });
  const contents = new ContentsConnections(app.server);
  app.addHook('preClose', async () => contents.close());
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (isOffered && contents.accept(request, socket, head)) return;
    socket.end('HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  context.after(() => app.close());
  const { port } = app.server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}`), app, sockets, failures };
}

function writesTo(context: TestContext, url: URL): DirectHttp {
  const direct = new DirectHttp(
    patientWorld,
    url,
    new Traffic(patientWorld, CONNECT_MS),
    CONNECT_MS,
    2,
    undefined,
    true,
  );
  context.after(() => direct.close());
  return direct;
}

function written(body: readonly Uint8Array[], headers: Readonly<Record<string, string>> = {}) {
  const octets = { 'content-type': 'application/octet-stream', ...headers };
  const { signal } = new AbortController();
  return { method: 'PUT', path: '/v1/data/7?offset=0', headers: octets, body, signal } as const;
}

function bytesOf(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  for (let index = 0; index < length; index++) bytes[index] = (index * 31 + (index >> 8)) & 0xff;
  return bytes;
}

function digestOf(bytes: Uint8Array): string {
  return `${bytes.length} ${createHash('sha1').update(bytes).digest('hex')}`;
}

/** A connection for contents on which the test writes arbitrary bytes. */
async function dial(context: TestContext, { url }: Served): Promise<{ socket: Socket; text: () => string }> {
  const socket = connect({ host: url.hostname, port: Number(url.port), noDelay: true });
  context.after(() => socket.destroy());
  socket.on('error', () => undefined);
  let text = '';
  socket.on('data', (bytes) => {
    text += bytes.toString('latin1');
  });
  socket.write(UPGRADE);
  await once(socket, 'data');
  assert.match(text, /^HTTP\/1\.1 101 /);
  return { socket, text: () => text };
}

test('bodies of any size, in any pieces, arrive over one connection', async (context) => {
  const served = await serve(context);
  const direct = writesTo(context, served.url);
  for (const length of [1, 5_000, 65_536, 70_001, 1_048_576, 3, BODY_BYTES_MAX]) {
    const whole = bytesOf(length);
    const response = await direct.request(written([whole.subarray(0, 100), whole.subarray(100)]));
    assert.equal(response.statusCode, 200);
    assert.equal(await response.body.text(), digestOf(whole));
  }
  assert.equal(served.sockets.size, 1);
});

test('a request that is refused before its body was read leaves the connection usable', async (context) => {
  const served = await serve(context);
  const direct = writesTo(context, served.url);
  const whole = bytesOf(1_000_000);
  for (let round = 0; round < 3; round++) {
    const refused = await direct.request(written([whole], { 'x-refused': '1' }));
    assert.equal(refused.statusCode, 403);
    const response = await direct.request(written([whole]));
    assert.equal(await response.body.text(), digestOf(whole));
  }
  assert.equal(served.sockets.size, 1);
});

test('a body that is too large is refused without memory for it', async (context) => {
  const served = await serve(context);
  const direct = writesTo(context, served.url);
  const refused = await direct.request(written([Buffer.alloc(BODY_BYTES_MAX + 1)]));
  assert.ok(refused.statusCode >= 400);
  const response = await direct.request(written([bytesOf(9)]));
  assert.equal(await response.body.text(), digestOf(bytesOf(9)));
});

test('head and body may arrive byte by byte', async (context) => {
  const served = await serve(context);
  const { socket, text } = await dial(context, served);
  const request =
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\ncontent-length: 5\r\n\r\nabcde';
  for (const byte of request) {
    socket.write(byte);
    await new Promise((resolve) => setImmediate(resolve));
  }
  while (!text().includes(digestOf(Buffer.from('abcde')))) await once(socket, 'data');
});

test('a request that arrives before the answer to the one before waits for its turn', async (context) => {
  const served = await serve(context);
  const { socket, text } = await dial(context, served);
  const head = (more: string) =>
    `PUT /v1/data/1?offset=0 HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\n${more}content-length: 5\r\n\r\n`;
  socket.write(`${head('')}first${head('x-refused: 1\r\n')}other${head('')}third`);
  while (!text().includes(digestOf(Buffer.from('third')))) await once(socket, 'data');
  const order = [digestOf(Buffer.from('first')), 'refused', digestOf(Buffer.from('third'))];
  const places = order.map((one) => text().indexOf(one));
  assert.ok(
    places.every((place, at) => place > (places[at - 1] ?? 0)),
    `${places}`,
  );
});

test('a body that breaks off is rejected, and the next connection works like the first', async (context) => {
  const served = await serve(context);
  const { socket } = await dial(context, served);
  const failed = once(served.app.server, 'request');
  socket.write(
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\ncontent-length: 5000\r\n\r\nabcde',
  );
  const [message] = (await failed) as [IncomingMessage];
  const closed = once(message, 'close');
  socket.destroy();
  await closed;
  while (served.failures.length === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(served.failures, [
    'The body is incomplete: the connection ended early; send the request again',
  ]);
  const response = await writesTo(context, served.url).request(written([bytesOf(9)]));
  assert.equal(await response.body.text(), digestOf(bytesOf(9)));
});

test('a client that violates the protocol is disconnected', async (context) => {
  const served = await serve(context);
  const heads = [
    'GET /v1/data/1?offset=0&length=1 HTTP/1.1\r\nhost: x\r\n\r\n',
    'PUT /v1/files/v/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n',
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\nhost: x\r\n\r\n',
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n',
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
    'PUT /v1/data/1?offset=0 HTTP/1.1\r\n content-length: 1\r\n\r\n',
    `PUT /v1/data/1?offset=0 HTTP/1.1\r\nx: ${'x'.repeat(70_000)}`,
  ];
  for (const head of heads) {
    const { socket } = await dial(context, served);
    const closed = once(socket, 'close');
    socket.write(head);
    await closed;
  }
  assert.equal(served.sockets.size, 0, 'none of it became a request');
});

test('the end of the server ends the connections', async (context) => {
  const served = await serve(context);
  const { socket } = await dial(context, served);
  const closed = once(socket, 'close');
  await served.app.close();
  await closed;
});

test('a server without such connections is written to in the ordinary way', async (context) => {
  const served = await serve(context, false);
  const whole = bytesOf(300_000);
  await assert.rejects(writesTo(context, served.url).request(written([whole])), NoWriteConnectionsError);
  const events = { unreachable: () => undefined, hasAlternative: () => false };
  const endpoint = new Endpoint(patientWorld, served.url.origin, true, events, Access.NONE);
  context.after(() => endpoint.close());
  const responses = await Promise.all(Array.from({ length: 3 }, () => endpoint.request(written([whole]))));
  for (const response of responses) assert.equal(await response.body.text(), digestOf(whole));
});
