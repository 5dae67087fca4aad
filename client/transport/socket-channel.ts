import { get as getHttps } from 'node:https';
import type { World } from '../../base/world.ts';
import { get as getHttp } from '../../platform/node-http.ts';
import { Pool } from '../../platform/undici.ts';
import type { Access } from './access.ts';
import { bodyBytes, DirectHttp, NoWriteConnectionsError, UnusualAnswerError } from './direct-http.ts';
import type { Response } from './response.ts';
import {
  type ServerChannel,
  type ServerRequest,
  type StreamedResponse,
  wholeBody,
} from './server-channel.ts';
import { Traffic } from './traffic.ts';

const CONNECTIONS_MAX = 64;
const CONNECT_TIMEOUT_MS = 1_500;
/** Writes from this size on use connections of their own, which cost less for each byte (decision 0053). */
const CONTENTS_BYTES_MIN = 128 * 1024;
const CONTENTS = /^\/v1\/data\//;

/** Connections that cost less than those of the pool. They are removed once the server proves unfit for them. */
interface CheaperConnections {
  readonly connections: DirectHttp;
  takes(request: ServerRequest): boolean;
  /** The error of an unfit server; it has not executed the request. */
  readonly unfit: typeof NoWriteConnectionsError | typeof UnusualAnswerError;
}

export class SocketChannel implements ServerChannel {
  readonly #url: URL;
  readonly #access: Access;
  readonly #traffic: Traffic;
  readonly #pool: Pool;
  readonly #cheaper = new Set<CheaperConnections>();

  constructor(world: World, url: URL, access: Access) {
    this.#url = url;
    this.#access = access;
    this.#traffic = new Traffic(world, CONNECT_TIMEOUT_MS, access);
    this.#pool = new Pool(url.origin, {
      connections: CONNECTIONS_MAX,
      connect: this.#traffic.connector,
      // Attempts have their own exact deadlines; the pool's coarse ones stay out of the way.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const connections = [world, url, this.#traffic, CONNECT_TIMEOUT_MS, CONNECTIONS_MAX, access] as const;
    if (url.protocol !== 'https:') {
      const contents = new DirectHttp(...connections, true);
      this.#cheaper.add({ connections: contents, takes: isLargeWrite, unfit: NoWriteConnectionsError });
    }
    const direct = new DirectHttp(...connections);
    this.#cheaper.add({ connections: direct, takes: () => true, unfit: UnusualAnswerError });
  }

  async request(request: ServerRequest): Promise<Response> {
    for (const cheaper of this.#cheaper) {
      if (!cheaper.takes(request)) continue;
      try {
        return await cheaper.connections.request(request);
      } catch (error) {
        if (!(error instanceof cheaper.unfit)) throw error;
        cheaper.connections.retire();
        this.#cheaper.delete(cheaper);
      }
    }
    return this.stream(request);
  }

  stream({ method, path, headers = null, body, signal }: ServerRequest): Promise<StreamedResponse> {
    return this.#pool.request({ method, path, headers, body: wholeBody(body), signal });
  }

  /** Requests `/livez` on a connection of its own, since all others may be taken. */
  probe(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const get = this.#url.protocol === 'https:' ? getHttps : getHttp;
      const options = { ...this.#access.tls, agent: false, signal };
      const request = get(new URL('/livez', this.#url), options, (response) => {
        // A proxy that does not reach the server answers with a status from 500 on.
        const status = response.statusCode ?? 500;
        if (status < 500) resolve();
        else reject(new Error(`HTTP status ${status}`));
        // The rest may never come, and an open connection would keep the process from ending.
        response.on('error', () => undefined);
        request.destroy();
      });
      request.on('error', reject);
    });
  }

  hasReceived(): boolean {
    return this.#traffic.hasReceived();
  }

  get connectMs(): number {
    return this.#traffic.connectMs;
  }

  async close(): Promise<void> {
    for (const { connections } of this.#cheaper) connections.retire();
    await this.#pool.close();
  }

  async destroy(): Promise<void> {
    for (const { connections } of this.#cheaper) connections.close();
    await this.#pool.destroy();
  }
}

function isLargeWrite({ method, path, body }: ServerRequest): boolean {
  return method === 'PUT' && CONTENTS.test(path) && bodyBytes(body ?? '') >= CONTENTS_BYTES_MIN;
}
