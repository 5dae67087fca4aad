import type { Socket } from 'node:net';
import type { World } from '../../base/world.ts';
import { buildConnector, type Connector } from '../../platform/undici.ts';
import { Access } from './access.ts';

/** The connections to one server: whether anything arrives on them, and how long the fastest took to connect. */
export class Traffic {
  /** For the pool whose connections these are; others are reported by `add`. */
  readonly connector: Connector;
  readonly #bytesSeen = new Map<Socket, number>();
  readonly #access: Access;
  #connectMs: number | null = null;

  /** @param access read again for each connection: its files may have been replaced */
  constructor(world: World, connectTimeoutMs: number, access: Access = Access.NONE) {
    this.#access = access;
    access.revoked?.watch(world);
    this.connector = (options, callback) => {
      const beganMs = world.nowMs();
      // No TLS session is resumed: it would outlive the certificate by which it began.
      const connect = buildConnector({ ...access.tls, timeout: connectTimeoutMs, maxCachedSessions: 0 });
      connect(options, (...outcome) => {
        const [error, socket] = outcome;
        if (error === null) this.addConnection(socket, world.nowMs() - beganMs);
        callback(...outcome);
      });
    };
  }

  /**
   * The shortest time that a connection took, in milliseconds, 0 before the first: a round trip, and a few more with
   * TLS. The server's kernel does this without its process, so a busy server does not seem distant.
   */
  get connectMs(): number {
    return this.#connectMs ?? 0;
  }

  /** @returns whether anything has arrived since the last call */
  hasReceived(): boolean {
    let moved = false;
    for (const [socket, seen] of this.#bytesSeen) {
      if (socket.bytesRead === seen) continue;
      this.#bytesSeen.set(socket, socket.bytesRead);
      moved = true;
    }
    return moved;
  }

  addConnection(socket: Socket, tookMs: number): void {
    this.#connectMs = Math.min(tookMs, this.#connectMs ?? tookMs);
    this.#bytesSeen.set(socket, socket.bytesRead);
    this.#access.revoked?.watchSocket(socket);
    socket.once('close', () => this.#bytesSeen.delete(socket));
  }
}
