/**
 * Speed of the transport between two processes on one machine: latency of small messages compared with a bare socket,
 * and throughput of large ones. `node bench/transport.ts`; prints, asserts nothing.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer } from 'node:net';
import { performance } from 'node:perf_hooks';
import { pino } from 'pino';
import type { ServerId } from '../base/ids.ts';
import { freePorts } from '../client/dev/free-ports.ts';
import { PeerTransport } from '../server/transport/peer-transport.ts';
import { CHANNEL_LEASE, CHANNEL_REPLICA, type TransportHandlers } from '../server/transport/transport.ts';
import { systemWorld } from '../world/system-world.ts';

const NEAR = 'near' as ServerId;
const FAR = 'far' as ServerId;

/** Bytes that are sent before the other process has confirmed some, in the throughput runs. */
const WINDOW_BYTES = 16 * 2 ** 20;

async function start(
  server: ServerId,
  ports: ReadonlyMap<ServerId, number>,
  handlers: TransportHandlers,
): Promise<PeerTransport> {
  const peers = new Map([...ports].map(([id, port]) => [id, { host: '127.0.0.1', port }]));
  const incarnation = 1 + Math.floor(Math.random() * 2 ** 52);
  const log = pino({ level: 'warn' }, pino.destination(2));
  const transport = new PeerTransport({
    world: systemWorld,
    server,
    incarnation,
    cluster: 'bench',
    paramsHash: '',
    peers,
    handlers,
    log,
  });
  const http = createHttpServer();
  http.on('upgrade', (request, socket, head) => transport.handleUpgrade(request, socket, head));
  http.listen(ports.get(server), '127.0.0.1');
  await once(http, 'listening');
  transport.start();
  return transport;
}

/** The other process: sends small messages back, and confirms large ones with their size. */
async function far(ports: ReadonlyMap<ServerId, number>): Promise<void> {
  const echo = createServer((socket) => {
    socket.setNoDelay(true);
    socket.pipe(socket);
  });
  echo.listen(0, '127.0.0.1');
  await once(echo, 'listening');
  const transport = await start(FAR, ports, {
    message(from, channel, payload) {
      if (channel === CHANNEL_LEASE) {
        transport.send(from, CHANNEL_LEASE, payload);
        return;
      }
      const size = new Uint8Array(4);
      new DataView(size.buffer).setUint32(0, payload.length);
      transport.send(from, CHANNEL_REPLICA, size);
    },
    connected: () => undefined,
    disconnected: () => process.exit(0),
    call: (_from, _method, payload) => Promise.resolve(payload),
  });
  process.send?.({ echoPort: (echo.address() as AddressInfo).port });
}

function percentile(sorted: readonly number[], share: number): string {
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return `${(value * 1_000).toFixed(0)} µs`;
}

function report(label: string, roundsMs: number[]): void {
  const oneWay = roundsMs.map((roundMs) => roundMs / 2).toSorted((a, b) => a - b);
  console.log(`${label.padEnd(34)} p50 ${percentile(oneWay, 0.5)}  p99 ${percentile(oneWay, 0.99)}`);
}

async function near(ports: ReadonlyMap<ServerId, number>, echoPort: number): Promise<void> {
  let arrived: (payload: Uint8Array) => void = () => undefined;
  const connected = Promise.withResolvers<void>();
  const transport = await start(NEAR, ports, {
    message: (_from, _channel, payload) => arrived(payload),
    connected: () => connected.resolve(),
    disconnected: () => undefined,
    call: (_from, _method, payload) => Promise.resolve(payload),
  });
  await connected.promise;

  const small = new Uint8Array(100);
  for (const [label, round] of [
    ['bare socket, 100 B, one way', await bareSocket(echoPort, small)],
    [
      'message, 100 B, one way',
      () =>
        new Promise<void>((resolve) => {
          arrived = () => resolve();
          transport.send(FAR, CHANNEL_LEASE, small);
        }),
    ],
    ['call, 100 B, half of a round trip', () => transport.call(FAR, 'echo', small, 10_000)],
  ] as const) {
    const roundsMs: number[] = [];
    for (let index = 0; index < 6_000; index++) {
      const startMs = performance.now();
      await round();
      // The first thousand warm up.
      if (index >= 1_000) roundsMs.push(performance.now() - startMs);
    }
    report(label, roundsMs);
  }

  for (const [size, totalBytes] of [
    [4 * 2 ** 10, 2 ** 28],
    [128 * 2 ** 10, 2 ** 31],
    [512 * 2 ** 10, 2 ** 31],
    [2 ** 20, 2 ** 31],
    [4 * 2 ** 20, 2 ** 31],
  ] as const) {
    const payload = new Uint8Array(size).fill(1);
    const done = Promise.withResolvers<void>();
    let sentBytes = 0;
    let confirmedBytes = 0;
    const more = (): void => {
      while (sentBytes < totalBytes && sentBytes - confirmedBytes < WINDOW_BYTES) {
        transport.send(FAR, CHANNEL_REPLICA, payload);
        sentBytes += size;
      }
    };
    arrived = (bytes) => {
      confirmedBytes += new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
      if (confirmedBytes === totalBytes) done.resolve();
      else more();
    };
    const startMs = performance.now();
    more();
    await done.promise;
    const seconds = (performance.now() - startMs) / 1_000;
    const rate = (totalBytes / seconds / 1e6).toFixed(0);
    const perSecond = (totalBytes / size / seconds).toFixed(0);
    console.log(`${`${size / 1024} KiB messages`.padEnd(34)} ${rate} MB/s  ${perSecond} messages/s`);
  }
  await transport.close();
}

async function bareSocket(port: number, payload: Uint8Array): Promise<() => Promise<void>> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setNoDelay(true);
  let arrived = (): void => undefined;
  socket.on('data', () => arrived());
  socket.unref();
  return () =>
    new Promise((resolve) => {
      arrived = resolve;
      socket.write(payload);
    });
}

const [given] = process.argv.slice(2);
if (given === undefined) {
  const ports = (await freePorts(2)) as [number, number];
  const child: ChildProcess = fork(import.meta.filename, [ports.join(',')]);
  try {
    const [ready] = (await once(child, 'message')) as [{ echoPort: number }];
    await near(
      new Map([
        [NEAR, ports[0]],
        [FAR, ports[1]],
      ]),
      ready.echoPort,
    );
  } finally {
    child.kill();
  }
  process.exit(0);
} else {
  const [nearPort = 0, farPort = 0] = given.split(',').map(Number);
  await far(
    new Map([
      [NEAR, nearPort],
      [FAR, farPort],
    ]),
  );
}
