import { once } from 'node:events';
import { createServer } from 'node:net';
import type { FastifyInstance, FastifyListenOptions } from 'fastify';
import type { ServerId } from '../base/ids.ts';
import type { HttpChannel } from '../http-parts/http-channel.ts';
import { type Connector, Pool } from '../http-parts/undici.ts';
import type { Address } from './address.ts';
import type { PeerTls } from './security/peer-tls.ts';
import { type Descriptors, ownDescriptors } from './shortages.ts';
import { PeerTransport, type PeerTransportOptions } from './transport/peer-transport.ts';
import type { ClusterTransport } from './transport/transport.ts';

/** What a server uses of the machine that it runs on, besides its clocks and its disk. A simulation has one of its own. */
export interface Machine {
  /** Identity of this boot: another one shows that what was not synced may be lost. Absent: as the system says. */
  readonly bootId?: string;
  /** A folder that ends with the boot. Absent: as the system has it. */
  readonly memoryFolder?: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** What the process has open; null where the system does not say. */
  descriptors(): Promise<Descriptors | null>;
  /** Makes the transport between this server and its peers, which `start` lets dial. */
  peerTransport(options: PeerTransportOptions): ClusterTransport;
  /**
   * Makes connections to the HTTP face of a peer.
   *
   * @param peer null before this server knows which server has the URL: any server of the cluster may answer there
   * @param url its base URL
   * @param tls null where servers speak in the clear
   * @param use exchanges share a bounded number of connections; each stream has one of its own
   */
  peerHttp(
    peer: ServerId | null,
    url: string,
    tls: PeerTls | null,
    use?: 'exchanges' | 'streams',
  ): HttpChannel;
  /** @throws the error of listening where a server cannot listen there */
  assertFree(address: Address): Promise<void>;
  /** Resolves when requests come in; @throws the error of listening. */
  listen(app: FastifyInstance, options: FastifyListenOptions): Promise<unknown>;
}

/**
 * Connections to one peer. They are made as needed; so many, because a file without a majority keeps
 * its requests waiting and must not keep other files' requests from being forwarded.
 */
const CONNECTIONS_MAX = 64;
/** An exchange ends by its own time-out; this one only lets no attempt stay for ever. */
const CONNECT_MS_MAX = 10_000;

/** Sockets of this machine. */
export const systemMachine: Machine = {
  environment: process.env,
  descriptors: ownDescriptors,
  peerTransport: (options) => new PeerTransport(options),
  peerHttp: (peer, url, tls, use = 'exchanges') =>
    poolOf(
      // What the catalog remembers of a server may be from before the cluster had certificates.
      tls === null || peer === null ? url : url.replace(/^http:/, 'https:'),
      peer === null ? tls?.connectorByHost(CONNECT_MS_MAX) : tls?.connectorTo(peer, CONNECT_MS_MAX),
      use === 'exchanges' ? CONNECTIONS_MAX : null,
    ),
  assertFree: async ({ host, port }) => {
    const probe = createServer().listen({ host, port });
    await once(probe, 'listening');
    probe.close();
    await once(probe, 'close');
  },
  listen: (app, options) => app.listen(options),
};

/** The time-outs of undici are off: each exchange has its own, and it covers everything. */
function poolOf(origin: string, connect: Connector | undefined, connections: number | null): HttpChannel {
  const pool = new Pool(origin, {
    ...(connect === undefined ? {} : { connect }),
    ...{ connections, pipelining: 1, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 30_000 },
  });
  return {
    request: (request) => pool.request(request),
    stream: async (request) => {
      const { statusCode, headers, body } = await pool.request(request);
      body.setEncoding('utf8');
      return { statusCode, headers, body };
    },
    close: () => pool.close(),
    destroy: () => pool.destroy(),
  };
}
