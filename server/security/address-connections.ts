import type { Server, Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { serverBehind } from './certified.ts';

/** A hard end, in parts of what is allowed: to refuse in words takes a handshake, too. */
const HARD = 2;

/**
 * Counts connections by the address that they come from. Those beyond the bound are told so at their first request; those beyond
 * twice the bound are ended at once, before a handshake.
 */
export class AddressConnections {
  readonly countMax: number;
  readonly #counts = new Map<string, number>();
  /** By the address and port of the other end: TLS has another socket than the one that was accepted. */
  readonly #surplus = new Set<string>();

  constructor(countMax: number) {
    this.countMax = countMax;
  }

  attend(server: Server): void {
    server.on('connection', (socket: Socket) => this.#arrived(socket));
  }

  /** Whether `socket` came when its address had as many connections as it may have. */
  isSurplus(socket: Socket): boolean {
    return this.#surplus.has(endOf(socket));
  }

  #arrived(socket: Socket): void {
    const { remoteAddress = '' } = socket;
    const count = (this.#counts.get(remoteAddress) ?? 0) + 1;
    if (count > HARD * this.countMax) {
      socket.destroy();
      return;
    }
    const end = endOf(socket);
    if (count > this.countMax) this.#surplus.add(end);
    this.#counts.set(remoteAddress, count);
    socket.once('close', () => {
      this.#surplus.delete(end);
      const left = (this.#counts.get(remoteAddress) ?? 0) - 1;
      if (left > 0) this.#counts.set(remoteAddress, left);
      else this.#counts.delete(remoteAddress);
    });
  }
}

function endOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress}|${remotePort}`;
}

/** Tells a client whose address has too many connections why it gets no answer. The other servers may have as many as they need. */
export function refuseSurplus(app: FastifyInstance, addresses: AddressConnections): void {
  app.addHook('onRequest', async ({ raw }, reply) => {
    if (!addresses.isSurplus(raw.socket) || serverBehind(raw.socket) !== null) return;
    reply.header('connection', 'close');
    throw new ServiceError(
      'busy',
      `More than ${addresses.countMax} connections from one address are too many`,
    );
  });
}
