import type { Logger } from 'pino';
import type { World } from '../../base/world.ts';
import type { FrameRecord } from './frame.ts';
import { Outbox, type Pushed } from './outbox.ts';
import type { ConnectionEnd, PeerConnection } from './peer-connection.ts';

/** Retired incarnations of a peer that are remembered; beyond that the oldest is forgotten. */
const RETIRED_MAX = 1_024;

export interface LinkEvents {
  connected(): void;
  disconnected(): void;
}

/**
 * The connection on which this server sends to a peer (dialed by the peer), the one on which it receives (dialed by
 * this server), and the incarnation of the peer that both belong to.
 *
 * Incarnations are random and have no order: the one that proved to be alive later is the newer. The older one is
 * retired: its connections end, new ones are refused, its frames are ignored.
 */
export class PeerLink {
  readonly #world: World;
  readonly #log: Logger;
  readonly #events: LinkEvents;
  readonly #queueBytesMax: number;
  readonly #retired = new Set<number>();
  readonly #unproven = new Set<PeerConnection>();
  #incarnation: number | null = null;
  #incoming: PeerConnection | null = null;
  #outgoing: { readonly connection: PeerConnection; readonly outbox: Outbox } | null = null;
  #connected = false;
  #loggedReason = '';

  constructor(world: World, queueBytesMax: number, log: Logger, events: LinkEvents) {
    this.#world = world;
    this.#queueBytesMax = queueBytesMax;
    this.#log = log;
    this.#events = events;
  }

  get isConnected(): boolean {
    return this.#connected;
  }

  get hasIncoming(): boolean {
    return this.#incoming !== null;
  }

  /** The peer's current incarnation; null before the first connection. */
  get incarnation(): number | null {
    return this.#incarnation;
  }

  isRetired(incarnation: number): boolean {
    return this.#retired.has(incarnation);
  }

  push(record: FrameRecord, deferrable: boolean): Pushed | 'disconnected' {
    return this.#connected && this.#outgoing !== null
      ? this.#outgoing.outbox.push(record, deferrable)
      : 'disconnected';
  }

  /** A connection whose peer has not answered on it yet: `connectionProven` or `connectionEnded` follows. */
  connectionOpened(connection: PeerConnection): void {
    this.#unproven.add(connection);
  }

  /** Uses a connection on which the peer proved to be alive, in place of the previous one. */
  connectionProven(connection: PeerConnection, dialed: boolean): void {
    this.#unproven.delete(connection);
    if (this.#retired.has(connection.incarnation)) {
      connection.terminate('a newer process of the peer is connected');
      return;
    }
    if (connection.incarnation !== this.#incarnation) this.#useIncarnation(connection.incarnation);
    if (dialed) {
      this.#incoming?.terminate('a newer connection replaces it');
      this.#incoming = connection;
      // The peer may have ended the one before because it no longer hears this server.
      this.#outgoing?.connection.probe();
    } else {
      this.#outgoing?.connection.terminate('a newer connection replaces it');
      this.#outgoing = { connection, outbox: new Outbox(this.#world, connection, this.#queueBytesMax) };
    }
    this.#reportConnected('');
  }

  connectionEnded(connection: PeerConnection, { reason, silent = false }: ConnectionEnd): void {
    this.#unproven.delete(connection);
    if (connection === this.#incoming) {
      this.#incoming = null;
      // The other one does not notice a silence by itself. A peer that lives dials anew.
      if (silent) this.#outgoing?.connection.terminate(reason);
    }
    if (connection === this.#outgoing?.connection) {
      this.#outgoing.outbox.close();
      this.#outgoing = null;
    }
    this.#reportConnected(reason);
  }

  logUnreachable(reason: string): void {
    if (reason === this.#loggedReason) return;
    this.#loggedReason = reason;
    this.#log.warn({ reason }, 'peer not reachable');
  }

  close(): void {
    this.#outgoing?.outbox.flush();
    const end = { reason: 'this server is shutting down', malformed: false };
    for (const connection of [...this.#unproven]) connection.terminate(end.reason);
    this.#incoming?.close(1001, end);
    this.#outgoing?.connection.close(1001, end);
  }

  /** Called when another process of the peer has proved to be alive: retires the earlier one. */
  #useIncarnation(incarnation: number): void {
    const before = this.#incarnation;
    this.#incarnation = incarnation;
    if (before === null) return;
    this.#retired.add(before);
    for (const oldest of this.#retired) {
      if (this.#retired.size <= RETIRED_MAX) break;
      this.#retired.delete(oldest);
    }
    const reason = 'the peer restarted';
    this.#incoming?.terminate(reason);
    this.#outgoing?.connection.terminate(reason);
    // The last bytes of a process that has died would look like a newer incarnation: the peer introduces itself again.
    for (const connection of [...this.#unproven]) {
      if (connection.incarnation !== incarnation) connection.terminate(reason);
    }
  }

  /** Reports that both connections exist now, or no longer do. @param reason why one has ended */
  #reportConnected(reason: string): void {
    const connected = this.#incoming !== null && this.#outgoing !== null;
    if (connected === this.#connected) return;
    this.#connected = connected;
    if (connected) {
      this.#loggedReason = '';
      this.#log.info('peer connected');
      this.#events.connected();
    } else {
      this.#log.warn({ reason }, 'peer disconnected');
      this.#events.disconnected();
    }
  }
}
