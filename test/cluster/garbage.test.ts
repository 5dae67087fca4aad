import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type WebSocket, WebSocket as WebSocketClient, WebSocketServer } from 'ws';
import type { ServerId } from '../../base/ids.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { paramsHash } from '../../server/config/config.ts';
import { helloHeaders, type Introduction, PEER_PATH } from '../../server/transport/handshake.ts';
import { ask } from '../http/ask.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

const LEASE_MS = 2_000;
const CLOCK_SKEW_MS = 100;
const ids = ['s1', 's2', 's3'] as ServerId[];

// A new cluster begins with all its servers. After that, two real ones are a majority; this test plays the third one.
const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms`, clockSkew: `${CLOCK_SKEW_MS}ms` });
after(() => cluster.stop());
await cluster.createVolume('main');
await cluster.kill('s3');

const url = cluster.url('s1');
const impostor: Introduction = {
  server: 's3' as ServerId,
  incarnation: 4711 as Introduction['incarnation'],
  cluster: 'default',
  paramsHash: paramsHash({
    leaseMs: LEASE_MS,
    clockSkewMaxMs: CLOCK_SKEW_MS,
    namedLeaseMaxMs: 15_000,
    leaseAlgorithm: 'flease',
    catalogMembers: ids,
  }),
};

let puts = 0;
async function serves(what: string): Promise<void> {
  assert.ok(cluster.isRunning('s1'), `After ${what} the server runs`);
  const path = `/v1/files/main/after-${++puts}`;
  const put = await ask(url, 'PUT', path, { body: what });
  assert.equal(put.status, 201, `After ${what}: ${put.text}`);
  assert.equal((await ask(url, 'GET', path)).text, what);
}

/**
 * Sends bytes to the port as they are.
 * @returns what was received until the server closed, or sent nothing more
 */
async function throwAt(bytes: Buffer, thenClose: boolean): Promise<string> {
  const socket = connect(cluster.port('s1'), '127.0.0.1');
  let heard = '';
  socket.on('data', (chunk: Buffer) => {
    heard += chunk.toString('latin1');
  });
  // A reset is an answer too.
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  if (thenClose) socket.end(bytes);
  else socket.write(bytes);
  await Promise.race([closed, delay(3_000, undefined, { ref: false })]);
  socket.destroy();
  return heard;
}

test('bytes that are not HTTP are answered with 400 or the connection is closed, and the server keeps running', async (t) => {
  const tls = Buffer.from('1603010200010001fc0303', 'hex');
  const cases: [string, Buffer, RegExp][] = [
    ['random bytes', randomBytes(4096), /^HTTP\/1\.1 400 /],
    ['zeros', Buffer.alloc(100_000), /^HTTP\/1\.1 400 /],
    ['a TLS greeting', Buffer.concat([tls, randomBytes(500)]), /^HTTP\/1\.1 400 /],
    ['another protocol', Buffer.from('SSH-2.0-OpenSSH_9.2p1\r\n'), /^HTTP\/1\.1 400 /],
    [
      'too many headers',
      Buffer.from(`GET / HTTP/1.1\r\nx: ${'y'.repeat(200_000)}\r\n\r\n`),
      /^HTTP\/1\.1 431 /,
    ],
    ['half a request', Buffer.from('PUT /v1/files/main/half HTTP/1.1\r\ncontent-le'), /^(HTTP\/1\.1 400 |$)/],
    [
      'a body that ends early',
      Buffer.from('PUT /v1/files/main/early HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nabc'),
      /^(HTTP\/1\.1 400 |$)/,
    ],
    [
      'a length that is none',
      Buffer.from('PUT /v1/files/main/none HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\nabc'),
      /^HTTP\/1\.1 400 /,
    ],
  ];
  for (const [what, bytes, expected] of cases) {
    const heard = await throwAt(bytes, /half|early/.test(what));
    t.diagnostic(`${what}: ${heard.split('\r\n')[0]}`);
    assert.match(heard, expected, what);
    if (heard !== '') assert.match(heard, /application\/problem\+json/, what);
    await serves(what);
  }
  const names = await ask(url, 'GET', '/v1/files/main/');
  assert.doesNotMatch(names.text, /"(half|early|none)"/, 'Truncated uploads created nothing');
});

/**
 * Connects to the server as a peer would.
 * @returns status of the refusal, or how the connection was closed
 */
async function dial(
  headers: Record<string, string>,
  speak: (ws: WebSocket, socket: Socket) => void,
): Promise<string> {
  const ws = new WebSocketClient(`${url.replace('http', 'ws')}${PEER_PATH}`, { headers });
  ws.on('error', () => undefined);
  const outcome = await new Promise<string>((resolve) => {
    ws.on('unexpected-response', async (_request, response) => {
      let body = '';
      for await (const chunk of response) body += chunk;
      resolve(`${response.statusCode} ${body.trim()}`);
    });
    ws.on('upgrade', (response) => ws.once('open', () => speak(ws, response.socket)));
    ws.on('close', (code, reason) => resolve(`closed ${code} ${reason}`));
    setTimeout(() => resolve('open'), 4_000).unref();
  });
  ws.terminate();
  return outcome;
}

/** The first bytes of a masked binary WebSocket frame that claims to be 4 GiB long. */
const CLAIMS_4_GIB = Buffer.from('82ff0000000100000000deadbeef', 'hex');

test('an unknown process that connects as a server is refused with a reason, and its messages are not read', async (t) => {
  const hello = (introduction: Introduction) => helloHeaders(introduction, 's1' as ServerId);
  const cases: [string, Record<string, string>, (ws: WebSocket, socket: Socket) => void, RegExp][] = [
    ['no introduction', {}, () => undefined, /^400 /],
    ['an unknown id', hello({ ...impostor, server: 's9' as ServerId }), () => undefined, /^403 .*s9/],
    ['another cluster', hello({ ...impostor, cluster: 'other' }), () => undefined, /^403 .*other/],
    ['other parameters', hello({ ...impostor, paramsHash: 'x' }), () => undefined, /^409 .*--lease/],
    ['its own id', hello({ ...impostor, server: 's1' as ServerId }), () => undefined, /^409 /],
    [
      'another wire version',
      { ...hello(impostor), 'leasehold-wire': '99', 'leasehold-wire-oldest': '99' },
      () => undefined,
      /^426 /,
    ],
    ['garbage frames', hello(impostor), (ws) => ws.send(randomBytes(1000)), /^closed 1002 /],
    ['text', hello(impostor), (ws) => ws.send('hello'), /^closed 1003 /],
    [
      'a frame of 4 GiB',
      hello(impostor),
      (_ws, socket) => socket.write(CLAIMS_4_GIB),
      /^closed (1009|1006) /,
    ],
    [
      'a broken frame',
      hello(impostor),
      (_ws, socket) => socket.write(randomBytes(64).fill(0xff, 0, 2)),
      /^closed /,
    ],
    [
      'half a frame',
      hello(impostor),
      (_ws, socket) => socket.end(CLAIMS_4_GIB.subarray(0, 5)),
      /^closed 1006 /,
    ],
  ];
  for (const [what, headers, speak, expected] of cases) {
    const heard = await dial(headers, speak);
    t.diagnostic(`${what}: ${heard}`);
    assert.match(heard, expected, what);
    await serves(what);
  }
});

test('a peer that accepts a connection and sends nonsense is disconnected and named in the log, and the server keeps running', async (t) => {
  const acceptor = new WebSocketServer({ noServer: true });
  acceptor.on('headers', (headers: string[]) => {
    for (const [name, value] of Object.entries(helloHeaders(impostor, null)))
      headers.push(`${name}: ${value}`);
  });
  const fake = createServer();
  let speak: (ws: WebSocket, socket: Socket) => void = () => undefined;
  const closes: number[] = [];
  const sockets = new Set<Socket>();
  fake.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  fake.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // Only the first server is tried; the other one's connections represent the rest of the cluster.
    if (request.headers['leasehold-server'] !== 's1') return void socket.destroy();
    acceptor.handleUpgrade(request, socket, head, (ws) => {
      ws.on('error', () => undefined);
      ws.on('close', (code) => closes.push(code));
      ws.once('ping', () => speak(ws, request.socket));
    });
  });
  fake.listen(cluster.port('s3'), '127.0.0.1');
  await once(fake, 'listening');
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => fake.close(resolve));
  });

  const record = (channel: number, length: number, payload: Buffer) => {
    const header = Buffer.alloc(5);
    header.writeUInt8(channel, 0);
    header.writeUInt32LE(length, 1);
    return Buffer.concat([header, payload]);
  };
  const noise = randomBytes(300);
  const cutOff: [string, (ws: WebSocket, socket: Socket) => void][] = [
    ['random bytes as a frame', (ws) => ws.send(randomBytes(1000).fill(0xee, 0, 1))],
    ['text', (ws) => ws.send('hello')],
    ['a record that claims 4 GiB', (ws) => ws.send(record(0, 0xffff_ffff, noise))],
    ['a record that is cut short', (ws) => ws.send(record(0, 1000, noise))],
    ['a frame that claims 4 GiB', (_ws, socket) => socket.write(Buffer.from('827f0000000100000000', 'hex'))],
    ['an unknown kind of frame', (_ws, socket) => socket.write(Buffer.from('8700', 'hex'))],
  ];
  const lines = () => cluster.log('s1').split('\n').length;
  for (const [what, say] of cutOff) {
    const from = lines();
    const before = closes.length;
    speak = say;
    await until(`${what}: the connection is closed`, async () => closes.length > before, 10_000);
    const isTold = () =>
      cluster
        .log('s1')
        .split('\n')
        .slice(from - 1)
        .some((line) => /malformed/.test(line) && /"peer":"s3"/.test(line));
    await until(`${what}: the log names it`, async () => isTold(), 5_000);
    await serves(what);
  }

  // These reach the layers above: the frame is valid, its contents are not.
  for (const channel of [0, 1, 2, 3, 4]) {
    const what = `nonsense on channel ${channel}`;
    const answered = Promise.withResolvers<void>();
    speak = (ws) => {
      ws.send(record(channel, noise.length, noise));
      ws.send(record(channel, 0, Buffer.alloc(0)));
      answered.resolve();
    };
    for (const socket of sockets) socket.destroy();
    await answered.promise;
    await serves(what);
  }

  const over = Promise.withResolvers<void>();
  speak = (ws, socket) => {
    socket.once('close', () => over.resolve());
    ws.send(record(0, noise.length, noise));
    socket.end(Buffer.from('827e1000ffff', 'hex'));
  };
  for (const socket of sockets) socket.destroy();
  await over.promise;
  await serves('a frame that ends early');
  const { verdict } = await cluster.status('s1');
  assert.equal(verdict, 'degraded', 'No other process takes the place of the third server');
});

interface Refusal {
  readonly code: number | null;
  readonly text: string;
}

/** Runs a server that is expected to refuse its start. */
function start(...argv: string[]): Promise<Refusal> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [LAUNCHER, 'server', ...argv],
      { timeout: 20_000 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : null;
        resolve({ code, text: stdout + stderr });
      },
    );
  });
}

test('an impossible start is refused with its reason and a remedy, with exit code 5 if a later one may succeed', async (t) => {
  const replaced = (flags: string[], option: string, value: string) =>
    flags.map((flag, index) => (flags[index - 1] === option ? value : flag));
  const own = cluster.flags('s1');
  const [port] = (await freePorts(1)) as [number];
  const folder = `${cluster.folder}/fresh`;
  const fresh = replaced(own, '--data', folder);
  const alone = (id: string, data: string) => [
    '--id',
    id,
    '--peer',
    `${id}=127.0.0.1:${port}`,
    '--data',
    data,
  ];
  const cases: [string, string[], RegExp[], number?][] = [
    ['an unknown flag', [...own, '--leese', '5s'], [/--leese/, /--lease/]],
    ['a lease too short for the clock skew', replaced(own, '--clock-skew', '300ms'), [/lease/, /clock-skew/]],
    ['no data folder', own.slice(0, own.indexOf('--data')), [/--data/]],
    [
      'a port in use',
      fresh,
      [new RegExp(`127.0.0.1:${cluster.port('s1')}`), /another process/, /--listen/],
      5,
    ],
    ['a second start of the same server', own, [/s1/, /in use by process \d+/, /--data/], 5],
    [
      'the data folder of a server that runs',
      alone('s1', cluster.data('s1')),
      [/s1/, /in use by process \d+/, /--data/],
      5,
    ],
    ['the data folder of another server', alone('s2', folder), [/fresh/, /s1/, /s2/]],
    [
      'the data folder of another cluster',
      [...alone('s1', folder), '--cluster', 'other'],
      [/fresh/, /default/, /other/],
    ],
  ];
  for (const [what, argv, expected, exitCode = 2] of cases) {
    const { code, text } = await start(...argv);
    t.diagnostic(`${what}: ${text.trim()}`);
    assert.equal(code, exitCode, `${what}: ${text}`);
    for (const pattern of expected) assert.match(text, pattern, what);
    assert.doesNotMatch(text, /^\s+at /m, 'A refusal is no stack trace');
  }
  await serves('all these starts');
});
