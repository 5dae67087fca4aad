import type { Logger } from 'pino';
import { assert } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { Exchange } from '../../server/transport/exchange.ts';
import { type FrameSink, Outbox } from '../../server/transport/outbox.ts';
import {
  type MessageChannel,
  type SendOptions,
  TRANSPORT_LIMITS,
  type Transport,
  type TransportHandlers,
  type TransportLimits,
  type TransportStats,
} from '../../server/transport/transport.ts';

export interface MemoryTransportOptions {
  readonly server: ServerId;
  readonly handlers: TransportHandlers;
  readonly log: Logger;
  readonly limits?: Partial<TransportLimits>;
}

/** One direction between two servers: frames arrive in order, in later ticks of the event loop. */
class Pipe implements FrameSink {
  readonly #world: World;
  readonly #deliver: (fragments: readonly Uint8Array[]) => void;
  #queuedBytes = 0;
  #open = true;

  constructor(world: World, deliver: (fragments: readonly Uint8Array[]) => void) {
    this.#world = world;
    this.#deliver = deliver;
  }

  queuedBytes(): number {
    return this.#queuedBytes;
  }

  sendFrame(fragments: readonly Uint8Array[]): void {
    // Copied as a socket would: sender and receiver never share memory.
    const copies = fragments.map((fragment) => Uint8Array.from(fragment));
    const bytes = copies.reduce((sum, copy) => sum + copy.length, 0);
    this.#queuedBytes += bytes;
    this.#world.soon(() => {
      this.#queuedBytes -= bytes;
      if (this.#open) this.#deliver(copies);
    });
  }

  close(): void {
    this.#open = false;
  }
}

/** Where in-memory transports meet. Connects all members to each other, except for pairs that are cut. */
export class MemoryNetwork {
  readonly #world: World;
  readonly #members = new Map<ServerId, MemoryTransport>();
  readonly #cuts = new Set<string>();

  constructor(world: World) {
    this.#world = world;
  }

  /** Adds a server; a running one of the same id is removed, like a process whose successor was started. */
  join(options: MemoryTransportOptions): MemoryTransport {
    const member = new MemoryTransport(this.#world, options, () => this.#leave(member));
    const before = this.#members.get(options.server);
    if (before !== undefined) this.#leave(before);
    this.#members.set(options.server, member);
    this.#world.soon(() => {
      for (const other of this.#members.keys()) this.#connect(options.server, other);
    });
    return member;
  }

  /** Cuts the connection of a pair: what is on its way is lost. */
  cut(a: ServerId, b: ServerId): void {
    this.#cuts.add(pairKey(a, b));
    this.#members.get(a)?.detach(b);
    this.#members.get(b)?.detach(a);
  }

  /** Heals all cuts. */
  heal(): void {
    this.#cuts.clear();
    const ids = [...this.#members.keys()];
    for (const a of ids) {
      for (const b of ids) if (a < b) this.#connect(a, b);
    }
  }

  #leave(member: MemoryTransport): void {
    if (this.#members.get(member.server) === member) this.#members.delete(member.server);
    for (const other of this.#members.values()) {
      if (!member.detach(other.server)) continue;
      other.detach(member.server);
    }
  }

  #connect(a: ServerId, b: ServerId): void {
    const first = this.#members.get(a);
    const second = this.#members.get(b);
    if (a === b || first === undefined || second === undefined) return;
    if (this.#cuts.has(pairKey(a, b)) || first.isConnected(b)) return;
    const forth = new Pipe(this.#world, (fragments) => second.receive(a, fragments));
    const back = new Pipe(this.#world, (fragments) => first.receive(b, fragments));
    first.attach(b, forth);
    second.attach(a, back);
  }
}

/** The transport without a network, for tests: the same queues, frames and calls as the real one. */
export class MemoryTransport implements Transport {
  readonly server: ServerId;
  readonly #world: World;
  readonly #exchange: Exchange;
  readonly #limits: TransportLimits;
  readonly #leave: () => void;
  readonly #routes = new Map<ServerId, { readonly pipe: Pipe; readonly outbox: Outbox }>();

  constructor(world: World, options: MemoryTransportOptions, leave: () => void) {
    this.#world = world;
    this.server = options.server;
    this.#limits = { ...TRANSPORT_LIMITS, ...options.limits };
    this.#exchange = new Exchange(world, options.handlers, this.#limits, options.log);
    this.#leave = leave;
  }

  send(to: ServerId, channel: MessageChannel, payload: Uint8Array, options: SendOptions = {}): void {
    assert(to !== this.server, 'A server does not send to itself');
    const { tail, deferrable = false } = options;
    this.#exchange.push(
      to,
      { channel, payload, ...(tail !== undefined && { tail }) },
      this.#routes.get(to)?.outbox,
      deferrable,
    );
  }

  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    deferrable = false,
  ): Promise<Uint8Array> {
    assert(to !== this.server, 'A server does not call itself');
    return this.#exchange.call(to, method, payload, timeoutMs, this.#routes.get(to)?.outbox, deferrable);
  }

  commandsVersion(peer: ServerId): number | null {
    return this.isConnected(peer) ? COMMANDS_VERSION : null;
  }

  isConnected(peer: ServerId): boolean {
    return this.#routes.has(peer);
  }

  stats(): TransportStats {
    return this.#exchange.stats();
  }

  async close(): Promise<void> {
    this.#exchange.close();
    for (const { outbox } of this.#routes.values()) outbox.flush();
    // What was queued before still arrives, as with an orderly end of a real connection.
    await this.#world.nextTick();
    this.#leave();
  }

  /** Called by the network: the peer is connected now. */
  attach(peer: ServerId, pipe: Pipe): void {
    assert(!this.#routes.has(peer), 'One connection to a peer at a time');
    this.#routes.set(peer, { pipe, outbox: new Outbox(this.#world, pipe, this.#limits.queueBytesMax) });
    this.#exchange.peerConnected(peer);
  }

  /**
   * Called by the network: the peer is disconnected.
   * @returns whether it was connected
   */
  detach(peer: ServerId): boolean {
    const route = this.#routes.get(peer);
    if (route === undefined) return false;
    this.#routes.delete(peer);
    route.outbox.close();
    route.pipe.close();
    this.#exchange.peerLost(peer);
    return true;
  }

  /** Called by the network: a frame arrives. */
  receive(from: ServerId, fragments: readonly Uint8Array[]): void {
    const asked = this.#routes.get(from);
    this.#exchange.receive(from, fragments, () =>
      this.#routes.get(from) === asked ? asked?.outbox : undefined,
    );
  }
}

function pairKey(a: ServerId, b: ServerId): string {
  return a < b ? `${a} ${b}` : `${b} ${a}`;
}
