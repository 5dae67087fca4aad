/**
 * Goal: an answer is what the server sent, in whatever pieces it arrives; every other outcome reaches the caller as an
 * error.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { Access } from '../../client/transport/access.ts';
import { DirectHttp, UnusualAnswerError } from '../../client/transport/direct-http.ts';
import { Endpoint } from '../../client/transport/endpoint.ts';
import type { ServerRequest } from '../../client/transport/server-channel.ts';
import { Traffic } from '../../client/transport/traffic.ts';
import { systemWorld } from '../../world/system-world.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const CONNECTIONS_MAX = 2;

async function listening(context: TestContext, server: Server): Promise<URL> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

function directTo(context: TestContext, url: URL): DirectHttp {
  const direct = new DirectHttp(
    systemWorld,
    url,
    new Traffic(systemWorld, CONNECT_TIMEOUT_MS),
    CONNECT_TIMEOUT_MS,
    CONNECTIONS_MAX,
  );
  context.after(() => direct.close());
  return direct;
}

function asked(path: string, more: Partial<ServerRequest> = {}): ServerRequest {
  return { method: 'GET', path, signal: new AbortController().signal, ...more };
}

/** A server in HTTP that records its requests and connections. */
async function httpServer(
  context: TestContext,
  answer: (request: IncomingMessage, body: Buffer, response: ServerResponse) => void,
): Promise<{ readonly url: URL; readonly sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer(async (request, response) => {
    sockets.add(request.socket);
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    answer(request, Buffer.concat(parts), response);
  });
  return { url: await listening(context, server), sockets };
}

/** A server that answers every request with these pieces, each in its own packet. */
async function rawServer(
  context: TestContext,
  answer: (socket: Socket) => Promise<void> | void,
): Promise<URL> {
  const server = createTcpServer({ noDelay: true }, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => void answer(socket));
  });
  return listening(context, server);
}

function bytesOf(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  for (let index = 0; index < length; index++) bytes[index] = (index * 31 + (index >> 8)) & 0xff;
  return bytes;
}

test('answers of any size arrive over one connection', async (context) => {
  const { url, sockets } = await httpServer(context, (request, body, response) => {
    const length = Number(new URL(request.url ?? '', 'http://x').searchParams.get('length'));
    const answer = Buffer.concat([body, bytesOf(length)]);
    response.writeHead(length === 1 ? 404 : 200, { 'content-length': answer.length, 'x-size': `${length}` });
    response.end(answer);
  });
  const direct = directTo(context, url);
  for (const length of [0, 1, 8_000, 8_191, 8_192, 65_536, 5_000_001, 3]) {
    const whole = bytesOf(length);
    const parts = [whole.subarray(0, 100), whole.subarray(100, 100), whole.subarray(100)];
    for (const body of [null, 'text with ä', whole, parts]) {
      const request = asked(`/a?length=${length}`, { method: 'PUT', body, headers: { 'x-y': 'z' } });
      const response = await direct.request(request);
      assert.equal(response.statusCode, length === 1 ? 404 : 200);
      assert.equal(response.headers['x-size'], `${length}`);
      const asWhole = body === parts ? whole : Buffer.from((body ?? '') as string | Buffer);
      const sent = Buffer.concat([asWhole, bytesOf(length)]);
      assert.ok(sent.equals(await response.body.bytes()), `${length} bytes are returned`);
    }
  }
  assert.equal(sockets.size, 1);
});

test('an answer may arrive in pieces, cut anywhere', async (context) => {
  const body = bytesOf(20_000);
  const whole = Buffer.concat([
    Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\nX-A: b:c\r\n\r\n`),
    body,
  ]);
  let cut = 1;
  const url = await rawServer(context, async (socket) => {
    for (const [from, to] of [
      [0, cut],
      [cut, cut + 9_000],
      [cut + 9_000, whole.length],
    ]) {
      await new Promise((resolve) => socket.write(whole.subarray(from, to), resolve));
      await new Promise((resolve) => setImmediate(resolve));
    }
  });
  const direct = directTo(context, url);
  for (cut = 1; cut < 120; cut += 7) {
    const response = await direct.request(asked('/'));
    assert.equal(response.headers['x-a'], 'b:c');
    assert.ok(body.equals(await response.body.bytes()), `Cut at ${cut}`);
  }
});

test('an answer in chunks is one answer', async (context) => {
  const { url, sockets } = await httpServer(context, (request, _body, response) => {
    const size = Number(request.url?.slice(1));
    response.writeHead(200, { 'content-type': 'text/plain' });
    for (let count = 0; count < 3; count++) if (size > 0) response.write(bytesOf(size));
    response.end();
  });
  const direct = directTo(context, url);
  for (const size of [0, 1, 8_192, 300_000]) {
    const one = bytesOf(size);
    const response = await direct.request(asked(`/${size}`));
    assert.ok(Buffer.concat([one, one, one]).equals(await response.body.bytes()), `${size} bytes each`);
  }
  assert.equal(sockets.size, 1);
  const text = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n00\r\nx: y\r\n\r\n';
  const slow = await rawServer(context, async (socket) => {
    for (const byte of text) await new Promise((resolve) => socket.write(byte, resolve));
  });
  assert.equal(await (await directTo(context, slow).request(asked('/'))).body.text(), 'ok');
  const wrong = await rawServer(context, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n');
  });
  await assert.rejects(directTo(context, wrong).request(asked('/')), /no length/);
});

test('each request gets its own answer', async (context) => {
  const { url } = await httpServer(context, (request, _body, response) => {
    response.end(Buffer.alloc(100_000, request.url?.slice(1)));
  });
  const direct = directTo(context, url);
  const answers = await Promise.all('abcdefgh'.split('').map((path) => direct.request(asked(`/${path}`))));
  for (const [place, letter] of 'abcdefgh'.split('').entries()) {
    assert.ok(Buffer.alloc(100_000, letter).equals((await answers[place]?.body.bytes()) ?? Buffer.alloc(0)));
  }
});

test('no more connections than allowed: further requests wait for their turn', async (context) => {
  const held: ServerResponse[] = [];
  const { url, sockets } = await httpServer(context, (_request, _body, response) => {
    held.push(response);
    if (held.length === CONNECTIONS_MAX) for (const one of held.splice(0)) one.end('done');
  });
  const direct = directTo(context, url);
  const all = await Promise.all(Array.from({ length: 6 }, () => direct.request(asked('/'))));
  assert.deepEqual(
    all.map(({ statusCode }) => statusCode),
    Array.from({ length: 6 }, () => 200),
  );
  assert.equal(sockets.size, CONNECTIONS_MAX);
});

test('an aborted request fails with its reason, and its connection is not used again', async (context) => {
  let wasAsked: () => void = () => undefined;
  const { url, sockets } = await httpServer(context, (request, _body, response) => {
    if (request.url === '/begun') {
      response.writeHead(200, { 'content-length': 10 });
      response.write('12345');
    } else if (request.url !== '/never') response.end('done');
    wasAsked();
  });
  const direct = directTo(context, url);
  for (const path of ['/never', '/begun']) {
    const controller = new AbortController();
    const { promise, resolve } = Promise.withResolvers<void>();
    wasAsked = resolve;
    const answer = direct.request(asked(path, { signal: controller.signal }));
    await promise;
    controller.abort(new Error('given up'));
    await assert.rejects(answer, /given up/);
  }
  await assert.rejects(
    direct.request(asked('/', { signal: AbortSignal.abort(new Error('before')) })),
    /before/,
  );
  assert.equal(await (await direct.request(asked('/'))).body.text(), 'done');
  assert.equal(sockets.size, 3);
});

test('a request that waits for a connection may be aborted, and takes no connection from another', async (context) => {
  const held: ServerResponse[] = [];
  const { url } = await httpServer(context, (_request, _body, response) => void held.push(response));
  const direct = directTo(context, url);
  const first = Array.from({ length: CONNECTIONS_MAX }, () => direct.request(asked('/')));
  const controller = new AbortController();
  const second = direct.request(asked('/', { signal: controller.signal }));
  const third = direct.request(asked('/'));
  while (held.length < CONNECTIONS_MAX) await new Promise((resolve) => setImmediate(resolve));
  controller.abort(new Error('given up'));
  await assert.rejects(second, /given up/);
  for (const one of held.splice(0)) one.end('done');
  await Promise.all(first);
  while (held.length < 1) await new Promise((resolve) => setImmediate(resolve));
  held[0]?.end('third');
  assert.equal(await (await third).body.text(), 'third');
});

test('a connection that breaks before the end of an answer fails the request', async (context) => {
  const url = await rawServer(context, (socket) => {
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345');
  });
  await assert.rejects(directTo(context, url).request(asked('/')), /closed the connection/);
});

test('a connection that the server closes between two requests is replaced', async (context) => {
  let closed = Promise.resolve<unknown>(undefined);
  const url = await rawServer(context, (socket) => {
    closed = once(socket, 'close');
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  });
  const direct = directTo(context, url);
  for (let count = 0; count < 3; count++) {
    assert.equal(await (await direct.request(asked('/'))).body.text(), 'ok');
    await closed;
  }
});

test('a refused connection fails with the code of the system', async (context) => {
  const server = createTcpServer();
  const url = await listening(context, server);
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(directTo(context, url).request(asked('/')), { code: 'ECONNREFUSED' });
});

for (const [what, answer] of [
  ['up to the end of the connection', 'HTTP/1.1 200 OK\r\n\r\nok'],
  ['of an older version', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
] as const) {
  test(`an answer ${what} is read by a complete implementation`, async (context) => {
    const url = await rawServer(context, (socket) => void socket.end(answer));
    await assert.rejects(directTo(context, url).request(asked('/')), UnusualAnswerError);
    const endpoint = new Endpoint(
      systemWorld,
      url.href,
      true,
      { unreachable: () => undefined, hasAlternative: () => false },
      Access.NONE,
    );
    context.after(() => endpoint.close());
    for (let count = 0; count < 2; count++) {
      const body = [Buffer.from('a'), Buffer.from('b')];
      const response = await endpoint.request(asked('/', { method: 'PUT', body }));
      assert.equal(await response.body.text(), 'ok');
    }
  });
}

test('an answer above the size limit, or without a request, is an error', async (context) => {
  const huge = await rawServer(context, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n');
  });
  await assert.rejects(directTo(context, huge).request(asked('/')), UnusualAnswerError);
  const twice = await rawServer(context, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n');
  });
  await assert.rejects(directTo(context, twice).request(asked('/')), /without a request/);
});

test('requests under way end when the client retires, and fail when it is closed', async (context) => {
  const held: ServerResponse[] = [];
  const { url } = await httpServer(context, (_request, _body, response) => void held.push(response));
  const direct = directTo(context, url);
  const first = direct.request(asked('/'));
  const second = direct.request(asked('/'));
  while (held.length < 2) await new Promise((resolve) => setImmediate(resolve));
  direct.retire();
  held[0]?.end('done');
  const outcomes = Promise.allSettled([first, second]);
  await Promise.race([first, second]);
  await assert.rejects(direct.request(asked('/')), /were closed/);
  direct.close();
  const kinds = (await outcomes).map(({ status }) => status).sort();
  assert.deepEqual(kinds, ['fulfilled', 'rejected']);
});
