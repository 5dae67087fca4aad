import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorDetails, isErrorCode, parseRedirectDetails, ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { HttpChannel, StreamedAnswer } from '../../platform/http-channel.ts';
import {
  HEADER_CATALOG,
  HEADER_CATALOG_EPOCH,
  HEADER_CATALOG_SEQ,
  HEADER_FORWARDED,
} from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { type Machine, systemMachine } from '../process/machine.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import { traceHeaders } from '../telemetry/trace-context.ts';

export interface PeerRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly contentType?: 'application/json' | 'application/octet-stream';
  /** Sent without a copy: the caller must not change it until the exchange has ended. */
  readonly body?: Uint8Array | string;
  /** The catalog that the request is for; absent if it is for none. */
  readonly catalog?: CatalogNumber;
}

export interface PeerAnswer {
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Uint8Array;
}

/** The number of an executed operation of the catalog, null if none is known, and the newest known epoch, or 0. */
export interface CatalogPosition {
  readonly seq: number | null;
  readonly epoch: number;
}

export function jsonRequest(path: string, body: unknown): PeerRequest {
  return { method: 'POST', path, contentType: 'application/json', body: JSON.stringify(body) };
}

export function jsonOfAnswer<Result>({ bytes }: PeerAnswer): Result {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8')) as Result;
}

/** The root catalog's is left out, as earlier releases do. */
function catalogHeader(catalog: CatalogNumber = ROOT_CATALOG): Record<string, string> {
  return catalog === ROOT_CATALOG ? {} : { [HEADER_CATALOG]: String(catalog) };
}

/** Requests to the HTTP servers of peers, marked as forwarded. */
export class PeerHttp {
  readonly #world: World;
  readonly #exchanges: PeerChannels;
  readonly #streams: PeerChannels;
  readonly #inFlight = new Map<ServerId, Set<AbortController>>();
  readonly #catalogPositions = new Map<CatalogNumber, CatalogPosition>();

  /** @param urls read at each exchange, because servers come and go; `tls` is null for connections in clear text */
  constructor(
    world: World,
    urls: ReadonlyMap<ServerId, string>,
    tls: PeerTls | null = null,
    machine: Machine = systemMachine,
  ) {
    this.#world = world;
    this.#exchanges = new PeerChannels(urls, (server, url) =>
      machine.peerHttp(server, url, tls, 'exchanges'),
    );
    this.#streams = new PeerChannels(urls, (server, url) => machine.peerHttp(server, url, tls, 'streams'));
  }

  /** The position that the latest answer with one reported; the epoch never decreases. */
  catalogPosition(catalog: CatalogNumber): CatalogPosition {
    return this.#catalogPositions.get(catalog) ?? { seq: null, epoch: 0 };
  }

  /**
   * Sends a request and waits for its answer, for at most `timeoutMs`.
   * @throws ServiceError the peer's problem document; `unknown`, with the server in `details.unreachable`, without an
   * answer: the request may have had its effect
   */
  async exchange(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer> {
    const controller = new AbortController();
    const inFlight = this.#inFlightOf(server);
    inFlight.add(controller);
    const timer = this.#world.after(Math.max(1, timeoutMs), () =>
      controller.abort(new Error(`no answer in ${Math.round(timeoutMs)} ms`)),
    );
    try {
      const response = await this.#exchanges.to(server).request({
        method: request.method,
        path: request.path,
        headers: {
          [HEADER_FORWARDED]: '1',
          ...traceHeaders(),
          ...(request.contentType === undefined ? {} : { 'content-type': request.contentType }),
          ...catalogHeader(request.catalog),
        },
        body: request.body ?? null,
        signal: controller.signal,
      });
      this.#notePosition(response.headers);
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

  stream(server: ServerId, path: string, signal: AbortSignal): Promise<StreamedAnswer> {
    const headers = { [HEADER_FORWARDED]: '1' };
    return this.#streams.to(server).stream({ method: 'GET', path, headers, signal });
  }

  /** Aborts the requests to a server that the transport has lost. */
  disconnected(server: ServerId): void {
    for (const controller of this.#inFlight.get(server) ?? []) {
      controller.abort(new Error('the connection between the servers is lost'));
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#exchanges.destroy(), this.#streams.destroy()]);
  }

  #notePosition(headers: IncomingHttpHeaders): void {
    const seq = headers[HEADER_CATALOG_SEQ];
    if (seq === undefined) return;
    const catalog = Number(headers[HEADER_CATALOG] ?? ROOT_CATALOG) as CatalogNumber;
    const epoch = Number(headers[HEADER_CATALOG_EPOCH] ?? 0);
    const before = this.catalogPosition(catalog);
    this.#catalogPositions.set(catalog, { seq: Number(seq), epoch: Math.max(before.epoch, epoch) });
  }

  #inFlightOf(server: ServerId): Set<AbortController> {
    let set = this.#inFlight.get(server);
    if (set === undefined) {
      set = new Set();
      this.#inFlight.set(server, set);
    }
    return set;
  }
}

/** One connection pool per server, replaced when the server's URL changes. */
class PeerChannels {
  readonly #urls: ReadonlyMap<ServerId, string>;
  readonly #open: (server: ServerId, url: string) => HttpChannel;
  readonly #channels = new Map<ServerId, { readonly url: string; readonly channel: HttpChannel }>();

  constructor(urls: ReadonlyMap<ServerId, string>, make: (server: ServerId, url: string) => HttpChannel) {
    this.#urls = urls;
    this.#open = make;
  }

  to(server: ServerId): HttpChannel {
    const url = this.#urls.get(server);
    if (url === undefined) {
      throw new ServiceError('unknown', `Server ${server} has no known address`, { unreachable: [server] });
    }
    const known = this.#channels.get(server);
    if (known?.url === url) return known.channel;
    // The address has changed. The old channel closes once its requests in progress have ended.
    if (known !== undefined) void known.channel.close();
    const channel = this.#open(server, url);
    this.#channels.set(server, { url, channel });
    return channel;
  }

  async destroy(): Promise<void> {
    const channels = [...this.#channels.values()];
    this.#channels.clear();
    await Promise.all(channels.map(({ channel }) => channel.destroy()));
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
  const { code, detail, primary, unreachable, outdated } = problem;
  const retryAfterSeconds = Number(headers['retry-after']);
  const details: ErrorDetails = {
    ...(typeof primary === 'string' ? { primary } : {}),
    ...(Array.isArray(unreachable) ? { unreachable: unreachable.map(String) } : {}),
    ...(Array.isArray(outdated) ? { outdated: outdated.map(String) } : {}),
    ...parseRedirectDetails(problem),
    ...(retryAfterSeconds > 0 ? { retryAfterMs: retryAfterSeconds * 1000 } : {}),
  };
  return new ServiceError(
    code,
    typeof detail === 'string' ? detail : `Server ${server} answered ${code}`,
    details,
  );
}
