import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ServerId } from '../../base/ids.ts';

export interface SendOptions {
  readonly tail?: Uint8Array | undefined;
  readonly deferrable?: boolean;
}

/** What a frame between servers carries. A tag is given once and never reused. */
export const CHANNEL_LEASE = 1;
export const CHANNEL_REPLICA = 2;
export const CHANNEL_CALL = 3;
export const CHANNEL_REPLY = 4;
/** A replica message that names the view, behind the file's object size: enough to make an empty replica. */
export const CHANNEL_REPLICA_VIEW = 5;
/** Leases under names, which have a lease host of their own. */
export const CHANNEL_NAMED_LEASE = 6;

/** Channels that may lose messages; the protocols above repeat what matters. */
export type MessageChannel =
  | typeof CHANNEL_LEASE
  | typeof CHANNEL_REPLICA
  | typeof CHANNEL_REPLICA_VIEW
  | typeof CHANNEL_NAMED_LEASE;

/** A peer as it introduced itself when the connection was made. */
export interface PeerHello {
  readonly server: ServerId;
  readonly incarnation: number;
  readonly cluster: string;
  /** Up to which version it knows what commands of the catalog mean. */
  readonly commands: number;
}

export interface TransportHandlers {
  /**
   * A message arrived, in one piece or as it was sent in two, of which `tail` is the second. Both are views that stay
   * valid. Must not throw on malformed input of a peer.
   */
  message(from: ServerId, channel: MessageChannel, payload: Uint8Array, tail?: Uint8Array): void;
  /** The peer can be reached (first time or again). */
  connected(peer: ServerId): void;
  disconnected(peer: ServerId): void;
  /** Answers a call of a peer; a thrown `ServiceError` crosses the wire with its code. */
  call(from: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array>;
  /** Whether nobody waits for the answers to such calls; absent: somebody waits for all. */
  isSpare?(method: string): boolean;
}

/**
 * Messages between the servers of a cluster. Messages to one peer on one connection arrive in order
 * or not at all; a connection that breaks loses what is in flight. Bounded queues: what does not fit
 * is dropped and counted.
 */
export interface Transport {
  /**
   * Queues a message; small ones of one turn of the event loop share a frame. Never throws for a peer that is away.
   * The payload is not copied: nobody changes it afterwards.
   *
   * @param options.tail the end of the message, where it is large and lies elsewhere; `PAYLOAD_LARGE_BYTES` at the least
   * @param options.deferrable nobody waits for it: a small one leaves with the next message to this peer that somebody waits
   *   for, in order behind those before it, or after `DEFERRED_MS_MAX`
   */
  send(to: ServerId, channel: MessageChannel, payload: Uint8Array, options?: SendOptions): void;

  /**
   * Asks a peer and waits for its answer. The payload is not copied: nobody changes it afterwards.
   *
   * @param method 1 to 64 of a-z, 0-9 and hyphens
   * @param deferrable as of `send`
   * @throws ServiceError certainly without effect: `no-majority` (the peer is away), `busy` (queue or
   * calls at their limit), `too-large`; perhaps with effect: `unknown` (no answer in time, or the
   * connection broke); or the error that the peer's handler threw
   */
  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    deferrable?: boolean,
  ): Promise<Uint8Array>;

  isConnected(peer: ServerId): boolean;

  /** Up to which version a peer knows what commands of the catalog mean; null while it is away. */
  commandsVersion(peer: ServerId): number | null;

  /** Counts since the start, over all peers. */
  stats(): TransportStats;

  /** Ends all connections; calls that wait fail with `unknown`, later ones with `no-majority`. */
  close(): Promise<void>;
}

export interface TransportStats {
  readonly messagesSent: number;
  readonly bytesSent: number;
  readonly messagesReceived: number;
  readonly bytesReceived: number;
  /** Each of which woke this process: messages and replies of one turn at the sender came in one. */
  readonly framesReceived: number;
  /** Messages and replies that found the peer away, the queue full, or were too large. */
  readonly messagesDropped: number;
  /** Connections that ended because of bytes that made no sense. */
  readonly connectionsMalformed: number;
  /** Times that a peer came to be connected. */
  readonly connections: number;
  readonly callsPending: number;
}

/** The transport of a server in a cluster whose servers come and go, on the port of its HTTP server. */
export interface ClusterTransport extends Transport {
  /** The peers, connected or not. */
  readonly peers: ServerId[];
  /** Makes a server one of the peers, or gives its new address, which counts from the next dialing on. */
  addPeer(peer: ServerId, address: PeerAddress): void;
  /** Ends the connections with a peer; from now on it is a stranger. */
  removePeer(peer: ServerId): void;
  /** Begins to dial. Before, connections of others are accepted already. */
  start(): void;
  /** To be called for `upgrade` events of the HTTP server; answers those that are none of its own with 404. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

/** Where a server listens. */
export interface PeerAddress {
  readonly host: string;
  readonly port: number;
}

/** Bounds of what a transport keeps in memory. */
export interface TransportLimits {
  /** Bytes queued for one peer; what does not fit is dropped. */
  readonly queueBytesMax: number;
  /** Calls to one peer that wait for an answer; one more fails as `busy`. */
  readonly callsMax: number;
  /** Calls of one peer that are being answered; one more is answered `busy`. */
  readonly servingMax: number;
}

export const TRANSPORT_LIMITS: TransportLimits = {
  queueBytesMax: 64 * 2 ** 20,
  callsMax: 256,
  servingMax: 256,
};
