import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { WebSocket, WebSocketServer } from 'ws';
import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import type { ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { STATUS_CODES } from '../../platform/node-http.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { certifiedServer } from '../security/certified.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import { Exchange } from './exchange.ts';
import { FRAME_BYTES_MAX } from './frame.ts';
import { FrameIntake } from './frame-intake.ts';
import { checkIntroduction, helloHeaders, type Introduction, PEER_PATH, type Refusal } from './handshake.ts';
import { type ConnectionParts, PeerConnection } from './peer-connection.ts';
import { PeerLink } from './peer-link.ts';
import {
  type ClusterTransport,
  type MessageChannel,
  type PeerAddress,
  type SendOptions,
  TRANSPORT_LIMITS,
  type TransportHandlers,
  type TransportLimits,
  type TransportStats,
} from './transport.ts';

/** Only pings come over an accepted connection. */
const ACCEPTED_FRAME_BYTES_MAX = 4_096;

/** Refused peers that are remembered, so that each refusal is logged once. */
const REFUSED_PEERS_MAX = 64;

const REFUSAL_BYTES_MAX = 1_024;

export interface PeerTiming {
  /** How often each connection looks for received bytes. */
  readonly intervalMs: number;
  /** A connection without any received byte over this many intervals is ended. */
  readonly silentIntervalsMax: number;
  readonly connectTimeoutMs: number;
  readonly retryMinMs: number;
  readonly retryMaxMs: number;
}

export const PEER_TIMING: PeerTiming = {
  intervalMs: 500,
  // A peer sends something every 1.5 s.
  silentIntervalsMax: 4,
  connectTimeoutMs: 1_000,
  retryMinMs: 20,
  retryMaxMs: 500,
};

export interface PeerTransportOptions extends Introduction {
  readonly world: World;
  readonly peers: ReadonlyMap<ServerId, PeerAddress>;
  readonly handlers: TransportHandlers;
  readonly log: Logger;
  /** Absent for a cluster in clear text, where a server id is accepted without proof. */
  readonly tls?: PeerTls;
  readonly limits?: Partial<TransportLimits>;
  readonly timing?: Partial<PeerTiming>;
}

interface Dialer {
  readonly peer: ServerId;
  url: string;
  readonly link: PeerLink;
  readonly log: Logger;
  /** Attempts since the last connection that lasted. */
  attempts: number;
  /** The current attempt or its connection. */
  ws: WebSocket | null;
  retry: Timer | null;
  removed: boolean;
  commands: number;
}

/** A WebSocket after its handshake. */
type Attached = Pick<ConnectionParts, 'ws' | 'socket' | 'incarnation' | 'wire' | 'dialed'>;

/** WebSockets on the HTTP port. Each server dials all others, receives there, and sends on what the peer dialed. */
export class PeerTransport implements ClusterTransport {
  readonly #world: World;
  readonly #self: ServerId;
  readonly #introduction: Introduction;
  readonly #log: Logger;
  readonly #limits: TransportLimits;
  readonly #timing: PeerTiming;
  readonly #tls: PeerTls | null;
  readonly #exchange: Exchange;
  readonly #dialers = new Map<ServerId, Dialer>();
  readonly #acceptor = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: ACCEPTED_FRAME_BYTES_MAX,
  });
  readonly #loggedRefusals = new BoundedMap<string, string>(REFUSED_PEERS_MAX);
  readonly #sockets = new Set<WebSocket>();
  #started = false;
  #closed = false;

  constructor(options: PeerTransportOptions) {
    const { server, incarnation, cluster, paramsHash } = options;
    assert(
      Number.isSafeInteger(incarnation) && incarnation >= 1,
      'An incarnation is a positive integer below 2^53',
    );
    this.#world = options.world;
    this.#self = server;
    this.#introduction = { server, incarnation, cluster, paramsHash };
    this.#log = options.log;
    this.#limits = { ...TRANSPORT_LIMITS, ...options.limits };
    this.#timing = { ...PEER_TIMING, ...options.timing };
    this.#tls = options.tls ?? null;
    this.#exchange = new Exchange(options.world, options.handlers, this.#limits, options.log);
    this.#acceptor.on('headers', (headers: string[]) => {
      for (const [name, value] of Object.entries(helloHeaders(this.#introduction, null))) {
        headers.push(`${name}: ${value}`);
      }
    });
    for (const [peer, address] of options.peers) this.addPeer(peer, address);
  }

  addPeer(peer: ServerId, { host, port }: PeerAddress): void {
    if (peer === this.#self || this.#closed) return;
    const scheme = this.#tls === null ? 'ws' : 'wss';
    const url = `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}${PEER_PATH}`;
    const known = this.#dialers.get(peer);
    if (known !== undefined) {
      known.url = url;
      return;
    }
    const log = this.#log.child({ peer });
    const link = new PeerLink(this.#world, this.#limits.queueBytesMax, log, {
      connected: () => {
        this.#exchange.peerConnected(peer);
      },
      disconnected: () => {
        this.#exchange.peerLost(peer);
      },
    });
    const dialer = { peer, url, link, log, attempts: 0, ws: null, retry: null, removed: false, commands: 1 };
    this.#dialers.set(peer, dialer);
    if (this.#started) this.#dial(dialer);
  }

  removePeer(peer: ServerId): void {
    const dialer = this.#dialers.get(peer);
    if (dialer === undefined) return;
    dialer.removed = true;
    this.#end(dialer);
    this.#dialers.delete(peer);
  }

  get peers(): ServerId[] {
    return [...this.#dialers.keys()];
  }

  start(): void {
    assert(!this.#started, 'A transport starts once');
    this.#started = true;
    for (const dialer of this.#dialers.values()) this.#dial(dialer);
  }

  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy());
    if (request.url !== PEER_PATH) {
      refuseUpgrade(socket, 404, 'This path has no protocol to upgrade to');
      return;
    }
    if (this.#closed) {
      refuseUpgrade(socket, 503, `${this.#self} is shutting down`);
      return;
    }
    const reason = this.#tls === null ? null : certificateMismatch(request, this.#world.wallMs());
    if (reason !== null) {
      this.#refuse(request, socket, { status: 403, reason });
      return;
    }
    const greeting = checkIntroduction(request.headers, this.#introduction, (server) =>
      this.#dialers.has(server),
    );
    if (greeting.kind === 'refused') {
      this.#refuse(request, socket, greeting.refusal);
      return;
    }
    const { server, incarnation, commands } = greeting.hello;
    const dialer = this.#dialers.get(server);
    assert(dialer !== undefined, 'Only configured servers are welcome');
    if (dialer.link.isRetired(incarnation)) {
      const reason = `A newer process of ${server} has connected, so this one is refused: stop or restart it`;
      this.#refuse(request, socket, { status: 409, reason });
      return;
    }
    this.#loggedRefusals.delete(refusalKey(request));
    dialer.commands = commands;
    this.#acceptor.handleUpgrade(request, socket, head, (ws) => {
      this.#trackSocket(ws);
      if (dialer.removed) {
        ws.terminate();
        return;
      }
      this.#attach(dialer, { ws, socket: request.socket, incarnation, wire: greeting.wire, dialed: false });
      if (this.#started && !dialer.removed && dialer.retry !== null) {
        dialer.retry.cancel();
        dialer.retry = null;
        this.#dial(dialer);
      }
    });
  }

  send(to: ServerId, channel: MessageChannel, payload: Uint8Array, options: SendOptions = {}): void {
    assert(to !== this.#self, 'A server does not send to itself');
    const { tail, deferrable = false } = options;
    this.#exchange.push(
      to,
      { channel, payload, ...(tail !== undefined && { tail }) },
      this.#dialers.get(to)?.link,
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
    assert(to !== this.#self, 'A server does not call itself');
    return this.#exchange.call(to, method, payload, timeoutMs, this.#dialers.get(to)?.link, deferrable);
  }

  isConnected(peer: ServerId): boolean {
    return this.#dialers.get(peer)?.link.isConnected ?? false;
  }

  commandsVersion(peer: ServerId): number | null {
    const dialer = this.#dialers.get(peer);
    return dialer?.link.isConnected === true ? dialer.commands : null;
  }

  incarnationOf(peer: ServerId): number | null {
    return this.#dialers.get(peer)?.link.incarnation ?? null;
  }

  stats(): TransportStats {
    return this.#exchange.stats();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#exchange.close();
    for (const dialer of this.#dialers.values()) this.#end(dialer);
    await Promise.all(
      [...this.#sockets].map((ws) => new Promise<void>((resolve) => ws.once('close', () => resolve()))),
    );
  }

  #end(dialer: Dialer): void {
    dialer.retry?.cancel();
    dialer.retry = null;
    dialer.link.close();
    if (dialer.ws?.readyState === WebSocket.CONNECTING) dialer.ws.terminate();
  }

  #dial(dialer: Dialer): void {
    assert(dialer.ws === null && dialer.retry === null, 'One attempt at a time');
    if (this.#closed || dialer.removed) return;
    const intake = new FrameIntake();
    const ws = new WebSocket(dialer.url, {
      createConnection: intake.connector(this.#tls !== null),
      headers: helloHeaders(this.#introduction, dialer.peer),
      perMessageDeflate: false,
      handshakeTimeout: this.#timing.connectTimeoutMs,
      maxPayload: FRAME_BYTES_MAX,
      ...this.#tls?.dialOptions(dialer.peer),
    });
    dialer.ws = ws;
    this.#trackSocket(ws);
    let accepted: Omit<Attached, 'ws' | 'dialed'> | null = null;
    const fail = (reason: string): void => {
      if (dialer.ws !== ws) return;
      dialer.ws = null;
      if (this.#closed || dialer.removed) return;
      dialer.link.logUnreachable(reason);
      this.#redialLater(dialer);
      ws.terminate();
    };
    ws.on('error', (error: Error & { code?: string }) =>
      fail(error.message || error.code || 'the connection failed'),
    );
    ws.on('close', () => fail('the connection was closed during the handshake'));
    ws.on('unexpected-response', (_request, response) => {
      readRefusal(response).then(
        (reason) => fail(reason),
        (error: Error) => fail(error.message),
      );
    });
    ws.on('upgrade', (response) => {
      const greeting = checkIntroduction(response.headers, this.#introduction, (server) =>
        this.#dialers.has(server),
      );
      if (greeting.kind === 'refused') return fail(greeting.refusal.reason);
      const { hello } = greeting;
      if (hello.server !== dialer.peer)
        return fail(`The address of ${dialer.peer} is that of ${hello.server}: correct it`);
      if (dialer.link.isRetired(hello.incarnation))
        return fail('It is an older process of this server than the newest one that connected');
      accepted = { socket: response.socket, incarnation: hello.incarnation, wire: greeting.wire };
      dialer.commands = hello.commands;
      this.#tls?.track(response.socket);
    });
    ws.on('open', () => {
      if (dialer.ws !== ws) return;
      if (dialer.removed) return fail('the server was removed from the cluster');
      assert(accepted !== null, 'A connection opens after its upgrade');
      for (const event of ['error', 'close', 'unexpected-response', 'upgrade']) ws.removeAllListeners(event);
      this.#trackSocket(ws);
      const connection = this.#attach(dialer, { ws, ...accepted, dialed: true });
      intake.deliver = (fragments) => connection.receive(fragments);
    });
  }

  /** Wraps an open WebSocket in a connection, which the link uses once the peer has answered on it. */
  #attach(dialer: Dialer, { ws, socket, incarnation, wire, dialed }: Attached): PeerConnection {
    const { link, log } = dialer;
    const { intervalMs, silentIntervalsMax, connectTimeoutMs, retryMaxMs } = this.#timing;
    const proofTimeout = this.#world.after(connectTimeoutMs, () =>
      connection.terminate('it sent nothing after the handshake'),
    );
    let lasted: Timer | undefined;
    const connection = new PeerConnection({
      ...{ world: this.#world, ws, socket, incarnation, wire, dialed, intervalMs, silentIntervalsMax },
      handlers: {
        proven: () => {
          proofTimeout.cancel();
          // A peer that answers and then sends malformed frames is not dialed in a loop: only a lasting connection
          // counts.
          lasted = this.#world.after(retryMaxMs, () => {
            if (dialed) dialer.attempts = 0;
          });
          link.connectionProven(connection, dialed);
        },
        frame: (fragments) => this.#receive(dialer, connection, fragments),
        ended: (end) => {
          proofTimeout.cancel();
          lasted?.cancel();
          if (end.malformed) {
            this.#exchange.traffic.connectionsMalformed += 1;
            log.warn({ reason: end.reason, dialed }, 'connection closed: the peer sent a malformed frame');
          }
          link.connectionEnded(connection, end);
          if (!dialed) return;
          assert(dialer.ws === ws, 'A dialer has one connection');
          dialer.ws = null;
          if (!this.#closed && !dialer.removed) this.#redialLater(dialer);
        },
      },
    });
    link.connectionOpened(connection);
    return connection;
  }

  #receive(dialer: Dialer, connection: PeerConnection, fragments: readonly Uint8Array[]): void {
    if (dialer.removed) return;
    const { peer, link } = dialer;
    const { incarnation } = connection;
    // A peer sends nothing before its pong, and frames of a retired incarnation are ignored.
    if (incarnation !== link.incarnation) return;
    try {
      // Ids of calls start again with each incarnation: a reply for an older one is dropped.
      this.#exchange.receive(peer, fragments, () => (link.incarnation === incarnation ? link : undefined));
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      connection.close(1007, { reason: error.message, malformed: true });
    }
  }

  #redialLater(dialer: Dialer): void {
    const { retryMinMs, retryMaxMs } = this.#timing;
    const pauseMs = Math.min(retryMaxMs, retryMinMs * 2 ** Math.min(dialer.attempts, 16));
    dialer.attempts += 1;
    // Jitter: two servers that lost each other at the same moment must not collide at every attempt.
    dialer.retry = this.#world.after(pauseMs * (0.5 + this.#world.random() / 2), () => {
      dialer.retry = null;
      this.#dial(dialer);
    });
  }

  #refuse(request: IncomingMessage, socket: Duplex, { status, reason }: Refusal): void {
    const key = refusalKey(request);
    if (this.#loggedRefusals.get(key) !== reason) {
      this.#loggedRefusals.set(key, reason);
      this.#log.warn({ address: request.socket.remoteAddress, status, reason }, 'peer refused');
    }
    refuseUpgrade(socket, status, reason);
  }

  #trackSocket(ws: WebSocket): void {
    this.#sockets.add(ws);
    ws.once('close', () => this.#sockets.delete(ws));
    // Late errors say nothing new; without a listener they would end the process.
    ws.on('error', () => undefined);
  }
}

/** Returns why the certificate does not prove the server id of the request; null if it does. */
function certificateMismatch(request: IncomingMessage, wallMs: number): string | null {
  const certified = certifiedServer(request.socket, wallMs);
  if (certified === null)
    return 'The connection has no server certificate: check --tls-cert of the connecting server';
  const claims = request.headers['leasehold-server'];
  return claims === certified
    ? null
    : `The certificate is for ${certified}, the handshake says another server id`;
}

function refusalKey(request: IncomingMessage): string {
  const claimed = request.headers['leasehold-server'];
  return `${request.socket.remoteAddress ?? ''} ${typeof claimed === 'string' ? claimed.slice(0, 64) : ''}`;
}

export function refuseUpgrade(socket: Duplex, status: number, reason: string): void {
  // The connection may break before it is answered.
  socket.on('error', () => socket.destroy());
  const body = `${reason}\n`;
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n` +
      'Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\n' +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}

async function readRefusal(response: IncomingMessage): Promise<string> {
  let body = '';
  response.setEncoding('utf8');
  for await (const chunk of response) {
    body += chunk;
    if (body.length > REFUSAL_BYTES_MAX) break;
  }
  const reason = body.trim().slice(0, REFUSAL_BYTES_MAX);
  return `refused with ${response.statusCode}: ${reason === '' ? response.statusMessage : reason}`;
}
