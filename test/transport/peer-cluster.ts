import { createServer, type Server } from 'node:http';
import { type Logger, pino } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import {
  type PeerTiming,
  PeerTransport,
  type PeerTransportOptions,
} from '../../server/transport/peer-transport.ts';
import type { PeerAddress, TransportHandlers, TransportLimits } from '../../server/transport/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { TransportCluster } from '../conformance/transport.ts';

/** Fast enough for tests, slow enough for a busy machine. */
export const TEST_TIMING: PeerTiming = {
  intervalMs: 100,
  silentIntervalsMax: 10,
  connectTimeoutMs: 1_000,
  retryMinMs: 10,
  retryMaxMs: 100,
};

/** One line of a log. */
export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly reason?: string;
  readonly peer?: string;
}

/** A logger that keeps its lines. */
export function recordingLog(): { log: Logger; lines: LogLine[] } {
  const lines: LogLine[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { log, lines };
}

/** @returns different addresses on this machine that no process uses now */
export async function freeAddresses<Id extends string>(...ids: Id[]): Promise<Map<Id, PeerAddress>> {
  const ports = await freePorts(ids.length);
  return new Map(ids.map((id, place) => [id, { host: '127.0.0.1', port: ports[place] as number }]));
}

/** One process of a cluster, inside this one: a transport and the HTTP server that it shares. */
export interface PeerProcess {
  readonly transport: PeerTransport;
  readonly http: Server;
  /** Ends all sockets at once, as the death of a process does. */
  kill(): Promise<void>;
}

/** Starts a transport on its port of `options.peers`. */
export async function startPeer(
  options: Partial<PeerTransportOptions> & Pick<PeerTransportOptions, 'server' | 'peers' | 'handlers'>,
): Promise<PeerProcess> {
  const transport = new PeerTransport({
    world: systemWorld,
    cluster: 'test',
    incarnation: 1 + Math.floor(Math.random() * 2 ** 52),
    paramsHash: 'p',
    log: pino({ level: 'silent' }),
    timing: TEST_TIMING,
    ...options,
  });
  const http = createServer((_request, response) => response.end('http'));
  http.on('upgrade', (request, socket, head) => transport.handleUpgrade(request, socket, head));
  const sockets = new Set<{ destroy(): void }>();
  http.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  const address = options.peers.get(options.server);
  await new Promise<void>((resolve, reject) => {
    http.on('error', reject);
    http.listen(address?.port ?? 0, '127.0.0.1', resolve);
  });
  transport.start();
  const kill = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    const closed = new Promise((resolve) => http.close(resolve));
    await transport.close();
    await closed;
  };
  return { transport, http, kill };
}

/** Up to three servers over real sockets. */
export class PeerCluster implements TransportCluster {
  readonly #running = new Map<ServerId, PeerProcess>();
  #peers: Map<ServerId, PeerAddress> | null = null;

  async start(
    server: ServerId,
    handlers: TransportHandlers,
    limits: Partial<TransportLimits> = {},
  ): Promise<PeerTransport> {
    await this.#running.get(server)?.kill();
    const started = await startPeer({ server, peers: await this.peers(), handlers, limits });
    this.#running.set(server, started);
    return started.transport;
  }

  async peers(): Promise<ReadonlyMap<ServerId, PeerAddress>> {
    this.#peers ??= await freeAddresses('s1' as ServerId, 's2' as ServerId, 's3' as ServerId);
    return this.#peers;
  }

  async stop(): Promise<void> {
    for (const { kill } of this.#running.values()) await kill();
  }
}
