import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { CallTable } from './call-table.ts';
import { decodeFrame, type FrameRecord, payloadBytes } from './frame.ts';
import type { Pushed } from './outbox.ts';
import {
  CHANNEL_CALL,
  CHANNEL_REPLY,
  type TransportHandlers,
  type TransportLimits,
  type TransportStats,
} from './transport.ts';

/** Queues records for one process of a peer. */
export interface Route {
  push(record: FrameRecord, deferrable: boolean): Pushed | 'disconnected';
}

/** Sends and receives records for every implementation of the transport, and counts them. */
export class Exchange {
  readonly traffic = {
    messagesSent: 0,
    bytesSent: 0,
    messagesReceived: 0,
    bytesReceived: 0,
    framesReceived: 0,
    messagesDropped: 0,
    connectionsMalformed: 0,
    connections: 0,
  };
  readonly #handlers: TransportHandlers;
  readonly #log: Logger;
  readonly #calls: CallTable;

  constructor(world: World, handlers: TransportHandlers, limits: TransportLimits, log: Logger) {
    this.#handlers = handlers;
    this.#log = log;
    this.#calls = new CallTable(
      world,
      limits,
      (from, method, payload) => handlers.call(from, method, payload),
      log,
    );
  }

  /** Queues a record for `to`, or drops it, and counts either. @param route undefined if the peer is not connected */
  push(
    to: ServerId,
    record: FrameRecord,
    route: Route | undefined,
    deferrable: boolean = false,
  ): Pushed | 'disconnected' {
    const pushed = route?.push(record, deferrable) ?? 'disconnected';
    if (pushed === 'queued') {
      this.traffic.messagesSent += 1;
      this.traffic.bytesSent += payloadBytes(record);
      return pushed;
    }
    this.traffic.messagesDropped += 1;
    if (pushed === 'too-large') {
      this.#log.error(
        { peer: to, bytes: payloadBytes(record) },
        'message dropped: larger than the largest frame',
      );
    }
    return pushed;
  }

  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    route: Route | undefined,
    deferrable: boolean,
  ): Promise<Uint8Array> {
    return this.#calls.call(to, method, payload, timeoutMs, (record) =>
      this.push(to, record, route, deferrable),
    );
  }

  /**
   * Handles a frame. `answerRoute` returns the connection to the process that sent it; undefined once a newer process
   * of that server is connected, which did not send these calls.
   * @throws MalformedError for a malformed frame or message
   */
  receive(from: ServerId, fragments: readonly Uint8Array[], answerRoute: () => Route | undefined): void {
    this.traffic.framesReceived += 1;
    for (const record of decodeFrame(fragments)) {
      this.traffic.messagesReceived += 1;
      this.traffic.bytesReceived += payloadBytes(record);
      switch (record.channel) {
        case CHANNEL_CALL:
          this.#calls.receiveCall(from, record.id, record.method, record.payload, (reply) =>
            this.push(from, reply, answerRoute(), this.#handlers.isDeferrable?.(record.method) ?? false),
          );
          break;
        case CHANNEL_REPLY:
          this.#calls.receiveReply(from, record.id, record.failed, record.payload);
          break;
        default:
          this.#handlers.message(from, record.channel, record.payload, record.tail);
      }
    }
  }

  peerConnected(peer: ServerId): void {
    this.traffic.connections += 1;
    this.#handlers.connected(peer);
  }

  peerLost(peer: ServerId): void {
    this.#calls.peerLost(peer);
    this.#handlers.disconnected(peer);
  }

  stats(): TransportStats {
    return { ...this.traffic, callsPending: this.#calls.pendingCount };
  }

  close(): void {
    this.#calls.close();
  }
}
