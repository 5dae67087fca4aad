import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { unreachable } from '../../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { LeaseDriver } from '../../server/drivers/lease-driver.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { Clock } from '../../server/process/clock.ts';
import { PeerTransport } from '../../server/transport/peer-transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { groupOf } from './group.ts';
import type { LeaseReport, LeaseServerOptions, Order } from './orders.ts';

const HEARD_TIMEOUT_MS = 60_000;

/** The lease layer alone over the real transport, in a process of its own. */
class LeaseServer {
  readonly #self: ServerId;
  readonly #members: readonly ServerId[];
  readonly #lease: LeaseDriver;
  readonly #transport: PeerTransport;
  readonly #peersHere = new Set<ServerId>();
  readonly #port: number;
  readonly #opened = new Set<CellId>();
  readonly #held = new Set<CellId>();
  #lost = 0;
  /** The first cell of the present order, and how many of its cells this server does not hold yet. */
  #first = 0 as CellId;
  #awaited = 0;
  #allHeld: () => void = () => undefined;

  constructor(options: LeaseServerOptions) {
    const log = pino({ level: 'error' }, pino.destination(2));
    const clock = new Clock(systemWorld);
    const ports = Object.entries(options.ports) as [ServerId, number][];
    const drawIncarnation = (): Incarnation => (randomBytes(6).readUIntLE(0, 6) + 1) as Incarnation;
    this.#self = options.self as ServerId;
    this.#members = ports.map(([id]) => id);
    this.#port = options.ports[options.self] as number;
    this.#lease = new LeaseDriver({
      world: systemWorld,
      self: this.#self,
      peers: this.#members.filter((member) => member !== this.#self),
      leaseMs: options.leaseMs,
      clockSkewMaxMs: options.clockSkewMaxMs,
      algorithm: options.algorithm,
      clock,
      wakes: new WakeQueue(systemWorld, clock),
      log,
      drawIncarnation,
      transport: () => this.#transport,
      knownView: () => null,
      ownLeaseChanged: (cell, untilMs) => this.#changed(cell, untilMs),
      fatal: (error) => {
        log.fatal({ err: error }, 'broken');
        process.exit(1);
      },
    });
    this.#transport = new PeerTransport({
      world: systemWorld,
      server: this.#self,
      incarnation: drawIncarnation(),
      cluster: 'bench',
      paramsHash: 'bench',
      peers: new Map(ports.map(([id, port]) => [id, { host: '127.0.0.1', port }])),
      log,
      handlers: {
        message: (from, _channel, payload) => this.#lease.receive(from, payload),
        connected: (peer) => this.#peersHere.add(peer),
        disconnected: (peer) => this.#peersHere.delete(peer),
        call: () => Promise.resolve(new Uint8Array(0)),
      },
    });
  }

  /** Listens, and reports `ready` once all peers are connected and the recovery wait has ended. */
  async start(): Promise<void> {
    const http = createServer();
    http.on('upgrade', (request, socket, head) => this.#transport.handleUpgrade(request, socket, head));
    http.listen(this.#port, '127.0.0.1');
    await once(http, 'listening');
    this.#transport.start();
    const watch = setInterval(() => {
      if (this.#lease.recoveringMs() > 0 || this.#peersHere.size < this.#members.length - 1) return;
      clearInterval(watch);
      report({ kind: 'ready' });
    }, 20);
    process.on('message', (order: Order) => void this.#obey(order));
    process.on('disconnect', () => process.exit(0));
  }

  async #obey(order: Order): Promise<void> {
    switch (order.kind) {
      case 'acquire': {
        const cells = Array.from({ length: order.count }, (_, index) => (order.first + index) as CellId);
        const others = Math.max(1, this.#members.length - 1);
        const turns = Array.from({ length: others }, (_, turn) =>
          groupOf(turn, this.#self, this.#members, order.groupSize),
        );
        const groups = cells.map((cell) => turns[cell % others] as readonly ServerId[]);
        const begunMs = machineClockMs();
        await this.#acquire(cells, groups);
        const endedMs = machineClockMs();
        report({ kind: 'acquired', begunMs, endedMs });
        return;
      }
      case 'singles': {
        const latenciesMs: number[] = [];
        for (let index = 0; index < order.count; index++) {
          const begunMs = performance.now();
          await this.#acquire([(order.first + index) as CellId], [this.#members]);
          latenciesMs.push(performance.now() - begunMs);
        }
        report({ kind: 'singles', latenciesMs });
        return;
      }
      case 'return': {
        for (const cell of this.#opened) {
          this.#opened.delete(cell);
          this.#held.delete(cell);
          this.#lease.close(cell);
          this.#lease.release(cell);
        }
        await this.#heardByAll();
        report({ kind: 'returned' });
        return;
      }
      case 'usage': {
        const { user, system } = process.cpuUsage();
        report({
          kind: 'usage',
          cpuMs: (user + system) / 1000,
          atMs: performance.now(),
          held: this.#held.size,
          cells: this.#lease.cellCount,
          lost: this.#lost,
          renewed: this.#lease.marks().get('renewed') ?? 0,
        });
        return;
      }
      default:
        unreachable(order);
    }
  }

  /** Resolves once all peers have handled the messages sent so far: messages and calls keep their order. */
  async #heardByAll(): Promise<void> {
    await setImmediate();
    const peers = this.#members.filter((member) => member !== this.#self);
    await Promise.all(
      peers.map((peer) => this.#transport.call(peer, 'heard', new Uint8Array(0), HEARD_TIMEOUT_MS)),
    );
  }

  /** Resolves once this server holds all of them. */
  #acquire(cells: readonly CellId[], groups: readonly (readonly ServerId[])[]): Promise<void> {
    if (cells.length === 0) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#first = cells[0] as CellId;
    this.#awaited = cells.length;
    this.#allHeld = resolve;
    for (const [place, cell] of cells.entries()) {
      this.#opened.add(cell);
      this.#lease.open(cell, { number: 1, members: groups[place] as readonly ServerId[] });
    }
    return promise;
  }

  #changed(cell: CellId, untilMs: number): void {
    if (untilMs === 0) {
      if (!this.#held.delete(cell)) return;
      this.#lost++;
      if (cell >= this.#first) this.#awaited++;
      return;
    }
    if (this.#held.has(cell) || !this.#opened.has(cell)) return;
    this.#held.add(cell);
    if (cell < this.#first) return;
    this.#awaited--;
    if (this.#awaited === 0) this.#allHeld();
  }
}

/** @returns a time that, unlike `performance.now()`, is the same in all processes of a machine */
function machineClockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function report(message: LeaseReport): void {
  process.send?.(message);
}

await new LeaseServer(JSON.parse(process.argv[2] ?? '') as LeaseServerOptions).start();
