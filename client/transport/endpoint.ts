import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Access } from './access.ts';
import { LivenessProbe } from './liveness-probe.ts';
import type { Response } from './response.ts';
import type { ServerChannel, ServerRequest, StreamedResponse } from './server-channel.ts';
import { SocketChannel } from './socket-channel.ts';

export interface EndpointEvents {
  /** The server refused a connection, or became silent. */
  unreachable(): void;
  /** @returns whether a request pending at `endpoint` could be sent to another one */
  hasAlternative(endpoint: Endpoint): boolean;
}

export class Endpoint {
  readonly world: World;
  readonly url: string;
  readonly liveness: LivenessProbe;
  /** Whether the caller gave its address; discovered servers are dropped when they leave the cluster. */
  readonly given: boolean;
  id: string | null = null;
  /** The server asked for a pause until then (monotonic, in milliseconds). */
  avoidUntilMs = 0;
  readonly #events: EndpointEvents;
  readonly #access: Access;
  readonly #channel: ServerChannel;
  #dead = false;

  /** @throws ServiceError `bad-request` if `url` is invalid, or if a token would be sent to it unencrypted */
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
        `Cannot use the server "${url}": the token would be sent unencrypted; use https://${parsed.host}`,
      );
    }
    this.world = world;
    this.url = parsed.origin;
    this.#channel = access.connect?.(parsed.origin) ?? new SocketChannel(world, parsed, access);
    this.#access = access;
    this.given = given;
    this.#events = events;
    const pulse = {
      silent: () => events.unreachable(),
      alive: () => {
        this.#dead = false;
      },
      hasAlternative: () => events.hasAlternative(this),
    };
    this.liveness = new LivenessProbe(world, this.#channel, pulse);
  }

  /** One exchange, which may be repeated freely. @throws the reason of the signal, or why there is no answer */
  request(request: ServerRequest): Promise<Response> {
    return this.#channel.request({ ...request, headers: this.#withAccess(request.headers) });
  }

  stream(request: ServerRequest): Promise<StreamedResponse> {
    return this.#channel.stream({ ...request, headers: this.#withAccess(request.headers) });
  }

  #withAccess(headers: ServerRequest['headers']): Readonly<Record<string, string>> | null {
    const own = this.#access.headers;
    return own === null ? (headers ?? null) : { ...headers, ...own };
  }

  /** It refused a connection, and has shown no sign of life since. */
  get isDead(): boolean {
    return this.#dead;
  }

  get isUnreachable(): boolean {
    return this.#dead || this.liveness.isSilent;
  }

  markDead(nowMs: number): void {
    this.liveness.delayProbe(nowMs);
    if (this.#dead) return;
    this.#dead = true;
    this.#events.unreachable();
  }

  /** @returns whether to send it a request now; an unreachable server is probed in the background */
  isUsable(nowMs: number): boolean {
    if (!this.isUnreachable) return this.avoidUntilMs <= nowMs;
    this.liveness.probeIfDue(nowMs);
    return false;
  }

  /** Ends its connections once the requests in flight have ended. */
  async retire(): Promise<void> {
    await this.#channel.close();
    this.liveness.close();
  }

  async close(): Promise<void> {
    this.liveness.close();
    await this.#channel.destroy();
  }
}
