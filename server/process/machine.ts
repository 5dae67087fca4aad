import { once } from 'node:events';
import { createServer } from 'node:net';
import type { FastifyInstance, FastifyListenOptions } from 'fastify';
import type { ServerId } from '../../base/ids.ts';
import type { HttpChannel } from '../../platform/http-channel.ts';
import { type Connector, Pool } from '../../platform/undici.ts';
import type { Address } from '../config/address.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import { damageByThread } from '../storage/database-checker.ts';
import { PeerTransport, type PeerTransportOptions } from '../transport/peer-transport.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import { type Descriptors, ownDescriptors } from './shortages.ts';

/** What a server uses of its machine besides clocks and disk; replaced in simulations. */
export interface Machine {
  /** Identity of this boot: a new one shows that unsynced data may be lost. Default: the system's. */
  readonly bootId?: string;
  /** A folder that is lost with the boot. Default: the system's. */
  readonly memoryFolder?: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  descriptors(): Promise<Descriptors | null>;
  /** Reads a whole database. @returns the first damage, or null. Default: in the thread of the caller */
  readonly checkDatabase?: (file: string) => Promise<string | null>;
  peerTransport(options: PeerTransportOptions): ClusterTransport;
  /**
   * @param peer null before this server knows which server has the URL: any server of the cluster may answer there
   * @param tls null without TLS
   * @param use exchanges share a bounded number of connections; each stream has one of its own
   */
  peerHttp(
    peer: ServerId | null,
    url: string,
    tls: PeerTls | null,
    use?: 'exchanges' | 'streams',
  ): HttpChannel;
  assertAddressFree(address: Address): Promise<void>;
  /** Resolves when requests are accepted; @throws the error of listening. */
  listen(app: FastifyInstance, options: FastifyListenOptions): Promise<unknown>;
}

/** Connections to a peer, opened on demand: requests for a file without a majority wait, but block no other file's. */
const CONNECTIONS_MAX = 64;
/** An exchange has its own time-out; this one only bounds an attempt to connect. */
const CONNECT_MS_MAX = 10_000;

export const systemMachine: Machine = {
  environment: process.env,
  descriptors: ownDescriptors,
  checkDatabase: damageByThread,
  peerTransport: (options) => new PeerTransport(options),
  peerHttp: (peer, url, tls, use = 'exchanges') =>
    poolOf(
      // The catalog's URL of a server may be from before the cluster had certificates.
      tls === null || peer === null ? url : url.replace(/^http:/, 'https:'),
      peer === null ? tls?.connectorByHost(CONNECT_MS_MAX) : tls?.connectorTo(peer, CONNECT_MS_MAX),
      use === 'exchanges' ? CONNECTIONS_MAX : null,
    ),
  assertAddressFree: async ({ host, port }) => {
    const probe = createServer().listen({ host, port });
    await once(probe, 'listening');
    probe.close();
    await once(probe, 'close');
  },
  listen: (app, options) => app.listen(options),
};

/** Creates a pool of connections without undici's time-outs: each exchange has its own, which covers everything. */
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
