import type { Server, Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Labels } from '../telemetry/metrics.ts';
import { certifiedServer } from './certified.ts';
import { addressKey } from './client-address.ts';

/** Up to this multiple of its bound an address gets an HTTP refusal, which costs a handshake; above it none. */
const HARD_LIMIT_FACTOR = 2;
/** Shares of an address's bound, and of all connections, for unproven ones. */
const UNPROVEN_OF_ADDRESS = 1 / 2;
const UNPROVEN_OF_ALL = 1 / 2;
/** Share of all connections above which every new one ends an unproven one, so that the system refuses none. */
const NEARLY_ALL = 15 / 16;

export interface ConnectionBounds {
  readonly perAddress: number;
  readonly all: number;
}

const REASONS = ['address', 'address-unproven', 'unproven', 'all'] as const;
type Reason = (typeof REASONS)[number];

interface Entry {
  readonly socket: Socket;
  readonly counts: { all: number; unproven: number };
  readonly isSurplus: boolean;
  isProven: boolean;
}

/**
 * Counts connections by address, and by whether their client proved its identity: by certificate, by token, or by any
 * request if the server demands neither. Unproven clients cannot displace proven ones: they have a bound per address,
 * and one in total, above which the oldest of them ends.
 */
export class Connections {
  readonly bounds: ConnectionBounds;
  readonly #counts = new Map<string, Entry['counts']>();
  /** By address and port of the peer, because TLS has another socket than the accepted one. Oldest first. */
  readonly #entries = new Map<string, Entry>();
  readonly #unproven = new Set<Entry>();
  readonly #refused = new Map<Reason, number>(REASONS.map((reason) => [reason, 0]));

  constructor(bounds: ConnectionBounds) {
    this.bounds = bounds;
  }

  countOn(server: Server): void {
    server.on('connection', (socket: Socket) => this.#accept(socket));
    server.on('drop', () => this.#countRefusal('all'));
  }

  isOverLimit(socket: Socket): boolean {
    return this.#entries.get(endpointOf(socket))?.isSurplus === true;
  }

  /** Marks the connection as that of a client that has proved its identity. */
  markProven(socket: Socket): void {
    const entry = this.#entries.get(endpointOf(socket));
    if (entry === undefined || entry.isProven) return;
    entry.isProven = true;
    entry.counts.unproven--;
    this.#unproven.delete(entry);
  }

  get count(): number {
    return this.#entries.size;
  }

  get unprovenCount(): number {
    return this.#unproven.size;
  }

  refused(): [Labels, number][] {
    return [...this.#refused].map(([because, count]) => [{ because }, count]);
  }

  /** Number of connections refused or ended because all clients together have too many. */
  get refusedByTotal(): number {
    return (this.#refused.get('unproven') ?? 0) + (this.#refused.get('all') ?? 0);
  }

  #accept(socket: Socket): void {
    const { remoteAddress = '' } = socket;
    const key = addressKey(remoteAddress);
    const counts = this.#counts.get(key) ?? { all: 0, unproven: 0 };
    const { perAddress } = this.bounds;
    if (counts.all >= HARD_LIMIT_FACTOR * perAddress) {
      this.#refuse(socket, 'address');
      return;
    }
    if (counts.unproven >= Math.max(1, perAddress * UNPROVEN_OF_ADDRESS)) {
      this.#refuse(socket, 'address-unproven');
      return;
    }
    this.#counts.set(key, counts);
    counts.all++;
    counts.unproven++;
    const entry = { socket, counts, isSurplus: counts.all > perAddress, isProven: false };
    const endpoint = endpointOf(socket);
    this.#entries.set(endpoint, entry);
    this.#unproven.add(entry);
    socket.once('close', () => {
      if (this.#entries.get(endpoint) === entry) this.#entries.delete(endpoint);
      this.#unproven.delete(entry);
      counts.all--;
      if (!entry.isProven) counts.unproven--;
      if (counts.all === 0) this.#counts.delete(key);
    });
    this.#evictUnproven();
  }

  /** Ends the oldest unproven connection if there are too many, or nearly as many connections as allowed. */
  #evictUnproven(): void {
    const { all } = this.bounds;
    const proven = this.#entries.size - this.#unproven.size;
    const unprovenMax = Math.max(1, Math.min(all * UNPROVEN_OF_ALL, all * NEARLY_ALL - proven));
    if (this.#unproven.size <= unprovenMax) return;
    const [oldest] = this.#unproven;
    if (oldest === undefined) return;
    this.#refuse(oldest.socket, 'unproven');
  }

  #refuse(socket: Socket, because: Reason): void {
    this.#countRefusal(because);
    socket.destroy();
  }

  #countRefusal(because: Reason): void {
    this.#refused.set(because, (this.#refused.get(because) ?? 0) + 1);
  }
}

function endpointOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress}|${remotePort}`;
}

/** Refuses requests of clients whose address has too many connections; other servers are exempt. */
export function refuseOverLimit(app: FastifyInstance, connections: Connections, world: World): void {
  app.addHook('onRequest', async ({ raw }, reply) => {
    if (!connections.isOverLimit(raw.socket) || certifiedServer(raw.socket, world.wallMs()) !== null) return;
    reply.header('connection', 'close');
    throw new ServiceError(
      'busy',
      `This address has more than ${connections.bounds.perAddress} ` +
        'connections (--address-connections): close some, and retry',
    );
  });
}
