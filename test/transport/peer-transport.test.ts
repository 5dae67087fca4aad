import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import type { ServerId } from '../../base/ids.ts';
import { WIRE_HEARTBEATS, WIRE_VERSION } from '../../server/transport/frame.ts';
import type { PeerTransportOptions } from '../../server/transport/peer-transport.ts';
import { CHANNEL_LEASE, type PeerAddress } from '../../server/transport/transport.ts';
import { Recorder, transportConformance } from '../conformance/transport.ts';
import {
  freeAddresses,
  type LogLine,
  PeerCluster,
  type PeerProcess,
  recordingLog,
  startPeer,
} from './peer-cluster.ts';

const A = 's1' as ServerId;
const B = 's2' as ServerId;
const NOTHING = new Uint8Array(0);

const QUICK = {
  intervalMs: 20,
  silentIntervalsMax: 10,
  connectTimeoutMs: 500,
  retryMinMs: 10,
  retryMaxMs: 50,
};

transportConformance('sockets', () => new PeerCluster());

/** Polls a condition that has no event: the other side's log. */
async function eventually(condition: () => boolean, claim: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const limit = setTimeout(() => reject(new Error(`${claim}: not within 5 s`)), 5_000);
  const poll = setInterval(() => {
    if (condition()) resolve();
  }, 5);
  await promise.finally(() => {
    clearTimeout(limit);
    clearInterval(poll);
  });
}

function count(lines: readonly LogLine[], msg: string): number {
  return lines.filter((line) => line.msg === msg).length;
}

const HELLO = {
  'leasehold-wire': String(WIRE_VERSION),
  'leasehold-cluster': 'test',
  'leasehold-server': 's2',
  'leasehold-incarnation': '77',
  'leasehold-params': 'p',
  'leasehold-peer': 's1',
};

/**
 * Connects to `s1` as another process would.
 * @returns how it was refused, or `welcome`
 */
async function knock(port: number, headers: Record<string, string>, path = '/v1/peer'): Promise<string> {
  const ws = new WebSocket(`ws://127.0.0.1:${port}${path}`, { headers });
  const { promise, resolve } = Promise.withResolvers<string>();
  ws.on('error', () => undefined);
  ws.on('open', () => resolve('welcome'));
  ws.on('unexpected-response', async (_request, response) => {
    let body = '';
    for await (const chunk of response) body += chunk;
    resolve(`${response.statusCode} ${body.trim()}`);
  });
  const answer = await promise;
  ws.terminate();
  return answer;
}

/**
 * Runs `s1` alone.
 * @returns its log
 */
async function alone(
  body: (peer: PeerProcess, port: number, lines: LogLine[], heard: Recorder) => Promise<void>,
): Promise<void> {
  const peers = await freeAddresses(A, B);
  const { log, lines } = recordingLog();
  const heard = new Recorder();
  const peer = await startPeer({ server: A, peers, handlers: heard, log });
  try {
    await body(peer, peers.get(A)?.port ?? 0, lines, heard);
  } finally {
    await peer.kill();
  }
}

test('a process that does not belong to the cluster is refused with status and reason, and logged once', {
  timeout: 20_000,
}, async () => {
  await alone(async (_peer, port, lines) => {
    const cases: [Record<string, string>, RegExp][] = [
      [{ 'leasehold-cluster': 'other' }, /^403 s2 belongs to cluster "other" and s1 to "test"/],
      [
        { 'leasehold-wire': '1' },
        new RegExp(`^426 No common protocol version: the peer speaks up to 1, s1 up to ${WIRE_VERSION};`),
      ],
      [
        { 'leasehold-wire': `${WIRE_VERSION + 3}`, 'leasehold-wire-oldest': `${WIRE_VERSION + 1}` },
        new RegExp(
          `^426 No common protocol version: the peer speaks up to ${WIRE_VERSION + 3}, s1 up to ${WIRE_VERSION};`,
        ),
      ],
      [{ 'leasehold-wire': 'two' }, /^426 /],
      [{ 'leasehold-wire': '' }, /^400 /],
      [
        { 'leasehold-server': 's7' },
        /^403 Server s7 is not in the configuration of s1: add --peer s7=HOST:PORT/,
      ],
      [{ 'leasehold-server': 's1' }, /^409 Two servers claim to be s1/],
      [{ 'leasehold-server': '../x' }, /^400 Malformed server id, incarnation or command version/],
      [{ 'leasehold-incarnation': '-1' }, /^400 /],
      [{ 'leasehold-incarnation': '9007199254740993' }, /^400 /],
      [{ 'leasehold-peer': 's3' }, /^421 s2 wanted to connect to s3 and reached s1/],
      [{ 'leasehold-params': 'q' }, /^409 The parameters of s2 and s1 differ: --lease/],
    ];
    for (const [change, expected] of cases) {
      const before = count(lines, 'peer refused');
      assert.match(await knock(port, { ...HELLO, ...change }), expected);
      assert.match(await knock(port, { ...HELLO, ...change }), expected);
      assert.ok(count(lines, 'peer refused') - before <= 1, 'A repeated refusal is logged once');
    }
    // The two malformed incarnations in succession are the same refusal.
    assert.equal(count(lines, 'peer refused'), cases.length - 1);
    assert.match(await knock(port, HELLO, '/v1/other'), /^404 /);
    assert.equal(await knock(port, HELLO), 'welcome');
    const newer = { 'leasehold-wire': `${WIRE_VERSION + 1}`, 'leasehold-wire-oldest': `${WIRE_VERSION}` };
    assert.equal(
      await knock(port, { ...HELLO, ...newer }),
      'welcome',
      'A newer one that speaks this version, too',
    );
    const response = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(await response.text(), 'http', 'HTTP shares the port');
  });
});

for (const [what, change, reason] of [
  [
    'another cluster',
    { cluster: 'other' },
    /refused with 403: s1 belongs to cluster "test" and s2 to "other"/,
  ],
  ['other parameters', { paramsHash: 'q' }, /refused with 409: The parameters of s1 and s2 differ/],
] as const satisfies [string, Partial<PeerTransportOptions>, RegExp][]) {
  test(`both sides log why they do not connect: ${what}`, { timeout: 20_000 }, async () => {
    const peers = await freeAddresses(A, B);
    const [ours, theirs] = [recordingLog(), recordingLog()];
    const a = await startPeer({ server: A, peers, handlers: new Recorder(), log: ours.log });
    const b = await startPeer({ server: B, peers, handlers: new Recorder(), log: theirs.log, ...change });
    try {
      const refused = (lines: LogLine[]): LogLine[] => lines.filter((line) => reason.test(line.reason ?? ''));
      await eventually(() => refused(ours.lines).length > 0, 's1 says why');
      await eventually(() => count(ours.lines, 'peer refused') > 0, 's1 refuses');
      await eventually(() => count(theirs.lines, 'peer refused') > 0, 's2 refuses');
      // Retries continue, many by now; each reason was logged once.
      assert.equal(refused(ours.lines).length, 1);
      assert.equal(a.transport.isConnected(B), false);
    } finally {
      await a.kill();
      await b.kill();
    }
  });
}

test('an address that leads to another server is reported as such', { timeout: 20_000 }, async () => {
  const peers = await freeAddresses(A, B);
  const wrong = new Map([...peers, ['s3' as ServerId, peers.get(A) as { host: string; port: number }]]);
  const { log, lines } = recordingLog();
  const a = await startPeer({ server: A, peers: wrong, handlers: new Recorder() });
  const b = await startPeer({ server: B, peers: wrong, handlers: new Recorder(), log });
  try {
    await eventually(
      () => lines.some(({ peer, reason }) => peer === 's3' && reason?.includes('reached s1') === true),
      's2 reports that the address of s3 leads to s1',
    );
  } finally {
    await a.kill();
    await b.kill();
  }
});

/**
 * Poses as `s2` towards `s1`: accepts its connection.
 * @returns the raw socket after the handshake
 */
async function impostor(
  port: number,
  body: (socket: Socket) => void,
  wire = WIRE_VERSION,
): Promise<{ connections: () => number; close: () => Promise<void> }> {
  let connections = 0;
  const sockets = new Set<Socket>();
  const { createHash } = await import('node:crypto');
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => sockets.delete(socket));
    socket.once('data', (request) => {
      connections += 1;
      const key = /sec-websocket-key: (.*)\r\n/i.exec(request.toString('latin1'))?.[1] ?? '';
      const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
      const hello = Object.entries({ ...HELLO, 'leasehold-wire': `${wire}` }).filter(
        ([name]) => name !== 'leasehold-peer',
      );
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
          `Sec-WebSocket-Accept: ${accept}\r\n${hello.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
      );
      // An empty pong, as a keepalive.
      socket.write(Uint8Array.of(0x8a, 0x00));
      body(socket);
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  };
  return { connections: () => connections, close };
}

function frame(...payload: number[]): Uint8Array {
  return Uint8Array.of(0x82, payload.length, ...payload);
}

for (const [what, bytes, reason] of [
  ['a channel that does not exist', frame(9, 0, 0, 0, 0), /Unknown channel 9/],
  ['a record longer than its frame', frame(1, 10, 0, 0, 0, 1, 2), /10 bytes are needed where 2 are left/],
  ['half a record header', frame(1, 10), /4 bytes are needed where 1 are left/],
  ['a record that claims 4 GiB', frame(1, 255, 255, 255, 255), /claims 4294967295 bytes/],
  ['a call without a method', frame(3, 0, 0, 0, 0, 1, 0, 0, 0, 0), /invalid method name/],
  ['a reply with an impossible outcome', frame(4, 0, 0, 0, 0, 1, 0, 0, 0, 7), /the outcome 7/],
  // A frame header with a 64-bit length of 4 GiB.
  [
    'a frame that claims 4 GiB',
    Uint8Array.of(0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0),
    /Max payload size exceeded/,
  ],
  ['a reserved opcode', Uint8Array.of(0x83, 0), /invalid opcode/],
  ['noise', Buffer.from('GET / HTTP/1.1\r\n\r\n'), /.+/],
  ['text', Uint8Array.of(0x81, 2, 0x68, 0x69), /sent a text frame/],
] as const) {
  test(`a malformed frame ends its connection, not the server: ${what}`, { timeout: 20_000 }, async () => {
    const peers = await freeAddresses(A, B);
    const { log, lines } = recordingLog();
    const heard = new Recorder();
    const a = await startPeer({ server: A, peers, handlers: heard, log });
    const fake = await impostor(peers.get(B)?.port ?? 0, (socket) => socket.write(bytes));
    try {
      await eventually(
        () => count(lines, 'connection closed: the peer sent a malformed frame') > 0,
        'it is logged',
      );
      const line = lines.find(({ msg }) => msg.startsWith('connection closed'));
      assert.match(line?.reason ?? '', reason);
      assert.ok(a.transport.stats().connectionsMalformed > 0);
      assert.equal(heard.heard.length, 0);
      await eventually(() => fake.connections() > 1, 'the server lives on and dials again');
    } finally {
      await fake.close();
      await a.kill();
    }
  });
}

test('a frame cut off in the middle is only a lost connection', { timeout: 20_000 }, async () => {
  const peers = await freeAddresses(A, B);
  const heard = new Recorder();
  const a = await startPeer({ server: A, peers, handlers: heard });
  const fake = await impostor(peers.get(B)?.port ?? 0, (socket) => {
    socket.end(Uint8Array.of(0x82, 100, 1, 2, 3));
  });
  try {
    await eventually(() => fake.connections() > 1, 'the server lives on and dials again');
    assert.equal(heard.heard.length, 0);
    assert.equal(a.transport.stats().connectionsMalformed, 0);
  } finally {
    await fake.close();
    await a.kill();
  }
});

test('frames against the direction of a connection are refused', { timeout: 20_000 }, async () => {
  await alone(async (_peer, port, lines, heard) => {
    const ws = new WebSocket(`ws://127.0.0.1:${port}/v1/peer`, { headers: HELLO });
    await once(ws, 'open');
    ws.send(Uint8Array.of(CHANNEL_LEASE, 0, 0, 0, 0));
    const [code] = await once(ws, 'close');
    assert.equal(code, 1002);
    const large = new WebSocket(`ws://127.0.0.1:${port}/v1/peer`, { headers: HELLO });
    await once(large, 'open');
    large.on('error', () => undefined);
    large.send(new Uint8Array(100_000));
    const [tooBig] = await once(large, 'close');
    assert.equal(tooBig, 1009);
    assert.equal(heard.heard.length, 0);
    assert.equal(count(lines, 'connection closed: the peer sent a malformed frame'), 2);
  });
});

test('noise on the port does no harm', { timeout: 20_000 }, async () => {
  await alone(async (_peer, port) => {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    socket.on('error', () => undefined);
    socket.resume();
    socket.end(Buffer.alloc(5_000, 0xfe));
    await once(socket, 'close');
    assert.equal(await knock(port, HELLO), 'welcome');
  });
});

test('a handler that finds a message malformed ends the connection', { timeout: 20_000 }, async () => {
  const peers = await freeAddresses(A, B);
  const { MalformedError } = await import('../../wire/bytes.ts');
  const { log, lines } = recordingLog();
  const heard = new Recorder();
  heard.onMessage = ({ payload }) => {
    if (payload.length === 1) throw new MalformedError('A ballot without a server');
  };
  const a = await startPeer({ server: A, peers, handlers: heard, log });
  const b = await startPeer({ server: B, peers, handlers: new Recorder() });
  try {
    await heard.until(() => a.transport.isConnected(B) && b.transport.isConnected(A), 'connected');
    b.transport.send(A, CHANNEL_LEASE, new Uint8Array(1));
    await eventually(
      () => lines.some(({ reason }) => reason === 'A ballot without a server'),
      'it is logged',
    );
    await heard.until(() => heard.changes.join() === '+s2,-s2,+s2', 'connected again');
  } finally {
    await a.kill();
    await b.kill();
  }
});

test('a newer process takes over; messages of the older one are ignored', { timeout: 20_000 }, async () => {
  const peers = await freeAddresses(A, B);
  const theirs = recordingLog();
  const [heard, older, newer] = [new Recorder(), new Recorder(), new Recorder()];
  const a = await startPeer({ server: A, peers, handlers: heard });
  const first = await startPeer({ server: B, peers, handlers: older, incarnation: 1_000, log: theirs.log });
  await heard.until(() => a.transport.isConnected(B), 'the older one is connected');
  assert.equal(a.transport.incarnationOf(B), 1_000);
  await older.until(() => first.transport.isConnected(A), 'and sees it');

  // The successor cannot have the same port while the older one runs: a proxy's address changes its target.
  const moved = new Map([...peers, ...(await freeAddresses(B))]);
  first.http.close();
  const second = await startPeer({ server: B, peers: moved, handlers: newer, incarnation: 10 });
  const forward = createServer((socket) => {
    const onward = connect(moved.get(B)?.port ?? 0, '127.0.0.1');
    for (const side of [socket, onward]) side.on('error', () => side.destroy());
    socket.pipe(onward).pipe(socket);
  });
  await eventually(() => !first.http.listening, 'the port is free');
  forward.listen(peers.get(B)?.port, '127.0.0.1');
  try {
    await newer.until(() => second.transport.isConnected(A), 'the newer one is connected');
    await heard.until(() => a.transport.isConnected(B), 's1 has the newer one');
    assert.equal(a.transport.incarnationOf(B), 10);
    assert.deepEqual(heard.changes, ['+s2', '-s2', '+s2']);
    await eventually(
      () => theirs.lines.some(({ reason }) => /A newer process of s2 has connected/.test(reason ?? '')),
      'the older one is notified',
    );
    first.transport.send(A, CHANNEL_LEASE, Uint8Array.of(1));
    second.transport.send(A, CHANNEL_LEASE, Uint8Array.of(2));
    await heard.until(() => heard.heard.length === 1, 'messages of the newer one arrive');
    assert.deepEqual([...(heard.heard[0]?.payload ?? [])], [2]);
  } finally {
    await first.kill();
    await second.kill();
    forward.close();
    await a.kill();
  }
});

interface HoledProxy {
  readonly address: PeerAddress;
  /** A hole swallows bytes and closings alike, and answers nothing, on present and new connections. */
  hole(on: boolean): void;
  close(): void;
}

/** Passes connections on to a port of this machine, except while there is a hole. */
async function holedProxy(target: number): Promise<HoledProxy> {
  const sockets = new Set<Socket>();
  let silent = false;
  const server = createServer((socket) => {
    const onward = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(from);
      from.on('error', () => from.destroy());
      from.on('data', (bytes) => void (silent || to.write(bytes)));
      from.on('close', () => void (silent || to.destroy()));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    address: { host: '127.0.0.1', port: typeof address === 'object' ? (address?.port ?? 0) : 0 },
    hole: (on) => {
      silent = on;
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

test('a peer that falls silent without a close is noticed, and found again', {
  timeout: 30_000,
}, async () => {
  const peers = await freeAddresses(A, B);
  const portOf = (id: ServerId): number => peers.get(id)?.port ?? 0;
  const [toA, toB] = [await holedProxy(portOf(A)), await holedProxy(portOf(B))];
  const proxies = [toA, toB];
  const viaB = new Map([...peers, [B, toB.address]]);
  const viaA = new Map([...peers, [A, toA.address]]);
  const [heardA, heardB] = [new Recorder(), new Recorder()];
  const timing = {
    intervalMs: 50,
    silentIntervalsMax: 4,
    connectTimeoutMs: 200,
    retryMinMs: 10,
    retryMaxMs: 50,
  };
  const a = await startPeer({ server: A, peers: viaB, handlers: heardA, timing });
  const b = await startPeer({ server: B, peers: viaA, handlers: heardB, timing });
  try {
    await heardA.until(() => a.transport.isConnected(B), 's1 reaches s2');
    await heardB.until(() => b.transport.isConnected(A), 's2 reaches s1');
    for (const { hole } of proxies) hole(true);
    const startMs = performance.now();
    await heardA.until(() => !a.transport.isConnected(B), 's1 notices');
    await heardB.until(() => !b.transport.isConnected(A), 's2 notices');
    assert.ok(performance.now() - startMs < 20_000, 'Silence is noticed soon');
    await assert.rejects(a.transport.call(B, 'state', NOTHING, 1_000), { code: 'no-majority' });
    for (const { hole } of proxies) hole(false);
    await heardA.until(() => a.transport.isConnected(B), 's1 reaches s2 again');
    await heardB.until(() => b.transport.isConnected(A), 's2 reaches s1 again');
    await a.transport.call(B, 'state', NOTHING, 1_000);
  } finally {
    await a.kill();
    await b.kill();
    for (const { close } of proxies) close();
  }
});

/** B's packets to A are dropped from some moment on, as by a firewall: A can still dial B. */
test('a peer that can no longer dial this server is not taken for connected', {
  timeout: 30_000,
}, async () => {
  const peers = await freeAddresses(A, B);
  const firewall = await holedProxy(peers.get(A)?.port ?? 0);
  const viaFirewall = new Map([...peers, [A, firewall.address]]);
  const a = await startPeer({ server: A, peers, handlers: new Recorder(), timing: QUICK });
  const b = await startPeer({ server: B, peers: viaFirewall, handlers: new Recorder(), timing: QUICK });
  try {
    await eventually(() => a.transport.isConnected(B) && b.transport.isConnected(A), 'they are connected');
    firewall.hole(true);
    await eventually(() => !a.transport.isConnected(B), 's1 notices');
    // It dials the peer again, with success, and must not trust its other connection for that.
    let [looks, trusted] = [0, 0];
    const untilMs = performance.now() + 20 * QUICK.intervalMs * QUICK.silentIntervalsMax;
    while (performance.now() < untilMs) {
      looks += 1;
      if (a.transport.isConnected(B)) trusted += 1;
      await new Promise((resolve) => setTimeout(resolve, QUICK.intervalMs));
    }
    assert.ok(trusted < looks / 2, `connected at ${trusted} of ${looks} looks`);
    await eventually(() => !a.transport.isConnected(B), 's1 notices again');
    await assert.rejects(a.transport.call(B, 'state', NOTHING, 1_000), { code: 'no-majority' });
  } finally {
    await a.kill();
    await b.kill();
    firewall.close();
  }
});

/** First bytes of control frames: a ping of a client, and a pong of a server. */
const [PING, PONG] = [0x89, 0x8a];
const MASKED_HEADER_BYTES = 6;

for (const { wire, what } of [
  {
    wire: WIRE_HEARTBEATS - 1,
    what: 'an earlier release is pinged again and again, and judged by its answers',
  },
  { wire: WIRE_VERSION, what: 'this release is pinged once' },
]) {
  test(`a dialed peer of ${what}`, { timeout: 20_000 }, async () => {
    const peers = await freeAddresses(A, B);
    const a = await startPeer({ server: A, peers, handlers: new Recorder(), timing: QUICK });
    let pings = 0;
    const fake = await impostor(
      peers.get(B)?.port ?? 0,
      (socket) =>
        socket.on('data', (bytes) => {
          for (let at = 0; at < bytes.length; at += MASKED_HEADER_BYTES + ((bytes[at + 1] ?? 0) & 0x7f))
            if (bytes[at] === PING) pings++;
          if (wire < WIRE_HEARTBEATS) socket.write(Uint8Array.of(PONG, 0));
        }),
      wire,
    );
    try {
      if (wire < WIRE_HEARTBEATS) {
        await eventually(() => pings > 2 * QUICK.silentIntervalsMax, 'it is pinged');
        assert.equal(fake.connections(), 1, 'Its answers keep the connection');
      } else {
        await eventually(() => fake.connections() === 3, 'its silence ends each connection');
        assert.ok(pings <= fake.connections(), `${pings} pings`);
      }
    } finally {
      await fake.close();
      await a.kill();
    }
  });
}

test('a dialing peer of this release gets a pong when nothing else was sent, one of an earlier release must ping', {
  timeout: 20_000,
}, async () => {
  const peers = await freeAddresses(A, B);
  const a = await startPeer({ server: A, peers, handlers: new Recorder(), timing: QUICK });
  const dial = async (wire: number): Promise<{ readonly ws: WebSocket; readonly pongs: () => number }> => {
    const headers = { ...HELLO, 'leasehold-wire': `${wire}` };
    const ws = new WebSocket(`ws://127.0.0.1:${peers.get(A)?.port}/v1/peer`, { headers });
    let pongs = 0;
    ws.on('pong', () => pongs++);
    await once(ws, 'open');
    ws.ping();
    return { ws, pongs: () => pongs };
  };
  try {
    const earlier = await dial(WIRE_HEARTBEATS - 1);
    await once(earlier.ws, 'close');
    assert.equal(earlier.pongs(), 1, 'The answer to its ping');
    const present = await dial(WIRE_VERSION);
    await eventually(() => present.pongs() > 2 * QUICK.silentIntervalsMax, 'pongs arrive');
    assert.equal(present.ws.readyState, WebSocket.OPEN, 'It need not send anything');
    present.ws.terminate();
  } finally {
    await a.kill();
  }
});
