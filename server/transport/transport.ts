import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ServerId } from '../../base/ids.ts';

export interface SendOptions {
  readonly tail?: Uint8Array | undefined;
  readonly deferrable?: boolean;
}

/** Channels of the records in a frame. A number is never reused. */
export const CHANNEL_LEASE = 1;
export const CHANNEL_REPLICA = 2;
export const CHANNEL_CALL = 3;
export const CHANNEL_REPLY = 4;
/** A replica message that names the file's view and object size: enough to create an empty replica. */
export const CHANNEL_REPLICA_VIEW = 5;
/** Named leases have a lease host of their own. */
export const CHANNEL_NAMED_LEASE = 6;

/** Channels on which messages may be lost; the protocols above repeat what matters. */
export type MessageChannel =
  | typeof CHANNEL_LEASE
  | typeof CHANNEL_REPLICA
  | typeof CHANNEL_REPLICA_VIEW
  | typeof CHANNEL_NAMED_LEASE;

export interface PeerHello {
  readonly server: ServerId;
  readonly incarnation: number;
  readonly cluster: string;
  /** Newest version of the catalog's commands that it understands. */
  readonly commands: number;
}

export interface TransportHandlers {
  /** Handles a message; `tail` is a large one's second part. Both stay valid. Must not throw on malformed input. */
  message(from: ServerId, channel: MessageChannel, payload: Uint8Array, tail?: Uint8Array): void;
  connected(peer: ServerId): void;
  disconnected(peer: ServerId): void;
  /** Answers a call of a peer; a thrown `ServiceError` crosses the wire with its code. */
  call(from: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array>;
  /** Returns whether replies to these calls are deferrable; absent: none are. */
  isDeferrable?(method: string): boolean;
}

/**
 * Messages between servers. On one connection they arrive in order or not at all; a broken connection loses what is in
 * flight. Queues are bounded: a message that does not fit is dropped and counted.
 */
export interface Transport {
  /**
   * Queues a message and does not copy it: the caller must not change it. Never throws for a peer that is not
   * connected.
   *
   * @param options.tail the end of a large message that lies in other memory; at least `PAYLOAD_LARGE_BYTES`
   * @param options.deferrable leaves with the next message that is not deferrable, in order, or after `DEFERRED_MS_MAX`
   */
  send(to: ServerId, channel: MessageChannel, payload: Uint8Array, options?: SendOptions): void;

  /**
   * Calls a peer and waits for its answer. The payload is not copied: the caller must not change it.
   *
   * @param method 1 to 64 of a-z, 0-9 and hyphens
   * @throws ServiceError certainly without effect: `no-majority` (peer not connected), `busy` (queue or calls at their
   * limit), `too-large`; perhaps with effect: `unknown` (no answer in time, or the connection broke); or the error that
   * the peer's handler threw
   */
  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    deferrable?: boolean,
  ): Promise<Uint8Array>;

  isConnected(peer: ServerId): boolean;

  /** Newest version of the catalog's commands that a peer understands; null while it is not connected. */
  commandsVersion(peer: ServerId): number | null;

  stats(): TransportStats;

  /** Pending calls fail with `unknown`, later ones with `no-majority`. */
  close(): Promise<void>;
}

export interface TransportStats {
  readonly messagesSent: number;
  readonly bytesSent: number;
  readonly messagesReceived: number;
  readonly bytesReceived: number;
  /** Each frame woke this process once. */
  readonly framesReceived: number;
  /** Messages and replies to a peer not connected, to a full queue, or too large. */
  readonly messagesDropped: number;
  readonly connectionsMalformed: number;
  readonly connections: number;
  readonly callsPending: number;
}

export interface ClusterTransport extends Transport {
  readonly peers: ServerId[];
  /** Adds a peer, or changes its address for the next dialing. */
  addPeer(peer: ServerId, address: PeerAddress): void;
  removePeer(peer: ServerId): void;
  /** Starts to dial. Connections of other servers are accepted before. */
  start(): void;
  /** Handles `upgrade` events of the HTTP server; answers those for other paths with 404. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

export interface PeerAddress {
  readonly host: string;
  readonly port: number;
}

export interface TransportLimits {
  /** Bytes queued for one peer; a message beyond them is dropped. */
  readonly queueBytesMax: number;
  /** Pending calls to one peer; one more fails with `busy`. */
  readonly callsMax: number;
  /** Calls of one peer that are being served; one more is answered with `busy`. */
  readonly servingMax: number;
}

export const TRANSPORT_LIMITS: TransportLimits = {
  queueBytesMax: 64 * 2 ** 20,
  callsMax: 256,
  servingMax: 256,
};
