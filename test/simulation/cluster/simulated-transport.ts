import { assert } from '../../../base/assert.ts';
import type { ServerId } from '../../../base/ids.ts';
import { COMMANDS_VERSION } from '../../../catalog/versions.ts';
import { Exchange } from '../../../server/transport/exchange.ts';
import { type FrameSink, Outbox } from '../../../server/transport/outbox.ts';
import type { PeerTransportOptions } from '../../../server/transport/peer-transport.ts';
import {
  type ClusterTransport,
  type MessageChannel,
  type SendOptions,
  TRANSPORT_LIMITS,
  type TransportStats,
} from '../../../server/transport/transport.ts';
import type { Network } from './network.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** A server closes a connection without messages for so long, as in `PEER_TIMING`. */
const SILENT_MS = 2_000;
/** Between two attempts to connect, and its variation. */
const DIAL_MS = 100;

/** One direction of a connection. */
class Direction implements FrameSink {
  readonly #deliver: (copies: readonly Uint8Array[], sentBytes: number) => void;
  queued = 0;

  constructor(deliver: (copies: readonly Uint8Array[], sentBytes: number) => void) {
    this.#deliver = deliver;
  }

  queuedBytes(): number {
    return this.queued;
  }

  sendFrame(fragments: readonly Uint8Array[]): void {
    // Copied as a socket would: sender and receiver never share memory.
    const copies = fragments.map((fragment) => Uint8Array.from(fragment));
    const bytes = copies.reduce((sum, copy) => sum + copy.length, 0);
    this.queued += bytes;
    this.#deliver(copies, bytes);
  }
}

type Transmit = (channel: MessageChannel, payload: Uint8Array, tail: Uint8Array | undefined) => void;

interface Route {
  readonly connection: number;
  readonly outbox: Outbox;
}

/** Connects the transports of a simulated cluster. */
export class SimulatedPeers {
  readonly network: Network;
  readonly #wire: SimulatedProcess;
  readonly #members = new Map<ServerId, SimulatedTransport>();
  readonly #dialing = new Set<string>();
  #connections = 0;
  /** Called with each call before it is sent. */
  calling: ((from: ServerId, to: ServerId, method: string, payload: Uint8Array) => void) | null = null;
  /** Called with each message before it is sent. */
  sending: ((from: ServerId, to: ServerId, ...message: Parameters<Transmit>) => void) | null = null;

  /** @param wire the process in which connections are made: it outlives those at their ends */
  constructor(network: Network, wire: SimulatedProcess) {
    this.network = network;
    this.#wire = wire;
    network.onChange(() => this.#reconsider());
  }

  join(process: SimulatedProcess, options: PeerTransportOptions): SimulatedTransport {
    return new SimulatedTransport(this, process, options);
  }

  /** The transport listens and connects from now on. */
  enter(member: SimulatedTransport): void {
    const before = this.#members.get(member.server);
    if (before !== undefined) this.leave(before);
    this.#members.set(member.server, member);
    for (const other of this.#members.keys()) this.dialSoon(member.server, other);
  }

  /** A transport has ended, in order or with its process; the others notice when their next probe fails. */
  leave(member: SimulatedTransport): void {
    if (this.#members.get(member.server) !== member) return;
    this.#members.delete(member.server);
    for (const other of this.#members.values()) {
      const route = other.routeTo(member.server);
      if (route === null) continue;
      this.network.time.after(this.network.delayMs(), other.process, () =>
        other.detach(member.server, route),
      );
    }
  }

  dialSoon(a: ServerId, b: ServerId): void {
    const key = a < b ? `${a} ${b}` : `${b} ${a}`;
    const [first, second] = [this.#members.get(a), this.#members.get(b)];
    if (a === b || first === undefined || second === undefined || this.#dialing.has(key)) return;
    this.#dialing.add(key);
    const delayMs = this.network.delayMs() + this.network.upTo(DIAL_MS);
    this.network.time.after(delayMs, this.#wire, () => this.#dialed(key, a, b));
  }

  #dialed(key: string, a: ServerId, b: ServerId): void {
    this.#dialing.delete(key);
    const [first, second] = [this.#members.get(a), this.#members.get(b)];
    if (first === undefined || second === undefined || !first.knows(b) || !second.knows(a)) return;
    const isThere = first.routeTo(b) !== null && first.routeTo(b) === second.routeTo(a);
    if (isThere) return;
    const isCut = this.network.isCut(a, b) || this.network.isCut(b, a);
    const isHalf = first.routeTo(b) !== null || second.routeTo(a) !== null;
    if (isCut || isHalf || first.process.isPaused || second.process.isPaused) {
      this.dialSoon(a, b);
      return;
    }
    const connection = ++this.#connections;
    const { time } = this.network;
    time.note(`connect ${a} ${b}`);
    time.after(0, first.process, () => {
      first.attach(b, this.#direction(connection, first, second), connection);
      this.network.inOrder(`${connection} ${a}`, a, second.process, () => {
        if (first.routeTo(b) === connection)
          second.attach(a, this.#direction(connection, second, first), connection);
      });
    });
  }

  /** One end of a connection is closed: the other learns that, unless the link is cut. */
  closed(from: SimulatedTransport, peer: ServerId, connection: number): void {
    this.dialSoon(from.server, peer);
    const other = this.#members.get(peer);
    if (other === undefined || this.network.isCut(from.server, peer)) return;
    this.network.time.after(this.network.delayMs(), other.process, () =>
      other.detach(from.server, connection),
    );
  }

  #direction(connection: number, from: SimulatedTransport, to: SimulatedTransport): Direction {
    const direction: Direction = new Direction((copies, bytes) => {
      if (this.network.isCut(from.server, to.server)) return;
      this.network.inOrder(`${connection} ${from.server}`, from.server, to.process, () => {
        direction.queued -= bytes;
        if (!this.network.isCut(from.server, to.server)) to.receive(from.server, connection, copies);
      });
    });
    return direction;
  }

  /** A cut in either direction ends the connections over it once their ends have missed enough probes. */
  #reconsider(): void {
    const ids = [...this.#members.keys()];
    for (const a of ids) {
      for (const b of ids) {
        if (a >= b) continue;
        if (this.network.isCut(a, b) || this.network.isCut(b, a)) this.#breakLater(a, b);
        else this.dialSoon(a, b);
      }
    }
  }

  #breakLater(a: ServerId, b: ServerId): void {
    for (const [one, other] of [
      [a, b],
      [b, a],
    ] as const) {
      const member = this.#members.get(one);
      const connection = member?.routeTo(other) ?? null;
      if (member === undefined || connection === null) continue;
      const delayMs = SILENT_MS * (0.75 + this.network.upTo(0.5));
      this.network.time.after(delayMs, member.process, () => {
        // A cut that has healed meanwhile was a delay; lost messages are lost, and so is the connection.
        member.detach(other, connection);
        this.dialSoon(a, b);
      });
    }
  }
}

/** The transport between servers without sockets: its queues, frames and calls are the real ones. */
export class SimulatedTransport implements ClusterTransport {
  readonly server: ServerId;
  readonly process: SimulatedProcess;
  readonly #peersOfAll: SimulatedPeers;
  readonly #exchange: Exchange;
  readonly #peers = new Set<ServerId>();
  readonly #routes = new Map<ServerId, Route>();
  #closed = false;

  constructor(all: SimulatedPeers, process: SimulatedProcess, options: PeerTransportOptions) {
    this.server = options.server;
    this.process = process;
    this.#peersOfAll = all;
    const limits = { ...TRANSPORT_LIMITS, ...options.limits };
    this.#exchange = new Exchange(process, options.handlers, limits, options.log);
    for (const peer of options.peers.keys()) this.addPeer(peer);
    process.onEndOnce(() => all.leave(this));
  }

  get peers(): ServerId[] {
    return [...this.#peers];
  }

  knows(peer: ServerId): boolean {
    return this.#peers.has(peer);
  }

  addPeer(peer: ServerId): void {
    if (peer === this.server || this.#peers.has(peer)) return;
    this.#peers.add(peer);
    this.#peersOfAll.dialSoon(this.server, peer);
  }

  removePeer(peer: ServerId): void {
    this.#peers.delete(peer);
    const connection = this.routeTo(peer);
    if (connection !== null) this.detach(peer, connection);
  }

  start(): void {
    this.#peersOfAll.enter(this);
  }

  handleUpgrade(): void {
    throw new Error('Nothing upgrades a simulated connection');
  }

  send(to: ServerId, channel: MessageChannel, payload: Uint8Array, options: SendOptions = {}): void {
    assert(to !== this.server, 'A server does not send to itself');
    const { tail, deferrable = false } = options;
    this.#peersOfAll.sending?.(this.server, to, channel, payload, tail);
    const record = { channel, payload, ...(tail !== undefined && { tail }) };
    this.#exchange.push(to, record, this.#routes.get(to)?.outbox, deferrable);
  }

  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    deferrable = false,
  ): Promise<Uint8Array> {
    assert(to !== this.server, 'A server does not call itself');
    this.#peersOfAll.calling?.(this.server, to, method, payload);
    return this.#exchange.call(to, method, payload, timeoutMs, this.#routes.get(to)?.outbox, deferrable);
  }

  isConnected(peer: ServerId): boolean {
    return this.#routes.has(peer);
  }

  commandsVersion(peer: ServerId): number | null {
    return this.isConnected(peer) ? COMMANDS_VERSION : null;
  }

  stats(): TransportStats {
    return this.#exchange.stats();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#exchange.close();
    for (const { outbox } of this.#routes.values()) outbox.flush();
    await this.process.nextTick();
    for (const [peer, { connection }] of [...this.#routes]) this.detach(peer, connection);
    this.#peersOfAll.leave(this);
  }

  /** @returns the number of the connection to a peer, or null */
  routeTo(peer: ServerId): number | null {
    return this.#routes.get(peer)?.connection ?? null;
  }

  attach(peer: ServerId, sink: FrameSink, connection: number): void {
    if (this.#closed || this.#routes.has(peer)) return;
    this.#routes.set(peer, {
      connection,
      outbox: new Outbox(this.process, sink, TRANSPORT_LIMITS.queueBytesMax),
    });
    this.#exchange.peerConnected(peer);
  }

  detach(peer: ServerId, connection: number): void {
    const route = this.#routes.get(peer);
    if (route?.connection !== connection) return;
    this.#routes.delete(peer);
    route.outbox.close();
    this.#peersOfAll.closed(this, peer, connection);
    if (!this.process.hasEnded) this.#exchange.peerLost(peer);
  }

  receive(from: ServerId, connection: number, fragments: readonly Uint8Array[]): void {
    const outboxOf = () => {
      const route = this.#routes.get(from);
      return route?.connection === connection ? route.outbox : undefined;
    };
    if (outboxOf() !== undefined) this.#exchange.receive(from, fragments, outboxOf);
  }
}
