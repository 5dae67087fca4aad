import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorDetails, isErrorCode, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { Pool } from '../../http-parts/undici.ts';
import { HEADER_CATALOG_SEQ, HEADER_FORWARDED } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import { traceHeaders } from '../trace-context.ts';

export interface PeerRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly contentType?: 'application/json' | 'application/octet-stream';
  /** Sent as it is, without a copy; not to be changed until the exchange has ended. */
  readonly body?: Uint8Array | string;
}

export interface PeerAnswer {
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Uint8Array;
}

/**
 * Connections to one peer. They are made as needed; so many, because a file without a majority keeps
 * its requests waiting and must not keep other files' requests from being forwarded.
 */
const CONNECTIONS_MAX = 64;
/** An exchange ends by its own time-out; this one only lets no attempt stay for ever. */
const CONNECT_MS_MAX = 10_000;

/** Requests that this server makes of its peers' HTTP faces, marked as forwarded. */
export class PeerHttp {
  readonly #world: World;
  readonly #urls: ReadonlyMap<ServerId, string>;
  readonly #tls: PeerTls | null;
  readonly #pools = new Map<ServerId, { readonly url: string; readonly pool: Pool }>();
  readonly #inFlight = new Map<ServerId, Set<AbortController>>();
  #catalogSeq: number | null = null;

  /**
   * @param urls looked at before each exchange: servers come and go
   * @param tls absent where everything is in the clear
   */
  constructor(world: World, urls: ReadonlyMap<ServerId, string>, tls: PeerTls | null = null) {
    this.#world = world;
    this.#urls = urls;
    this.#tls = tls;
  }

  /** The operation of the catalog that the latest answer about the catalog named; null before there was one. */
  get catalogSeq(): number | null {
    return this.#catalogSeq;
  }

  /**
   * Asks `server` and waits for its answer, `timeoutMs` at the most.
   *
   * @throws ServiceError what the peer's problem document says; `unknown` with the server in
   *   `details.unreachable` where there was no answer, so that the request may have had its effect
   */
  async exchange(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer> {
    const controller = new AbortController();
    const inFlight = this.#inFlightOf(server);
    inFlight.add(controller);
    const timer = this.#world.after(Math.max(1, timeoutMs), () =>
      controller.abort(new Error(`no answer in ${Math.round(timeoutMs)} ms`)),
    );
    try {
      const response = await this.#poolOf(server).request({
        method: request.method,
        path: request.path,
        headers: {
          [HEADER_FORWARDED]: '1',
          ...traceHeaders(),
          ...(request.contentType === undefined ? {} : { 'content-type': request.contentType }),
        },
        body: request.body ?? null,
        signal: controller.signal,
      });
      const catalogSeq = response.headers[HEADER_CATALOG_SEQ];
      if (catalogSeq !== undefined) this.#catalogSeq = Number(catalogSeq);
      const bytes = await response.body.bytes();
      if (response.statusCode >= 300)
        throw errorOfProblem(server, response.statusCode, response.headers, bytes);
      return { headers: response.headers, bytes };
    } catch (cause) {
      if (cause instanceof ServiceError) throw cause;
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new ServiceError(
        'unknown',
        `Server ${server} did not answer: ${reason}`,
        { unreachable: [server] },
        { cause },
      );
    } finally {
      timer.cancel();
      inFlight.delete(controller);
    }
  }

  /** The transport lost `server`: nobody waits for its answers any longer. */
  disconnected(server: ServerId): void {
    for (const controller of this.#inFlight.get(server) ?? []) {
      controller.abort(new Error('the connection between the servers is lost'));
    }
  }

  async close(): Promise<void> {
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    await Promise.all(pools.map(({ pool }) => pool.destroy()));
  }

  #inFlightOf(server: ServerId): Set<AbortController> {
    let set = this.#inFlight.get(server);
    if (set === undefined) {
      set = new Set();
      this.#inFlight.set(server, set);
    }
    return set;
  }

  #poolOf(server: ServerId): Pool {
    const url = this.#urls.get(server);
    if (url === undefined) {
      throw new ServiceError('unknown', `Server ${server} has no known address`, { unreachable: [server] });
    }
    const known = this.#pools.get(server);
    if (known?.url === url) return known.pool;
    // It listens elsewhere now: what is under way to the former place may still be answered.
    if (known !== undefined) void known.pool.close();
    // The time-outs of undici are off: each exchange has its own, and it covers everything.
    const tls = this.#tls;
    // What the catalog remembers of a server may be from before the cluster had certificates.
    const origin = tls === null ? url : url.replace(/^http:/, 'https:');
    const pool = new Pool(origin, {
      ...(tls === null ? {} : { connect: tls.connectorTo(server, CONNECT_MS_MAX) }),
      connections: CONNECTIONS_MAX,
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 30_000,
    });
    this.#pools.set(server, { url, pool });
    return pool;
  }
}

function errorOfProblem(
  server: ServerId,
  status: number,
  headers: IncomingHttpHeaders,
  bytes: Uint8Array,
): ServiceError {
  const problem = parseJsonObject(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'));
  if (problem === null || !isErrorCode(problem.code)) {
    return new ServiceError('internal', `Server ${server} answered ${status} without a problem document`);
  }
  const { code, detail, primary, unreachable } = problem;
  const retryAfterSeconds = Number(headers['retry-after']);
  const details: ErrorDetails = {
    ...(typeof primary === 'string' ? { primary } : {}),
    ...(Array.isArray(unreachable) ? { unreachable: unreachable.map(String) } : {}),
    ...(retryAfterSeconds > 0 ? { retryAfterMs: retryAfterSeconds * 1000 } : {}),
  };
  return new ServiceError(
    code,
    typeof detail === 'string' ? detail : `Server ${server} answered ${code}`,
    details,
  );
}
