import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import type { Timer, World } from '../../base/world.ts';
import { WIRE_HEARTBEATS } from './frame.ts';
import type { FrameSink } from './outbox.ts';

export interface ConnectionEnd {
  readonly reason: string;
  readonly malformed: boolean;
  /** The peer sent nothing for too long. */
  readonly silent?: boolean;
}

export interface ConnectionParts {
  readonly world: World;
  readonly ws: WebSocket;
  readonly socket: Socket;
  readonly incarnation: number;
  readonly dialed: boolean;
  /** The version of the protocol that both sides speak. */
  readonly wire: number;
  /** How often received bytes are looked for. */
  readonly intervalMs: number;
  readonly silentIntervalsMax: number;
  readonly handlers: ConnectionHandlers;
}

export interface ConnectionHandlers {
  /** Called once, when the peer has answered after the handshake. */
  proven(): void;
  frame(fragments: readonly Uint8Array[]): void;
  /** Called once, as the last one. */
  ended(end: ConnectionEnd): void;
}

/** Intervals without a byte after which the accepting side sends an unsolicited pong (RFC 6455, section 5.5.3). */
const HEARTBEAT_INTERVALS = 2;

/**
 * One WebSocket to a peer after its handshake, dialed or accepted. Frames flow only from the accepting side to the
 * dialing side: a WebSocket client must mask every byte it sends, which costs a pass over all data, and a server need
 * not. Only pings and pongs flow the other way.
 *
 * Silence reveals a peer that vanished (power, partition): the accepting side sends something at least every 1.5 s,
 * and a dialing side that receives nothing during several intervals ends the connection. The accepting side learns of
 * the silence by the connection that it has dialed itself (`PeerLink`), and probes this one each time when that one is
 * new: a peer that no longer hears this side has ended the one before. A side counts intervals, not time: a pause of
 * this process counts as one interval, and what arrived during the pause is read before the next interval ends.
 *
 * With a peer of an earlier version, the dialing side pings at each interval, the other one answers, and both count.
 */
export class PeerConnection implements FrameSink {
  readonly incarnation: number;
  readonly #world: World;
  readonly #ws: WebSocket;
  readonly #socket: Socket;
  readonly #dialed: boolean;
  readonly #arePings: boolean;
  readonly #handlers: ConnectionHandlers;
  readonly #silentIntervalsMax: number;
  readonly #timer: Timer;
  readonly #received: SilentIntervals;
  readonly #sent: SilentIntervals;
  #proven = false;
  /** A ping of the accepting side has not been answered yet. */
  #probing = false;
  #ended = false;

  constructor(parts: ConnectionParts) {
    const { world, ws, socket, incarnation, dialed, wire, intervalMs, silentIntervalsMax, handlers } = parts;
    this.#world = world;
    this.#ws = ws;
    this.#socket = socket;
    this.incarnation = incarnation;
    this.#dialed = dialed;
    this.#arePings = wire < WIRE_HEARTBEATS;
    this.#handlers = handlers;
    this.#silentIntervalsMax = silentIntervalsMax;
    // Bytes and not messages: a large frame on a slow line proves life long before it is complete.
    this.#received = new SilentIntervals(() => socket.bytesRead);
    this.#sent = new SilentIntervals(() => socket.bytesWritten);
    ws.binaryType = 'fragments';
    ws.on('message', (data, isBinary) => this.#receive(data, isBinary));
    ws.on('error', (error) => this.#fail(error));
    ws.on('close', (code) => this.#finish({ reason: `it was closed (${code})`, malformed: false }));
    // First proof that the peer is alive: the dialing side gets a pong, the other side a ping.
    ws.on(dialed ? 'pong' : 'ping', () => this.#prove());
    this.#timer = world.every(intervalMs, () => this.#endInterval());
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

  /** To be called at the accepting side: ends the connection as silent if the peer does not answer. */
  probe(): void {
    if (!this.isOpen) return;
    this.#probing = true;
    this.#received.begin();
    this.#ws.ping();
  }

  #prove(): void {
    if (this.#proven || this.#ended) return;
    this.#proven = true;
    this.#handlers.proven();
  }

  /** Called at the end of each interval. */
  #endInterval(): void {
    if (this.isOpen) this.#showLife();
    if (!this.#dialed && !this.#arePings && !this.#probing) return;
    const silent = this.#received.endOne();
    if (silent === 0) this.#probing = false;
    if (silent < this.#silentIntervalsMax) return;
    this.#finish({ reason: `nothing was received for ${silent} intervals`, malformed: false, silent: true });
    this.#ws.terminate();
  }

  #showLife(): void {
    if (this.#dialed) {
      if (this.#arePings) this.#ws.ping();
    } else if (!this.#arePings && this.#sent.endOne() >= HEARTBEAT_INTERVALS) {
      this.#ws.pong();
      this.#sent.begin();
    }
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

/** Counts the latest intervals in which a number of bytes did not grow. */
class SilentIntervals {
  readonly #bytes: () => number;
  #before = 0;
  #count = 0;

  constructor(bytes: () => number) {
    this.#bytes = bytes;
  }

  /** Counts anew, from now on. */
  begin(): void {
    this.#before = this.#bytes();
    this.#count = 0;
  }

  /** @returns the number of intervals without a byte, with the one that ends now */
  endOne(): number {
    const bytes = this.#bytes();
    this.#count = bytes === this.#before ? this.#count + 1 : 0;
    this.#before = bytes;
    return this.#count;
  }
}
