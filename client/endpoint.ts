import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import type { ChannelAnswer, ChannelRequest, HttpChannel } from '../http-parts/http-channel.ts';
import { type Dispatcher, Pool } from '../http-parts/undici.ts';
import type { Access } from './access.ts';
import {
  bodyBytes,
  DirectHttp,
  type DirectRequest,
  NoContentsError,
  UnusualAnswerError,
} from './direct-http.ts';
import { Pulse } from './pulse.ts';
import type { Response } from './response.ts';
import { Traffic } from './traffic.ts';

/** Requests to one server at a time; more wait in its pool. */
const CONNECTIONS_MAX = 64;
const CONNECT_TIMEOUT_MS = 1_500;
/** Writes of so many bytes and more go over connections of their own, which are cheaper for each byte (decision 0053). */
const CONTENTS_BYTES_MIN = 128 * 1024;
const CONTENTS = /^\/v1\/data\//;

/** What an endpoint tells of itself to those who choose among all. */
export interface EndpointEvents {
  /** It is as good as gone, as of now. */
  lost(): void;
  /** @returns whether a request that lies at `endpoint` could be sent to another one */
  elsewhere(endpoint: Endpoint): boolean;
}

/** One server as this client sees it. */
export class Endpoint {
  readonly world: World;
  readonly url: string;
  readonly pulse: Pulse;
  /** Whether its address was given by the caller; the others were found out, and are given up when they leave the cluster. */
  readonly given: boolean;
  /** Known once the server was asked who it is. */
  id: string | null = null;
  /** It asked to be left alone until then (monotonic, in milliseconds). */
  avoidUntilMs = 0;
  readonly #events: EndpointEvents;
  readonly #access: Access;
  readonly #pool: Pool;
  /** The way to the server where it is not sockets. */
  readonly #channel: HttpChannel | null;
  #dead = false;
  /** Null where the server is not one of this project. */
  #direct: DirectHttp | null;
  /** For large writes; null where the server knows no such connections, or there is encryption. */
  #contents: DirectHttp | null;

  /** @throws ServiceError `bad-request` where `url` is none, or a token would go there in the clear */
  constructor(world: World, url: string, given: boolean, events: EndpointEvents, access: Access) {
    const parsed = URL.parse(url);
    if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
      throw new ServiceError(
        'bad-request',
        `Cannot use the server "${url}": its address must be a URL such as http://127.0.0.1:7401`,
      );
    }
    if (!access.allows(parsed)) {
      throw new ServiceError(
        'bad-request',
        `Cannot use the server "${url}": the token would travel in the clear; write https://${parsed.host}`,
      );
    }
    this.world = world;
    this.url = parsed.origin;
    this.#channel = access.connect?.(parsed.origin) ?? null;
    this.#access = access;
    this.given = given;
    this.#events = events;
    const traffic = new Traffic(world, CONNECT_TIMEOUT_MS, access);
    this.#pool = new Pool(parsed.origin, {
      connections: CONNECTIONS_MAX,
      connect: traffic.connector,
      // Attempts end by their own deadlines, which are exact; the pool's coarse ones stay out of the way.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const connections = [world, parsed, traffic, CONNECT_TIMEOUT_MS, CONNECTIONS_MAX, access] as const;
    this.#direct = new DirectHttp(...connections);
    this.#contents = parsed.protocol === 'https:' ? null : new DirectHttp(...connections, true);
    const pulse = {
      silent: () => events.lost(),
      alive: () => {
        this.#dead = false;
      },
      elsewhere: () => events.elsewhere(this),
    };
    this.pulse = new Pulse(world, this.url, traffic, pulse, access, this.#channel);
  }

  /** One exchange, which may be repeated freely. @throws the reason of the signal, or why there is no answer */
  async request(plain: DirectRequest): Promise<Response> {
    const request = { ...plain, headers: this.#withAccess(plain.headers) };
    if (this.#channel !== null) return this.#channel.request(wholeOf(request));
    if (this.#contents !== null && isLargeWrite(request)) {
      try {
        return await this.#contents.request(request);
      } catch (error) {
        if (!(error instanceof NoContentsError)) throw error;
        this.#contents?.retire();
        this.#contents = null;
      }
    }
    if (this.#direct !== null) {
      try {
        return await this.#direct.request(request);
      } catch (error) {
        if (!(error instanceof UnusualAnswerError)) throw error;
        this.#direct?.retire();
        this.#direct = null;
      }
    }
    return this.#pool.request(wholeOf(request));
  }

  /** One exchange with a small answer. */
  ask(request: ChannelRequest): Promise<ChannelAnswer> {
    if (this.#channel === null) return this.stream(request as Dispatcher.RequestOptions);
    return this.#channel.request({ ...request, headers: this.#withAccess(request.headers) });
  }

  /** One exchange whose answer is read while it comes. */
  stream(request: Dispatcher.RequestOptions): Promise<Dispatcher.ResponseData> {
    const headers = this.#withAccess(request.headers as Readonly<Record<string, string>> | undefined);
    return this.#pool.request({ ...request, headers });
  }

  #withAccess(headers: DirectRequest['headers']): Readonly<Record<string, string>> | null {
    const own = this.#access.headers;
    return own === null ? (headers ?? null) : { ...headers, ...own };
  }

  /** It did not accept a connection, and has given no sign of life since. */
  get isDead(): boolean {
    return this.#dead;
  }

  /** It is dead, or does not say a word. */
  get isAway(): boolean {
    return this.#dead || this.pulse.isSilent;
  }

  markDead(nowMs: number): void {
    this.pulse.away(nowMs);
    if (this.#dead) return;
    this.#dead = true;
    this.#events.lost();
  }

  /** @returns whether to ask it now; if it is away, it is asked in the background whether it is back */
  isUsable(nowMs: number): boolean {
    if (!this.isAway) return this.avoidUntilMs <= nowMs;
    this.pulse.askWhetherBack(nowMs);
    return false;
  }

  /** Ends its connections when the requests under way have ended. */
  async retire(): Promise<void> {
    this.#direct?.retire();
    this.#contents?.retire();
    await this.#channel?.close();
    await this.#pool.close();
    this.pulse.close();
  }

  /** Ends its connections; requests under way fail. */
  async close(): Promise<void> {
    this.pulse.close();
    this.#direct?.close();
    this.#contents?.close();
    await this.#channel?.destroy();
    await this.#pool.destroy();
  }
}

function wholeOf({ method, path, headers, body = null, signal }: DirectRequest) {
  const whole = Array.isArray(body) ? Buffer.concat(body) : (body as Uint8Array | string | null);
  return { method, path, headers: headers ?? null, body: whole, signal };
}

function isLargeWrite({ method, path, body }: DirectRequest): boolean {
  return method === 'PUT' && CONTENTS.test(path) && bodyBytes(body ?? '') >= CONTENTS_BYTES_MIN;
}
