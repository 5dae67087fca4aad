/**
 * Goal: no client takes more of a server than its share, by size, slowness, number or rate; and every path, header or
 * body means only what it says.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { RequestListener, Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { after, before, type TestContext, test } from 'node:test';
import { fastify } from 'fastify';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { refuseConnection } from '../../server/http/problems.ts';
import { addressKey } from '../../server/security/client-address.ts';
import { Connections } from '../../server/security/connections.ts';
import { createListener, LISTENER_LIMITS, type ListenerLimits } from '../../server/security/listener.ts';
import type { Principal } from '../../server/security/principal.ts';
import { RateLimits } from '../../server/security/rate-limits.ts';
import { limitSlowBodies } from '../../server/security/slow-bodies.ts';
import { TlsMaterial } from '../../server/security/tls-material.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask, sendRaw } from '../http/ask.ts';
import { FakeCluster } from '../http/fake-services.ts';
import { TestAuthority } from './authority.ts';

const MIB = 1024 * 1024;
let cluster: FakeCluster;
let base: string;

before(async () => {
  cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  base = cluster.server(0).url;
  await ask(base, 'PUT', '/v1/files/main/inside', { body: 'what is inside' });
});
after(async () => {
  await cluster.close();
  assert.deepEqual(cluster.logged, [], 'No unexpected error was logged');
});

async function listening(
  context: TestContext,
  limits: Partial<ListenerLimits>,
  handler: RequestListener = (_request, response) => response.end('answer'),
  parts: { readonly tls?: TlsMaterial; readonly connections?: Connections } = {},
): Promise<{ readonly server: Server; readonly port: number }> {
  const log = pino({ level: 'silent' });
  const { tls = null, connections = null } = parts;
  const server = createListener(handler, tls, log, { ...LISTENER_LIMITS, ...limits }, connections);
  server.on('clientError', (error, socket: Socket) => refuseConnection(systemWorld, error, socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { server, port: (server.address() as AddressInfo).port };
}

async function dialFrom(port: number, from = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from });
  await once(socket, 'connect');
  return socket;
}

function countOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_, count) => resolve(count)));
}

/** @returns what was received before the other side closed */
async function untilHungUp(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (data) => {
    text += data.toString('latin1');
  });
  socket.on('error', () => socket.destroy());
  await new Promise((resolve) => socket.once('close', resolve));
  return text;
}

for (const path of [
  '/v1/files/main/../../../etc/passwd',
  '/v1/files/main/%2e%2e/%2e%2e/etc/passwd',
  '/v1/files/main/..%2f..%2fetc%2fpasswd',
  '/v1/files/main/..\\..\\etc\\passwd',
  '/v1/files/main/%00',
  '/v1/files/main/inside%00.txt',
  '/v1/files/../files/main/inside',
  '/v1/files//main/inside',
  '/v1/files/main/./inside',
  '/v1/files/%6dain%2finside',
  '/v1/files/main/inside%0d%0aset-cookie:%20a=b',
  '/../../../../etc/passwd',
  '/%2e%2e/%2e%2e/etc/passwd',
  '/v1/data/../files/main/inside',
]) {
  test(`a path reaches no other file: ${path}`, async () => {
    const answer = await sendRaw(base, `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 4\d\d /);
    assert.doesNotMatch(answer, /what is inside|root:/);
    assert.doesNotMatch(answer.split('\r\n\r\n')[0] ?? '', /set-cookie/i);
  });
}

test('no name adds a line to the header of an answer', async () => {
  const name = encodeURIComponent('a\r\nset-cookie: a=b');
  const stored = await ask(base, 'PUT', `/v1/files/main/${name}`, { body: 'x' });
  assert.equal(stored.status, 201, stored.text);
  for (const path of [
    `/v1/files/main/${name}`,
    '/v1/files/main/',
    `/v1/info/main/${name}`,
    `/v1/files/main/${name}/`,
  ]) {
    const { headers } = await ask(base, 'GET', path);
    assert.equal(headers['set-cookie'], undefined);
    for (const value of Object.values(headers).flat()) assert.doesNotMatch(String(value), /[\r\n]/);
  }
});

test('bytes that could be one or two requests are one request, which is refused', async () => {
  for (const head of [
    'POST /v1/catalog/queries HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\n\r\n',
    'GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello',
    'GET /livez HTTP/1.1\r\nhost: x\r\nx: a\nb: c\r\n\r\n',
    'GET /livez HTTP/1.1\r\nhost : x\r\n\r\n',
  ]) {
    const answer = await sendRaw(base, head);
    assert.match(answer, /^HTTP\/1\.1 400 /, head);
    assert.equal(answer.match(/HTTP\/1\.1 /g)?.length, 1);
  }
});

test('a header that is too large is refused', async () => {
  const answer = await sendRaw(base, `GET /livez HTTP/1.1\r\nhost: x\r\nx: ${'a'.repeat(70_000)}\r\n\r\n`);
  assert.match(answer, /^HTTP\/1\.1 431 /);
});

test('a body that is too large is refused before it has arrived', async () => {
  for (const [path, bytes] of [
    ['/v1/data/7?offset=0&session=1&number=1&since=0', 5 * MIB],
    ['/v1/catalog/queries', 2 * MIB],
    ['/v1/leases/a', 2 * MIB],
  ] as const) {
    const method = path.startsWith('/v1/data') ? 'PUT' : 'POST';
    const head = `${method} ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`;
    assert.match(await sendRaw(base, head), /^HTTP\/1\.1 (?:413|404) /, path);
  }
});

test('a header that does not end in time ends its connection', async (context) => {
  const { port } = await listening(context, { headersMs: 400 });
  const socket = connect(port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n');
  const drip = setInterval(() => socket.write('x: a\r\n'), 50);
  context.after(() => clearInterval(drip));
  assert.match(await untilHungUp(socket), /^HTTP\/1\.1 408 /);
});

test('a body that arrives too slowly ends its connection; one at a normal rate is accepted', async (context) => {
  const app = fastify();
  limitSlowBodies(app, systemWorld, undefined, 300);
  app.post('/', async (request) => request.body);
  await app.listen({ host: '127.0.0.1', port: 0 });
  context.after(() => app.close());
  const { port } = app.server.address() as AddressInfo;
  const whole = await fetch(`http://127.0.0.1:${port}/`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"a":1}',
  });
  assert.deepEqual(await whole.json(), { a: 1 });
  const socket = connect(port, '127.0.0.1');
  socket.write(
    'POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n',
  );
  const drip = setInterval(() => socket.write(' '), 50);
  context.after(() => clearInterval(drip));
  assert.doesNotMatch(await untilHungUp(socket), /200/);
});

test('contents that arrive too slowly end their connection; those for which the server makes the client wait do not', async (context) => {
  const app = fastify();
  limitSlowBodies(app, systemWorld, undefined, 60_000, { windowMs: 200, bytesPerS: 1_000 });
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  let released: (() => void) | null = null;
  app.put('/v1/files', async ({ raw, headers }) => {
    if (headers.slow !== undefined) await new Promise<void>((resolve) => (released = resolve));
    let length = 0;
    for await (const part of raw) length += (part as Buffer).length;
    return { length };
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  context.after(() => app.close());
  const { port } = app.server.address() as AddressInfo;
  const head = 'PUT /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\nconnection: close\r\n';
  const dripping = await dialFrom(port);
  dripping.write(`${head}content-length: 100000\r\n\r\n`);
  const drip = setInterval(() => dripping.write(' '), 20);
  context.after(() => clearInterval(drip));
  const waiting = await dialFrom(port);
  waiting.write(`${head}slow: 1\r\ncontent-length: 100\r\n\r\n${' '.repeat(50)}`);
  assert.doesNotMatch(await untilHungUp(dripping), /200/);
  // By now the other one has waited for as many windows.
  (released as (() => void) | null)?.();
  waiting.write(' '.repeat(50));
  assert.match(await untilHungUp(waiting), /200 OK[\s\S]*"length":100/);
});

test('one client may send many uploads at once, and leaves some for others', {
  timeout: 20_000,
}, async (context) => {
  const { hostname: host, port } = new URL(base);
  const upload = async (from: string): Promise<Socket> => {
    const socket = connect({ port: Number(port), host, localAddress: from });
    context.after(() => socket.destroy());
    socket.write('PUT /v1/files/main/half HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf');
    await once(socket, 'connect');
    return socket;
  };
  const answerTo = async (socket: Socket, end: string): Promise<string> => {
    let text = '';
    while (!text.endsWith(end)) text += String((await once(socket, 'data'))[0]);
    return text;
  };
  const all = await Promise.all(Array.from({ length: 33 }, () => upload('127.0.0.2')));
  const refused = await Promise.race(all.map((socket) => answerTo(socket, '}')));
  assert.match(refused, /^HTTP\/1\.1 503 /);
  assert.match(refused, /Too many concurrent uploads: \\"127\.0\.0\.2\\" has 32, and 32 of 64 are in use/);
  const other = await upload('127.0.0.3');
  other.write('whole');
  assert.match(await answerTo(other, '\r\n\r\n'), /^HTTP\/1\.1 20[14] /);
});

test('an answer that its client does not read is not kept in memory', async (context) => {
  const { promise: wasWritten, resolve } = Promise.withResolvers<boolean>();
  const { port } = await listening(context, { silentMs: 300 }, (_request, response) => {
    response.on('close', () => resolve(response.writableFinished));
    response.end(Buffer.alloc(64 * MIB));
  });
  let isAnswered = false;
  void wasWritten.then(() => (isAnswered = true));
  // On a slow machine it may count as silent before its request has arrived.
  const dial = (): void => {
    const socket = connect(port, '127.0.0.1');
    context.after(() => socket.destroy());
    socket.on('error', () => socket.destroy());
    socket.on('close', () => isAnswered || dial());
    socket.pause();
    socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  };
  dial();
  assert.equal(await wasWritten, false, 'it was aborted');
});

test('the number of connections is limited', async (context) => {
  const { port } = await listening(context, { connections: 2 });
  const first = connect(port, '127.0.0.1');
  const second = connect(port, '127.0.0.1');
  await Promise.all([once(first, 'connect'), once(second, 'connect')]);
  const third = connect(port, '127.0.0.1');
  assert.equal(await untilHungUp(third), '');
  first.end('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  assert.match(await untilHungUp(first), /answer$/);
  second.destroy();
});

test('one address has a limited number of connections, gets an error at the next, and no answer beyond twice as many', async (context) => {
  const connections = new Connections({ perAddress: 2, all: 100 });
  const seen: boolean[] = [];
  const listener: RequestListener = ({ socket }, response) => {
    connections.markProven(socket);
    seen.push(connections.isOverLimit(socket));
    response.end('answer');
  };
  const { server, port } = await listening(context, {}, listener, { connections });
  const dial = (from = '127.0.0.1') => dialFrom(port, from);
  const say = async (socket: Socket): Promise<void> => {
    socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
    await once(socket, 'data');
  };
  const sockets: Socket[] = [];
  for (let count = 0; count < 4; count++) {
    const socket = await dial();
    await say(socket);
    sockets.push(socket);
  }
  assert.deepEqual(seen, [false, false, true, true]);
  assert.equal(await untilHungUp(await dial()), '', 'no answer');
  await say(await dial('127.0.0.2'));
  assert.equal(seen.at(-1), false, 'Others are not affected');
  const [first] = sockets;
  for (const socket of sockets) socket.destroy();
  assert.ok(first?.destroyed);
  while ((await countOf(server)) > 1) await new Promise((resolve) => setImmediate(resolve));
  await say(await dial());
  assert.equal(seen.at(-1), false, 'A closed connection frees its place');
});

test('a connection to a port with TLS that never begins a handshake is closed, and leaves nothing', {
  timeout: 10_000,
}, async (context) => {
  const authority = await TestAuthority.create();
  context.after(() => authority.remove());
  const files = { ...(await authority.server('s1')), ca: authority.ca };
  const connections = new Connections({ perAddress: 100, all: 100 });
  const tls = new TlsMaterial(systemWorld, files, 's1' as ServerId);
  const { server, port } = await listening(context, { handshakeMs: 200 }, undefined, { tls, connections });
  const [silent, gone, plain] = await Promise.all([dialFrom(port), dialFrom(port), dialFrom(port)]);
  const ended = [silent, gone, plain].map((socket) => untilHungUp(socket as Socket));
  gone?.destroy();
  plain?.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  assert.doesNotMatch((await Promise.all(ended)).join(''), /HTTP/);
  while ((await countOf(server)) + connections.count > 0)
    await new Promise((resolve) => setImmediate(resolve));
});

test('unauthenticated clients leave connections for authenticated ones, and the oldest of them is closed', {
  timeout: 10_000,
}, async (context) => {
  const connections = new Connections({ perAddress: 6, all: 8 });
  const handler: RequestListener = ({ socket }, response) => {
    connections.markProven(socket);
    response.end('answer');
  };
  const { port } = await listening(context, {}, handler, { connections });
  const proven = await dialFrom(port, '127.0.0.1');
  proven.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(proven, 'data');
  const silent: Socket[] = [];
  for (const from of ['127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.3'])
    silent.push(await dialFrom(port, from));
  assert.equal(
    await untilHungUp(await dialFrom(port, '127.0.0.2')),
    '',
    'its address has half of its share unauthenticated',
  );
  const [oldest] = silent.map((socket) => untilHungUp(socket));
  const late = await dialFrom(port, '127.0.0.4');
  await oldest;
  late.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(late, 'data');
  proven.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(proven, 'data');
  assert.deepEqual(
    connections.refused().map(([{ because }, count]) => [because, count]),
    Object.entries({ address: 0, 'address-unproven': 1, unproven: 1, all: 0 }),
  );
  assert.equal(connections.refusedByTotal, 1);
  for (const socket of [proven, late, ...silent]) socket.destroy();
});

test('addresses of one IPv6 network count as one', () => {
  assert.equal(addressKey('::ffff:10.1.2.3'), '10.1.2.3');
  assert.equal(addressKey('10.1.2.3'), '10.1.2.3');
  assert.equal(addressKey('2001:db8:0:7::1'), addressKey('2001:db8::7:ffff:1:2:3'));
  assert.equal(addressKey('2001:db8::1'), '2001:db8:0:0::/64');
  assert.notEqual(addressKey('2001:db8:0:8::1'), addressKey('2001:db8:0:7::1'));
  assert.equal(addressKey('fe80::1%eth0'), 'fe80:0:0:0::/64');
  assert.equal(addressKey('::1'), '0:0:0:0::/64');
});

test('one client sends no more requests than it may, and others are not affected', () => {
  let nowMs = 0;
  const limits = new RateLimits(10, () => nowMs);
  const client = (name: string): Principal => ({
    kind: 'client',
    grant: { name, role: 'read', volumes: null },
  });
  const asked = (principal: Principal | null, times: number, address = 'a'): number => {
    for (let done = 0; done < times; done++) {
      try {
        limits.take(principal, address);
      } catch (error) {
        assert.ok(error instanceof ServiceError && error.code === 'busy');
        assert.ok((error.details.retryAfterMs ?? 0) > 0);
        return done;
      }
    }
    return times;
  };
  assert.equal(asked(client('wild'), 100), 20, 'its saved burst, and then its rate');
  assert.equal(asked(client('quiet'), 5), 5);
  nowMs = 500;
  assert.equal(asked(client('wild'), 100), 5);
  assert.equal(asked(null, 1_000, 'guesser'), 100, 'unauthenticated clients always have a limit');
  assert.equal(asked(null, 1, 'other'), 1);
  assert.equal(
    asked({ kind: 'server', id: 's2' as never }, 1_000),
    1_000,
    'servers forward requests of clients that were counted',
  );
  const unbound = new RateLimits(Number.POSITIVE_INFINITY, () => nowMs);
  for (let count = 0; count < 1_000; count++) unbound.take(client('wild'), 'a');
});
