import type { Socket } from 'node:net';
import type { World } from '../base/world.ts';
import { buildConnector, type Connector } from '../http-parts/undici.ts';
import { Access } from './access.ts';

/** The connections to one server as their bytes show them: whether anything comes in, and how far away the server is. */
export class Traffic {
  /** For the pool whose connections these are; others are told of by `add`. */
  readonly connector: Connector;
  /** Bytes that had come in on each when last looked at. */
  readonly #bytesSeen = new Map<Socket, number>();
  readonly #access: Access;
  #connectMs: number | null = null;

  /**
   * @param connectTimeoutMs how long the making of a connection may take
   * @param access is asked anew for each connection: files may have been replaced
   */
  constructor(world: World, connectTimeoutMs: number, access: Access = Access.NONE) {
    this.#access = access;
    access.revoked?.watch(world);
    this.connector = (options, callback) => {
      const beganMs = world.nowMs();
      // Nothing is resumed: a session would outlive the certificate by which it began.
      const connect = buildConnector({ ...access.tls, timeout: connectTimeoutMs, maxCachedSessions: 0 });
      connect(options, (...made) => {
        const [error, socket] = made;
        if (error === null) this.add(socket, world.nowMs() - beganMs);
        callback(...made);
      });
    };
  }

  /**
   * The shortest time that it took to make a connection, in milliseconds, 0 before the first: a round trip, and a
   * few more with TLS. The server's kernel does its part without the server's process, so a busy one looks no farther.
   */
  get connectMs(): number {
    return this.#connectMs ?? 0;
  }

  /** @returns whether any bytes have come in since the last call */
  hasMoved(): boolean {
    let moved = false;
    for (const [socket, seen] of this.#bytesSeen) {
      if (socket.bytesRead === seen) continue;
      this.#bytesSeen.set(socket, socket.bytesRead);
      moved = true;
    }
    return moved;
  }

  /** @param tookMs how long the making of the connection took, in milliseconds */
  add(socket: Socket, tookMs: number): void {
    this.#connectMs = Math.min(tookMs, this.#connectMs ?? tookMs);
    this.#bytesSeen.set(socket, socket.bytesRead);
    this.#access.revoked?.attend(socket);
    socket.once('close', () => this.#bytesSeen.delete(socket));
  }
}
