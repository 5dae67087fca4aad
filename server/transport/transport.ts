import type { ServerId } from '../../base/ids.ts';

/** What a frame between servers carries. A tag is given once and never reused. */
export const CHANNEL_LEASE = 1;
export const CHANNEL_REPLICA = 2;
export const CHANNEL_CALL = 3;
export const CHANNEL_REPLY = 4;
/** A replica message that names the view, behind the file's object size: enough to make an empty replica. */
export const CHANNEL_REPLICA_VIEW = 5;

/** Channels that may lose messages; the protocols above repeat what matters. */
export type MessageChannel = typeof CHANNEL_LEASE | typeof CHANNEL_REPLICA | typeof CHANNEL_REPLICA_VIEW;

/** A peer as it introduced itself when the connection was made. */
export interface PeerHello {
  readonly server: ServerId;
  readonly incarnation: number;
  readonly cluster: string;
}

export interface TransportHandlers {
  /** A message arrived. `payload` is a view that stays valid. Must not throw on malformed input of a peer. */
  message(from: ServerId, channel: MessageChannel, payload: Uint8Array): void;
  /** The peer can be reached (first time or again). */
  connected(peer: ServerId): void;
  disconnected(peer: ServerId): void;
  /** Answers a call of a peer; a thrown `ServiceError` crosses the wire with its code. */
  call(from: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array>;
}

/**
 * Messages between the servers of a cluster. Messages to one peer on one connection arrive in order
 * or not at all; a connection that breaks loses what is in flight. Bounded queues: what does not fit
 * is dropped and counted.
 */
export interface Transport {
  /** Queues a message; small ones of one turn of the event loop share a frame. Never throws for a peer that is away. */
  send(to: ServerId, channel: MessageChannel, payload: Uint8Array): void;

  /** Asks a peer and waits for its answer; `ServiceError` no-majority/unknown/busy where none comes in time. */
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;

  isConnected(peer: ServerId): boolean;

  close(): Promise<void>;
}
