import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { pino } from 'pino';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import { Clock } from '../server/clock.ts';
import { LeaseDriver } from '../server/lease-driver.ts';
import { PeerTransport } from '../server/transport/peer-transport.ts';
import { WakeQueue } from '../server/wake-queue.ts';

/** Orders of the benchmark to one lease server, and its reports. */
export type LeaseOrder = { readonly kind: 'acquire'; readonly first: number; readonly count: number };
export type LeaseReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'acquired'; readonly elapsedMs: number; readonly count: number };

/** Nothing but the lease layer over the real transport, in a process of its own. */
async function main(self: ServerId, ports: ReadonlyMap<ServerId, number>): Promise<void> {
  const log = pino({ level: 'warn' }, pino.destination(2));
  const clock = new Clock();
  const wakes = new WakeQueue(clock);
  const members = [...ports.keys()];
  const drawIncarnation = (): Incarnation => (randomBytes(6).readUIntLE(0, 6) + 1) as Incarnation;
  let awaited: Set<number> | null = null;
  let begunMs = 0;
  let count = 0;
  const peersHere = new Set<ServerId>();
  const lease: LeaseDriver = new LeaseDriver({
    self,
    peers: members.filter((member) => member !== self),
    leaseMs: 15_000,
    clockSkewMaxMs: 500,
    clock,
    wakes,
    log,
    drawIncarnation,
    transport: () => transport,
    changed: (cell, untilMs) => {
      if (awaited === null || untilMs === 0 || !awaited.delete(cell) || awaited.size > 0) return;
      awaited = null;
      report({ kind: 'acquired', elapsedMs: performance.now() - begunMs, count });
    },
    fatal: (error) => {
      log.fatal({ err: error }, 'broken');
      process.exit(1);
    },
  });
  const transport: PeerTransport = new PeerTransport({
    server: self,
    incarnation: drawIncarnation(),
    cluster: 'bench',
    paramsHash: 'bench',
    peers: new Map([...ports].map(([id, port]) => [id, { host: '127.0.0.1', port }])),
    log,
    handlers: {
      message: (from, _channel, payload) => lease.receive(from, payload),
      connected: (peer) => peersHere.add(peer),
      disconnected: (peer) => peersHere.delete(peer),
      call: () => Promise.resolve(new Uint8Array(0)),
    },
  });
  const http = createServer();
  http.on('upgrade', (request, socket, head) => transport.handleUpgrade(request, socket, head));
  http.listen(ports.get(self), '127.0.0.1');
  await once(http, 'listening');
  transport.start();
  const ready = setInterval(() => {
    if (lease.recoveringMs() > 0 || peersHere.size < members.length - 1) return;
    clearInterval(ready);
    report({ kind: 'ready' });
  }, 20);
  process.on('message', (order: LeaseOrder) => {
    count = order.count;
    awaited = new Set(Array.from({ length: count }, (_, place) => order.first + place));
    begunMs = performance.now();
    for (const cell of awaited) lease.open(cell as CellId, { number: 1, members });
  });
  process.on('disconnect', () => process.exit(0));
}

function report(message: LeaseReport): void {
  process.send?.(message);
}

const [self, ...peers] = process.argv.slice(2);
const ports = new Map(
  peers.map((peer) => {
    const [id, port] = peer.split('=');
    return [id as ServerId, Number(port)];
  }),
);
await main(self as ServerId, ports);
