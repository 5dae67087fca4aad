import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import type { Timer, World } from '../../base/world.ts';
import type { FrameSink } from './outbox.ts';

export interface ConnectionEnd {
  readonly reason: string;
  readonly malformed: boolean;
}

export interface ConnectionHandlers {
  /** Called once, when the peer has answered after the handshake. */
  proven(): void;
  frame(fragments: readonly Uint8Array[]): void;
  /** Called once, as the last one. */
  ended(end: ConnectionEnd): void;
}

/**
 * One WebSocket to a peer after its handshake, dialed or accepted. Frames flow only from the accepting side to the
 * dialing side: a WebSocket client must mask every byte it sends, which costs a pass over all data, and a server need
 * not. Only pings flow the other way.
 *
 * Silence reveals a peer that vanished (power, partition): the dialing side pings at an interval, the other side
 * answers, and a side that receives nothing during several intervals ends the connection. It counts intervals, not
 * time: a pause of this process counts as one interval, and what arrived during the pause is read before the next
 * interval ends.
 */
export class PeerConnection implements FrameSink {
  readonly incarnation: number;
  readonly #world: World;
  readonly #ws: WebSocket;
  readonly #socket: Socket;
  readonly #dialed: boolean;
  readonly #handlers: ConnectionHandlers;
  readonly #silentIntervalsMax: number;
  readonly #timer: Timer;
  #bytesReadBefore = 0;
  #silentIntervals = 0;
  #proven = false;
  #ended = false;

  constructor(
    world: World,
    ws: WebSocket,
    socket: Socket,
    incarnation: number,
    dialed: boolean,
    pingMs: number,
    silentIntervalsMax: number,
    handlers: ConnectionHandlers,
  ) {
    this.#world = world;
    this.#ws = ws;
    this.#socket = socket;
    this.incarnation = incarnation;
    this.#dialed = dialed;
    this.#handlers = handlers;
    this.#silentIntervalsMax = silentIntervalsMax;
    ws.binaryType = 'fragments';
    ws.on('message', (data, isBinary) => this.#receive(data, isBinary));
    ws.on('error', (error) => this.#fail(error));
    ws.on('close', (code) => this.#finish({ reason: `it was closed (${code})`, malformed: false }));
    // First proof that the peer is alive: the dialing side gets a pong, the other side a ping.
    ws.on(dialed ? 'pong' : 'ping', () => this.#prove());
    this.#timer = world.every(pingMs, () => this.#endInterval());
    if (dialed) ws.ping();
  }

  get isOpen(): boolean {
    return !this.#ended && this.#ws.readyState === this.#ws.OPEN;
  }

  queuedBytes(): number {
    return this.#ws.bufferedAmount;
  }

  sendFrame(fragments: readonly Uint8Array[]): void {
    if (!this.isOpen) return;
    const last = fragments.length - 1;
    // In one system call: otherwise the small first fragment would wake the peer by itself.
    this.#socket.cork();
    for (let index = 0; index <= last; index++) {
      this.#ws.send(fragments[index] as Uint8Array, { binary: true, fin: index === last, compress: false });
    }
    this.#socket.uncork();
  }

  close(code: number, end: ConnectionEnd): void {
    if (this.#ended) return;
    this.#ws.close(code, end.reason.slice(0, 100));
    // A peer that does not answer the closing handshake must not keep the socket.
    const timer = this.#world.after(500, () => this.#ws.terminate());
    this.#ws.once('close', () => timer.cancel());
    this.#finish(end);
  }

  terminate(reason: string): void {
    if (this.#ended) return;
    this.#finish({ reason, malformed: false });
    this.#ws.terminate();
  }

  #receive(data: unknown, isBinary: boolean): void {
    if (this.#ended) return;
    if (!isBinary || !Array.isArray(data)) {
      this.close(1003, { reason: 'the peer sent a text frame', malformed: true });
      return;
    }
    if (!this.#dialed) {
      this.close(1002, {
        reason: 'the peer sent a frame on a connection that it may only receive on',
        malformed: true,
      });
      return;
    }
    this.receive(data as Uint8Array[]);
  }

  receive(fragments: readonly Uint8Array[]): void {
    if (!this.#ended) this.#handlers.frame(fragments);
  }

  #prove(): void {
    if (this.#proven || this.#ended) return;
    this.#proven = true;
    this.#handlers.proven();
  }

  /** Called at the end of each ping interval. */
  #endInterval(): void {
    if (this.#dialed && this.isOpen) this.#ws.ping();
    // Bytes and not messages: a large frame on a slow line proves life long before it is complete.
    const { bytesRead } = this.#socket;
    if (bytesRead !== this.#bytesReadBefore) {
      this.#bytesReadBefore = bytesRead;
      this.#silentIntervals = 0;
      return;
    }
    this.#silentIntervals += 1;
    if (this.#silentIntervals < this.#silentIntervalsMax) return;
    this.terminate(`nothing was received for ${this.#silentIntervals} ping intervals`);
  }

  /** Called at an error of the socket or of `ws`: ends the connection, and reports why. */
  #fail(error: Error & { code?: string }): void {
    // ws has already answered its own errors, WS_ERR_…, with the right close code.
    const malformed = error.code?.startsWith('WS_ERR') ?? false;
    if (malformed) {
      const timer = this.#world.after(500, () => this.#ws.terminate());
      this.#ws.once('close', () => timer.cancel());
    } else {
      this.#ws.terminate();
    }
    this.#finish({ reason: error.message, malformed });
  }

  #finish(end: ConnectionEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timer.cancel();
    this.#handlers.ended(end);
  }
}
