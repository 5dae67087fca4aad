import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { Server as TlsServer } from 'node:tls';
import type { World } from '../../base/world.ts';

/** Requests under way at the end of the server are cut after this long, in milliseconds. */
const REQUESTS_MS_MAX = 5_000;
/** Idle connections stay open this long, in milliseconds: a request on its way would end with an unknown outcome. */
const IDLE_MS = 1_000;
const CHECK_MS = 20;

/** Ends the HTTP connections of a server without cutting a request. */
export class Drain {
  readonly #world: World;
  readonly #server: Server;
  readonly #answers = new Set<ServerResponse>();
  /** Connections that may bring a request, without those between servers. */
  readonly #sockets = new Set<Socket>();
  #accepted = 0;
  #beganMs: number | null = null;

  constructor(world: World, server: Server) {
    this.#world = world;
    this.#server = server;
    const connected = server instanceof TlsServer ? 'secureConnection' : 'connection';
    server.prependListener(connected, (socket: Socket) => this.#connected(socket));
    server.prependListener('upgrade', (_request: IncomingMessage, socket: Socket) =>
      this.#sockets.delete(socket),
    );
    server.prependListener('request', (_request, response) => this.#requestBegan(response));
  }

  /** From now on each answer is the last of its connection: `Connection: close`. */
  begin(): void {
    this.#beganMs ??= this.#world.nowMs();
    for (const answer of this.#answers) answer.shouldKeepAlive = false;
  }

  /** Accepts no more connections, and resolves once no request is in progress, and none can be on its way. */
  async finish(): Promise<void> {
    this.begin();
    const beganMs = this.#beganMs as number;
    // Closing the listener resets connections that the system has accepted already. A tick accepts few of them; the
    // bound keeps clients that connect without end from delaying this.
    const acceptUntilMs = this.#world.nowMs() + IDLE_MS;
    for (let accepted = -1; accepted !== this.#accepted && this.#world.nowMs() < acceptUntilMs; ) {
      accepted = this.#accepted;
      await this.#world.nextTick();
    }
    // The HTTP server's own method would end idle connections at once.
    NetServer.prototype.close.call(this.#server);
    const finishMs = this.#world.nowMs();
    for (;;) {
      const nowMs = this.#world.nowMs();
      const isBusy = this.#answers.size > 0 && nowMs < finishMs + REQUESTS_MS_MAX;
      if (!isBusy && (this.#sockets.size === 0 || nowMs >= beganMs + IDLE_MS)) return;
      await this.#world.sleep(CHECK_MS);
      // Reads requests that arrived while this process was not running, before deciding that there are none.
      await this.#world.nextTick();
    }
  }

  #connected(socket: Socket): void {
    this.#accepted++;
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
  }

  #requestBegan(response: ServerResponse): void {
    if (this.#beganMs !== null) response.shouldKeepAlive = false;
    this.#answers.add(response);
    response.once('close', () => this.#answers.delete(response));
  }
}
