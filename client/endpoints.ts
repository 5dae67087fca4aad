import { Pool } from 'undici';
import { ServiceError } from '../base/errors.ts';

/** Requests to one server at a time; more wait in its pool. */
const CONNECTIONS_MAX = 64;
const CONNECT_TIMEOUT_MS = 1_500;
const PROBE_TIMEOUT_MS = 1_000;
/** A server that did not accept a connection is left alone for this long, then probed. */
const PROBE_PERIOD_MS = 1_000;
/** Ids of servers are asked for at most this often. */
const IDS_PERIOD_MS = 1_000;

/** One server as this client sees it. */
export class Endpoint {
  readonly url: string;
  readonly index: number;
  readonly pool: Pool;
  /** Known once the server was asked who it is. */
  id: string | null = null;
  /** It did not accept a connection, and no probe has succeeded since. */
  dead = false;
  /** It asked to be left alone until then (monotonic, in milliseconds). */
  avoidUntilMs = 0;
  #probeAtMs = 0;
  #probing = false;

  constructor(url: string, index: number) {
    const parsed = URL.parse(url);
    if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
      throw new ServiceError(
        'bad-request',
        `Cannot use the server "${url}": its address must be a URL such as http://127.0.0.1:7401`,
      );
    }
    this.url = parsed.origin;
    this.index = index;
    this.pool = new Pool(parsed.origin, {
      connections: CONNECTIONS_MAX,
      connect: { timeout: CONNECT_TIMEOUT_MS },
      // Attempts end by their own deadlines, which are exact; the pool's coarse ones stay out of the way.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  markDead(nowMs: number): void {
    this.dead = true;
    this.#probeAtMs = nowMs + PROBE_PERIOD_MS;
  }

  /** @returns whether to ask it now; if it is due for a probe, one starts in the background */
  isUsable(nowMs: number): boolean {
    if (!this.dead) return this.avoidUntilMs <= nowMs;
    if (!this.#probing && nowMs >= this.#probeAtMs) {
      this.#probing = true;
      void this.#probe();
    }
    return false;
  }

  async #probe(): Promise<void> {
    try {
      const answer = await this.pool.request({
        method: 'GET',
        path: '/livez',
        signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      });
      await answer.body.dump();
      this.dead = false;
    } catch {
      // Not an error to report: this is what the probe is for. The next one is due a period from now.
      this.markDead(performance.now());
    } finally {
      this.#probing = false;
    }
  }
}

/** The servers of a cluster: which one to ask next. */
export class Endpoints {
  readonly all: readonly Endpoint[];
  readonly #byId = new Map<string, Endpoint>();
  /** The server that answered last; asked first where no primary is known. */
  #preferred = 0;
  #idsAtMs = Number.NEGATIVE_INFINITY;

  constructor(urls: readonly string[]) {
    if (urls.length === 0)
      throw new ServiceError('bad-request', 'Cannot reach a cluster: no server is named');
    const unique = [...new Set(urls.map((url) => url.replace(/\/+$/, '')))];
    this.all = unique.map((url, index) => new Endpoint(url, index));
  }

  /**
   * @param primary id of the server to ask if it can be asked, or null
   * @param last the server asked last in this exchange, which is asked again only after the others
   */
  choose(primary: string | null, last: Endpoint | null, nowMs: number): Endpoint {
    if (primary !== null) {
      const wanted = this.#byId.get(primary);
      if (wanted === undefined) this.#learnIds(nowMs);
      else if (wanted !== last && wanted.isUsable(nowMs)) return wanted;
    }
    const count = this.all.length;
    const start = last === null ? this.#preferred : last.index + 1;
    for (let step = 0; step < count; step++) {
      const candidate = this.all[(start + step) % count] as Endpoint;
      if (candidate.isUsable(nowMs)) return candidate;
    }
    // Nobody looks well: then all are asked in turn, since the view from here may be out of date.
    return this.all[start % count] as Endpoint;
  }

  /** @returns whether `id` names a server that can be asked now */
  canAsk(id: string, nowMs: number): boolean {
    return this.#byId.get(id)?.isUsable(nowMs) ?? false;
  }

  answered(endpoint: Endpoint): void {
    endpoint.dead = false;
    this.#preferred = endpoint.index;
  }

  /** @returns whether no server accepts a connection, as far as was seen */
  allDead(): boolean {
    return this.all.every((endpoint) => endpoint.dead);
  }

  /** Names of the servers that accept no connections, for error messages. */
  deadNames(): string[] {
    return this.all.filter((endpoint) => endpoint.dead).map((endpoint) => endpoint.id ?? endpoint.url);
  }

  /**
   * Asks the servers who they are, in the background. They are asked one by one instead of believing
   * the addresses in a status, since those need not be reachable from here (containers, tunnels).
   */
  #learnIds(nowMs: number): void {
    if (nowMs - this.#idsAtMs < IDS_PERIOD_MS) return;
    this.#idsAtMs = nowMs;
    for (const endpoint of this.all) {
      if (endpoint.id === null && !endpoint.dead) void this.#learnId(endpoint);
    }
  }

  async #learnId(endpoint: Endpoint): Promise<void> {
    try {
      const answer = await endpoint.pool.request({
        method: 'GET',
        path: '/v1/status/self',
        signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      });
      if (answer.statusCode !== 200) {
        await answer.body.dump();
        return;
      }
      const status = (await answer.body.json()) as { readonly id?: unknown };
      if (typeof status.id !== 'string') return;
      endpoint.id = status.id;
      this.#byId.set(status.id, endpoint);
    } catch {
      // The name only saves a hop; without it the server that is asked forwards. Asked again in a while.
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((endpoint) => endpoint.pool.destroy()));
  }
}
