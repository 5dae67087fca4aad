import { LruMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';

/** The scope of queries of the catalog; that of reads of a file is its number. */
export const QUERIES = 0;

/** A server that cannot answer at all may take seconds to say so. */
const FAILED_PAUSE_MS = 10_000;
const PAUSES_MAX = 20_000;

/**
 * Which server a client asks first for what several servers can answer: one of the client's zone, unless that server
 * failed a moment ago, or forwarded a request of the same scope. It only orders attempts: each server answers by itself
 * or forwards, and an attempt that fails is followed by one at the server that would be asked without a zone.
 */
export class ZonePolicy {
  readonly #world: Pick<World, 'nowMs'>;
  readonly #zone: string | null;
  readonly #isUsable: (server: string) => boolean;
  #servers: readonly string[] = [];
  readonly #failedUntilMs = new Map<string, number>();
  /** By scope and server: until when the server is not asked first (monotonic, in milliseconds). */
  readonly #pausedUntilMs = new LruMap<string, number>(PAUSES_MAX);

  /**
   * @param zone null, or empty: no server is preferred
   * @param isUsable whether a request can be sent to the server now
   */
  constructor(world: Pick<World, 'nowMs'>, zone: string | null, isUsable: (server: string) => boolean) {
    this.#world = world;
    this.#zone = zone === '' ? null : zone;
    this.#isUsable = isUsable;
  }

  /** The cluster's list of servers, by which the client learns their zones. */
  learn(listed: readonly { readonly id: string; readonly zone?: string }[]): void {
    if (this.#zone === null) return;
    this.#servers = listed.filter(({ zone }) => zone === this.#zone).map(({ id }) => id);
    for (const server of this.#failedUntilMs.keys())
      if (!this.#servers.includes(server)) this.#failedUntilMs.delete(server);
  }

  /** Servers of the client's zone. */
  get servers(): readonly string[] {
    return this.#servers;
  }

  /** Whether a server of the client's zone can be asked first now. */
  isNear(server: string): boolean {
    if (!this.#servers.includes(server) || !this.#isUsable(server)) return false;
    return (this.#failedUntilMs.get(server) ?? 0) <= this.#world.nowMs();
  }

  /**
   * Returns the candidate to ask first; null if the zone has none that can be asked now.
   * @param place chooses one of several: clients with different numbers spread over them
   */
  first(scope: number, candidates: readonly string[], place = 0): string | null {
    if (this.#servers.length === 0) return null;
    const nowMs = this.#world.nowMs();
    const near = candidates.filter(
      (server) => this.isNear(server) && (this.#pausedUntilMs.peek(keyOf(scope, server)) ?? 0) <= nowMs,
    );
    return near[place % near.length] ?? null;
  }

  /** An attempt at the server had no answer. */
  failed(server: string): void {
    if (this.#servers.includes(server))
      this.#failedUntilMs.set(server, this.#world.nowMs() + FAILED_PAUSE_MS);
  }

  /** The server had to forward a request of the scope: for a time others are asked first. */
  forwarded(scope: number, server: string, pauseMs: number): void {
    if (this.#servers.includes(server))
      this.#pausedUntilMs.set(keyOf(scope, server), this.#world.nowMs() + pauseMs);
  }
}

function keyOf(scope: number, server: string): string {
  return `${scope} ${server}`;
}
